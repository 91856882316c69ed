"""Fusing what follows a product into the product's own epilogue."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import Atom, Eqn, Program, new_outvars, renamed, with_
from tilejax.ir import rewrite
from tilejax.passes.epilogue import Epilogue, Finder, is_exact
from tilejax.passes.gain import Seconds, gain_of
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives import matmul_epilogue
from tilejax.primitives.call import Call
from tilejax.primitives.matmul import matmul_op


def fuse_epilogues(
    program: Program, *, fast_math: bool = False, seconds: Seconds | None = None
) -> Program:
    """Put scale, bias, activation, residual and cast into the product before them.

    **Rewrite:**

        c = tiled_matmul a b
        d = add c (broadcast_in_dim bias)    -->    e = tiled_matmul[activation=gelu] a
        e = gelu d                                      b bias

    The result is rounded as before. A product whose sum, or a step before the last, is
    read elsewhere too (by a derivative) is left alone, and so is one that the model
    says is faster by itself. What is fused is still differentiated as the equations
    were, keeping the sum rather than computing it again.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `fast_math`: Also fuse where a narrow type is then rounded less often.
    - `seconds`: A model of how long equations take; None to fuse all that may be.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, lambda body, _: _fuse(body, fast_math, seconds))


def _fuse(body: Program, fast_math: bool, seconds: Seconds | None) -> Program:
    products = [eqn for eqn in body.eqns if eqn.primitive is matmul_op.forward_p]
    if not products:
        return body
    definitions, uses, claimed = Definitions(), Uses(body), set()
    for eqn in body.eqns:
        definitions.add(eqn)
    ends: dict[int, _Fusion] = {}
    for product in products:
        made = _fusion(product, Finder(definitions, uses, claimed), fast_math, seconds)
        if made is not None:
            ends[id(made.last)] = made
            claimed |= {id(eqn) for eqn in (product, *made.found.eqns)}
    return _rewritten(body, ends, claimed) if ends else body


_NAMES = ("a", "b", "bias", "scale", "residual")


class _Fusion:
    """A product and its epilogue, and the one equation for both."""

    def __init__(self, product: Eqn, found: Epilogue):
        self.product, self.found = product, found
        self.last = found.eqns[-1]
        self.made: tuple[list[Eqn], list[Atom]] = ([], [])
        call: Call = product.params["call"]
        self.operands = dict(zip(_NAMES, call.expand(product.invars), strict=True))
        self.operands |= {
            name: getattr(getattr(found, name), "atom", getattr(found, name))
            for name in ("bias", "scale", "residual")
            if getattr(found, name) is not None
        }

    def avals(self) -> list:
        return [None if v is None else v.aval for v in self.operands.values()]

    def dtypes(self) -> tuple[Any, Any]:
        """What the epilogue is computed in, and the result's dtype by default."""
        a, b, bias, scale, residual = self.avals()
        return matmul_epilogue.dtypes_of(
            *(a, b, bias, scale, residual), self.activation(), None, self.product.params
        )

    def activation(self) -> str | None:
        return self.found.activation or self.product.params["activation"]

    def apply(self, *arrays) -> list[jax.Array]:
        """Do it, with values of the operands that are there."""
        given = {name: v is not None for name, v in self.operands.items()}
        there = iter(arrays)
        values = {name: next(there) for name, is_there in given.items() if is_there}
        product, params = self.product.outvars[0].aval, dict(self.product.params)
        length = product.shape[-1] if product.shape else 1
        if self.found.bias is not None:
            values["bias"] = self.found.bias.vector(values["bias"], length)
        if self.found.scale is not None:
            row = self.found.scale
            values["scale"] = row.number_or_vector(values["scale"], length)
        if self.found.residual is not None:
            values["residual"] = _shaped(values["residual"], product.shape)
        call: Call = params.pop("call")
        call = replace(call, given=tuple(given.values()), apart=True)
        params |= {
            "activation": self.activation(),
            "preferred_element_type": self.sum_dtype(),
            "out_dtype": self.out_dtype(),
        }
        (out,) = matmul_op.bind(list(values.values()), call, params)
        return [_shaped(out, self.last.outvars[0].aval.shape)]

    def sum_dtype(self):
        params = self.product.params
        finished = params["activation"] or params["out_dtype"]
        if finished or any(params["call"].given[2:]):
            return params["preferred_element_type"]  # its sum is kept already
        return own_dtype(self.product)

    def out_dtype(self):
        dtype, (_, default) = self.last.outvars[0].aval.dtype, self.dtypes()
        return None if dtype == default else jnp.dtype(dtype)


