"""Raising softmax and its logarithm from the equations of `jax.nn`."""

from dataclasses import dataclass

import numpy as np

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    is_literal,
    new_outvars,
    renamed,
    with_,
)
from tilejax.ir import rewrite
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.softmax import softmax_op


@dataclass(frozen=True)
class _Match:
    x: Atom
    axes: tuple[int, ...]
    log: bool
    inner: tuple[Eqn, ...]


def raise_softmax(program: Program) -> Program:
    """Turn the equations of a softmax, or of its logarithm, into one.

    **Rewrite:**

        m = reduce_max x
        e = exp (sub x m)         -->   y = tiled_softmax x
        y = div e (reduce_sum e)

    One whose exponentials are used elsewhere too (by a derivative) is left alone, since
    they would be computed twice.

    **Arguments:**

    - `program`: Any program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _raise)


def _raise(body: Program, has_room: bool) -> Program:
    del has_room  # nothing gets constants
    if not any(eqn.primitive.name == "exp" for eqn in body.eqns):
        return body
    names: dict = {}
    eqns: list[Eqn] = []
    definitions, uses = Definitions(), Uses(body)
    for old in body.eqns:
        definitions.add(old)
        eqn = renamed(old, names)
        made = _made(old, eqn, definitions, uses)
        if made is None:
            eqns.append(eqn)
            continue
        eqns += made[0]
        names[eqn.outvars[0]] = made[1][0]
    if not names:
        return body
    # a match reads only what stood before it, under its old name
    eqns = [renamed(eqn, names) for eqn in eqns]
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _made(old: Eqn, eqn: Eqn, definitions: Definitions, uses: Uses):
    match = _softmax(old, definitions) or _log_softmax(old, definitions)
    if match is None:
        return None
    kind = "log_softmax" if match.log else "softmax"
    if uses.outside((*match.inner, old)):
        note(f"left {kind}: its exponentials are used elsewhere too")
        return None

    def apply(x):
        return [softmax_op(x, axes=match.axes, log=match.log)]

    made = splice(apply, [match.x], eqn)
    note(f"raised {kind}" if made else f"left {kind}: its type would change")
    return made


def _softmax(eqn: Eqn, definitions: Definitions) -> _Match | None:
    """`exp(x - max) / sum(exp(x - max))`."""
    if eqn.primitive.name != "div":
        return None
    exp = definitions.of(eqn.invars[0], "exp")
    if exp is None:
        return None
    total = _kept_reduction(eqn.invars[1], "reduce_sum", definitions)
    shifted = _shifted(exp.invars[0], definitions)
    if total is None or shifted is None or total.source is not exp.outvars[0]:
        return None
    x, axes, inner = shifted
    if axes != total.axes:
        return None
    return _Match(x, axes, False, (*inner, exp, *total.inner))


def _log_softmax(eqn: Eqn, definitions: Definitions) -> _Match | None:
    """`(x - max) - log(sum(exp(x - max)))`."""
    if eqn.primitive.name != "sub":
        return None
    log = definitions.of(eqn.invars[1], "log")
    shifted = _shifted(eqn.invars[0], definitions)
    if log is None or shifted is None:
        return None
    total = _kept_reduction(log.invars[0], "reduce_sum", definitions)
    exp = None if total is None else definitions.of(total.source, "exp")
    if total is None or exp is None or exp.invars[0] is not eqn.invars[0]:
        return None
    x, axes, inner = shifted
    if axes != total.axes:
        return None
    return _Match(x, axes, True, (*inner, exp, *total.inner, log))


@dataclass(frozen=True)
class _Reduction:
    source: Atom
    axes: tuple[int, ...]
    inner: tuple[Eqn, ...]


def _shifted(atom: Atom, definitions: Definitions):
    """`x - max(x)`: x, the axes of the maximum, and the equations."""
    sub = definitions.of(atom, "sub")
    if sub is None:
        return None
    inner = [sub]
    top = sub.invars[1]
    stopped = definitions.of(top, "stop_gradient")
    if stopped is None:
        return None
    inner.append(stopped)
    found = _kept_reduction(stopped.invars[0], "reduce_max", definitions)
    if found is None or found.source is not sub.invars[0]:
        return None
    return sub.invars[0], found.axes, (*inner, *found.inner)


def _kept_reduction(atom: Atom, kind: str, definitions: Definitions):
    """A reduction whose axes were put back with size one, by a broadcast or reshape."""
    back = definitions.of(atom, "broadcast_in_dim", "reshape")
    if back is None:
        return None
    inner = [back]
    below = back.invars[0]
    floor = definitions.of(below, "max")
    if kind == "reduce_max" and floor is not None:
        rest = [v for v in floor.invars if not _is_lowest(v)]
        if len(rest) != 1:
            return None
        inner.append(floor)
        below = rest[0]
    reduction = definitions.of(below, kind)
    if reduction is None:
        return None
    source = reduction.invars[0]
    axes = tuple(reduction.params["axes"])
    shape = source.aval.shape
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    if back.outvars[0].aval.shape != kept or not _keeps_order(back, axes, len(shape)):
        return None
    return _Reduction(source, axes, (*inner, reduction))


def _keeps_order(back: Eqn, axes, rank: int) -> bool:
    if back.primitive.name == "reshape":
        return back.params.get("dimensions") is None
    rest = tuple(i for i in range(rank) if i not in axes)
    return tuple(back.params["broadcast_dimensions"]) == rest


def _is_lowest(atom: Atom) -> bool:
    return is_literal(atom) and np.ndim(atom.val) == 0 and float(atom.val) == -np.inf
