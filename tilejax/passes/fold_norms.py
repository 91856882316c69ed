"""Fold constant scales and shifts after a convolution or product into its weights."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    new_outvars,
    renamed,
    with_,
)
from tilejax.ir import rewrite
from tilejax.passes.constants import Constants
from tilejax.passes.freeze import MAX_ELEMENTS
from tilejax.passes.record import note
from tilejax.passes.rows import Row, row_of
from tilejax.passes.rules import Definitions
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.conv import conv_op
from tilejax.primitives.matmul import matmul_op
from tilejax.primitives.matmul_dims import dims_of


def fold_norms(program: Program, *, fast_math: bool = False) -> Program:
    """Fold a batch norm at inference into the weights of the convolution before it.

    **Rewrite:** with constants `w`, `mean`, `scale` and `shift`

        c = tiled_conv x w
        d = sub c mean                    d = tiled_conv x (w * scale)
        e = mul d scale            -->    f = add d (shift - mean * scale)
        f = add e shift

    The same after a product. It rounds otherwise, so it is done under `fast_math`.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `fast_math`: Do it at all.

    **Returns:**

    A program with the same inputs and outputs.
    """
    if not fast_math:
        return program
    return rewrite(program, lambda body, room: _fold(body) if room else body)


@dataclass
class _Affine:
    """Steps after a product that multiply features and add to them."""

    product: Eqn
    along: int
    steps: list[tuple[str, Row]] = field(default_factory=list)
    eqns: list[Eqn] = field(default_factory=list)

    def apply(self, *arrays) -> list[jax.Array]:
        """Do it with other weights; `arrays` are the operands, then the rows."""
        count = len(self.product.invars)
        out = self.product.outvars[0].aval
        length = out.shape[self.along]
        scale, shift = jnp.ones((), out.dtype), jnp.zeros((), out.dtype)
        for (what, row), x in zip(self.steps, arrays[count:], strict=True):
            x = row.number_or_vector(x, length)
            if what in ("mul", "div"):
                of: Callable = jnp.multiply if what == "mul" else jnp.divide
                scale, shift = of(scale, x), of(shift, x)
            else:
                shift = shift + x if what == "add" else shift - x
        weights = arrays[1]
        weights = weights * _spread(scale, _features(self.product), weights.ndim)
        params = dict(self.product.params)
        primitive = self.product.primitive
        (z,) = primitive.bind(arrays[0], weights, *arrays[2:count], **params)
        return [z + _spread(shift, self.along, z.ndim)]


def _spread(row: jax.Array, along: int, rank: int) -> jax.Array:
    """A vector along a dimension of so many; a number as it is."""
    if not row.ndim:
        return row
    return row.reshape([row.shape[0] if d == along else 1 for d in range(rank)])


def _features(product: Eqn) -> int:
    """The dimension of the weights that is one of the result."""
    numbers = product.params["dimension_numbers"]
    if product.primitive is conv_op.forward_p:
        return numbers[1][0]
    a, b = product.invars[:2]
    return dims_of(a.aval.ndim, b.aval.ndim, numbers).b_free[-1]


def _along(product: Eqn) -> int | None:
    """The result's dimension of features; None for what is not taken."""
    call = product.params.get("call")
    if product.primitive not in (conv_op.forward_p, matmul_op.forward_p):
        return None
    if call.levels or sum(call.given) > 2:
        return None
    (out,) = product.outvars
    if product.invars[1].aval.dtype != out.aval.dtype:
        return None
    numbers = product.params["dimension_numbers"]
    if product.primitive is conv_op.forward_p:
        return numbers[2][1]
    if product.params["activation"] or product.params["out_dtype"]:
        return None
    a, b = product.invars
    free = dims_of(a.aval.ndim, b.aval.ndim, numbers).b_free
    return out.aval.ndim - 1 if free else None


def _fold(body: Program) -> Program:
    products = [eqn for eqn in body.eqns if _along(eqn) is not None]
    if not products or not body.constvars:
        return body
    constants, uses = Constants(body, MAX_ELEMENTS), Uses(body)
    definitions = Definitions()
    for eqn in body.eqns:
        definitions.add(eqn)
    made: dict[int, tuple[list[Eqn], list[Atom]]] = {}
    gone: set[int] = set()
    for product in products:
        found = _affine(product, constants, definitions, uses)
        if found is None:
            continue
        rows = [row.atom for _, row in found.steps]
        new = splice(found.apply, [*product.invars, *rows], found.eqns[-1])
        if new is not None:
            note("folded scale and shift into weights")
            made[id(found.eqns[-1])] = new
            gone |= {id(eqn) for eqn in (product, *found.eqns)}
    return _rewritten(body, made, gone) if made else body


def _rewritten(body: Program, made: dict, gone: set[int]) -> Program:
    names: dict = {}
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        if id(eqn) in made:
            new, (result,) = made[id(eqn)]
            eqns += [renamed(each, names) for each in new]
            names[eqn.outvars[0]] = result
        elif id(eqn) not in gone:
            eqns.append(renamed(eqn, names))
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _affine(
    product: Eqn, constants: Constants, definitions: Definitions, uses: Uses
) -> _Affine | None:
    """The steps after a product with constant weights; None unless one multiplies."""
    along = _along(product)
    if along is None or product.invars[1] not in constants:
        return None
    found, (z,) = _Affine(product, along), product.outvars
    done = 0
    while len(readers := uses.of(z)) == 1 and not uses.is_output(z):
        (eqn,) = readers
        name = eqn.primitive.name
        if name not in ("mul", "add", "sub", "div"):
            break
        a, b = eqn.invars
        other = b if a is z else a
        if a is b or (name in ("sub", "div") and b is z) or other not in constants:
            break
        row = row_of(other, z.aval.shape, definitions, along)
        if row is None:
            break
        found.steps.append((name, row))
        found.eqns.append(eqn)
        (z,) = eqn.outvars
        done = len(found.eqns) if name in ("mul", "div") else done
    return found if done else None
