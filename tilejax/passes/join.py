"""One product for several that share an operand."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    is_literal,
    new_outvars,
    renamed,
    with_,
)
from tilejax._jax.values import is_placed
from tilejax.ir import rewrite
from tilejax.ir.work import is_elementwise
from tilejax.passes.constants import Constants
from tilejax.passes.freeze import MAX_ELEMENTS
from tilejax.passes.gain import Seconds, gain_of
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.call import Call
from tilejax.primitives.matmul import matmul_op
from tilejax.primitives.matmul_dims import dims_of

# Of the same values, or of parts of them, which loops read where they are.
_VIEWS = frozenset("reshape transpose slice squeeze expand_dims".split())


def join_products(program: Program, *, seconds: Seconds | None = None) -> Program:
    """Multiply once by several weights that stand side by side.

    **Rewrite:**

        q = tiled_matmul x wq         w = concatenate wq wk
        k = tiled_matmul x wk   -->   y = tiled_matmul x w
                                      q, k = slice y, slice y

    Where the model says that it pays. Weights that are constants are put side by side
    once; other ones at each call, which the model counts, and only where the program
    has one device, since how they lie on several is not known here.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `seconds`: A model of how long equations take; without one nothing is joined.

    **Returns:**

    A program with the same inputs and outputs.
    """
    if seconds is None:
        return program
    return rewrite(program, lambda body, room: _join(body, room, seconds))


def _join(body: Program, has_room: bool, seconds: Seconds) -> Program:
    groups = _groups(body)
    if not groups:
        return body
    joiner = _Joiner(body, has_room, seconds)
    made: dict[int, tuple[list[Eqn], list[Atom]]] = {}
    names: dict[Atom, Atom] = {}
    gone: set[int] = set()
    for group in groups:
        found = joiner.joined(group)
        if found is not None:
            made[id(group[0])] = found
            gone |= {id(eqn) for eqn in group}
            for eqn, out in zip(group, found[1], strict=True):
                names[eqn.outvars[0]] = out
    if not made:
        return body
    eqns: list[Eqn] = []
    for eqn in body.eqns:
        if id(eqn) in made:
            eqns += [renamed(each, names) for each in made[id(eqn)][0]]
        elif id(eqn) not in gone:
            eqns.append(renamed(eqn, names))
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _groups(body: Program) -> list[list[Eqn]]:
    groups: dict[tuple, list[Eqn]] = {}
    for eqn in body.eqns:
        key = _key(eqn)
        if key is not None:
            groups.setdefault(key, []).append(eqn)
    return [group for group in groups.values() if len(group) > 1]


def _key(eqn: Eqn) -> tuple | None:
    """What products that can be joined agree in; None for what is not joined."""
    if eqn.primitive is not matmul_op.forward_p:
        return None
    params = eqn.params
    call: Call = params["call"]
    a, b, bias, scale, residual = call.expand(eqn.invars)
    if call.levels or params["out_sharding"] is not None:
        return None
    if scale is not None or residual is not None:
        return None
    if any(map(is_literal, eqn.invars)):
        return None
    if any(is_placed(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        return None
    dims = dims_of(a.aval.ndim, b.aval.ndim, params["dimension_numbers"])
    if len(dims.b_free) != 1:
        return None
    (free,) = dims.b_free
    kept = tuple(n for d, n in enumerate(b.aval.shape) if d != free)
    biased = None if bias is None else bias.aval.dtype
    rest = tuple((name, params[name]) for name in sorted(params))
    return (a, kept, b.aval.dtype, biased, rest, eqn.ctx)


class _Joiner:
    """Join the products of a body."""

    def __init__(self, body: Program, has_room: bool, seconds: Seconds):
        self._seconds = seconds
        self._uses = Uses(body)
        self._definitions = Definitions()
        self._at: dict[Atom, int] = {}
        self._order = {id(eqn): i for i, eqn in enumerate(body.eqns)}
        for i, eqn in enumerate(body.eqns):
            self._definitions.add(eqn)
            self._at.update(dict.fromkeys(eqn.outvars, i))
        holds = has_room and bool(body.constvars)
        self._constants = Constants(body, MAX_ELEMENTS) if holds else None

    def joined(self, group: Sequence[Eqn]) -> tuple[list[Eqn], list[Atom]] | None:
        """Return one product and its slices; None where that is wrong or does not pay.

        They stand where the first of the group does.
        """
        first = self._order[id(group[0])]
        operands = [v for eqn in group for v in eqn.invars[1:]]
        if any(self._at.get(v, -1) >= first for v in operands):
            return None
        is_constant = self._constants is not None and all(
            eqn.invars[1] in self._constants for eqn in group
        )
        if not is_constant and jax.device_count() > 1:
            note("left products of one operand: their weights may lie on many devices")
            return None
        made = self._made(group)
        if made is None:
            return None
        old = (list(group), [eqn.outvars[0] for eqn in group])
        eqns, outs = made
        skipped = ("concatenate",) if is_constant else ()
        new = [eqn for eqn in eqns if eqn.primitive.name not in skipped]
        gain = gain_of(self._seconds, old, (new, self._stored(group, eqns, outs)))
        if gain is None or not gain.is_something:
            why = "sizes that are not known yet" if gain is None else gain
            note(f"left {len(group)} products of one operand: {why}")
            return None
        note(f"joined {len(group)} products of one operand: {gain}")
        return made

    def _made(self, group: Sequence[Eqn]):
        (a, *_), params = group[0].invars, dict(group[0].params)
        call: Call = params.pop("call")
        has_bias = call.given[2]
        b = group[0].invars[1]
        numbers = params["dimension_numbers"]
        (free,) = dims_of(a.aval.ndim, b.aval.ndim, numbers).b_free
        sizes = [eqn.invars[1].aval.shape[free] for eqn in group]

        def apply(a, *rest):
            weights = jnp.concatenate(rest[: len(group)], free)
            bias = [jnp.concatenate(rest[len(group) :])] if has_bias else []
            (out,) = matmul_op.bind([a, weights, *bias], call, params)
            outs, at = [], 0
            for size in sizes:
                outs.append(jax.lax.slice_in_dim(out, at, at + size, axis=out.ndim - 1))
                at += size
            return outs

        operands = [a, *(eqn.invars[1] for eqn in group)]
        operands += [eqn.invars[2] for eqn in group] if has_bias else []
        results = [eqn.outvars[0] for eqn in group]
        return splice(apply, operands, group[0].replace(outvars=results))

    def _stored(self, group: Sequence[Eqn], eqns: Sequence[Eqn], outs: Sequence[Atom]):
        """What has to be in memory by itself: the product, and what is not read inside
        a loop."""
        (product,) = (e for e in eqns if e.primitive is matmul_op.forward_p)
        apart = [
            out
            for eqn, out in zip(group, outs, strict=True)
            if not self._is_read_in_loops(eqn.outvars[0])
        ]
        return [*product.outvars, *apart]

    def _is_read_in_loops(self, v: Atom) -> bool:
        if self._uses.is_output(v):
            return False
        return all(
            is_elementwise(eqn.primitive.name)
            or (eqn.primitive.name in _VIEWS and self._is_read_in_loops(eqn.outvars[0]))
            for eqn in self._uses.of(v)
        )