def own_dtype(product: Eqn) -> jnp.dtype:
    """Return the dtype that a product has without an epilogue."""
    a, b = (v.aval.dtype for v in product.invars[:2])
    asked = product.params["preferred_element_type"]
    return jnp.dtype(asked or jnp.promote_types(a, b))


def _shaped(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return x if x.shape == shape else jax.lax.reshape(x, shape)


def _start(product: Eqn) -> Epilogue | None:
    """The epilogue that a product has already; None if nothing can follow it."""
    call: Call = product.params["call"]
    (result,) = product.outvars
    if call.levels or product.params["out_sharding"] is not None:
        return None
    _, _, bias, scale, residual = call.expand(product.invars)
    activation = product.params["activation"]
    stages = (scale, bias, activation, residual)
    stage = max(i + 1 if x is not None else 0 for i, x in enumerate(stages))
    found = Epilogue(result, stage=stage)
    if stage:
        found.dtype = result.aval.dtype
    avals = [None if v is None else v.aval for v in call.expand(product.invars)]
    a, b, *rest = avals
    wide, _ = matmul_epilogue.dtypes_of(
        *(a, b, rest[0], rest[1], rest[2], activation, None, product.params)
    )
    has_end = product.params["out_dtype"] is not None
    return None if has_end and result.aval.dtype != wide else found


def _fusion(
    product: Eqn, finder: Finder, fast_math: bool, seconds: Seconds | None
) -> _Fusion | None:
    start = _start(product)
    if start is None:
        return None
    found = finder.find(start, fast_math=fast_math)
    what = ", ".join(found.parts)
    if not found.parts:
        if found.why:
            note(f"left matmul: {found.why}")
        return None
    fusion = _Fusion(product, found)
    if any(jnp.issubdtype(v.aval.dtype, jnp.complexfloating) for v in product.invars):
        return None
    wide, _ = fusion.dtypes()
    if not is_exact(found, own_dtype(product), wide, fast_math=fast_math):
        note(f"left {what} of matmul: rounded in between (fast_math would not)")
        return None
    return fusion if _pays(fusion, what, finder, seconds) else None


def _pays(fusion: _Fusion, what: str, finder: Finder, seconds: Seconds | None) -> bool:
    """Say whether the model is for it, and keep the new equations if so."""
    operands = [v for v in fusion.operands.values() if v is not None]
    # the line that explains it is the product's
    where = fusion.last.replace(source_info=fusion.product.source_info)
    made = splice(fusion.apply, operands, where)
    if made is None:
        note(f"left {what} of matmul: its type would change")
        return False
    old = finder.with_views([fusion.product, *fusion.found.eqns])
    gain = gain_of(seconds, (old, fusion.last.outvars), made)
    if gain is not None and not gain.pays:
        note(f"left {what} of matmul: {gain}")
        return False
    note(f"fused {what} into matmul" + (f": {gain}" if gain is not None else ""))
    fusion.made = made
    return True


def _rewritten(body: Program, ends: dict[int, _Fusion], claimed: set[int]) -> Program:
    names: dict = {}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        fusion = ends.get(id(eqn))
        if fusion is not None:
            made, (result,) = fusion.made
            eqns += [renamed(each, names) for each in made]
            names[eqn.outvars[0]] = result
        elif id(eqn) not in claimed:
            eqns.append(renamed(eqn, names))
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))
