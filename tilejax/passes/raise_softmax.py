"""Raising softmax and its logarithm from the equations of `jax.nn`."""

from dataclasses import dataclass

import numpy as np

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    new_outvars,
    renamed,
    with_,
)
from tilejax.ir import rewrite
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.dtypes import FLOATS, accumulator
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
    total = _kept(eqn.invars[1], "reduce_sum", exp.outvars[0], definitions)
    shifted = _shifted(exp.invars[0], definitions)
    if total is None or shifted is None or total.axes != shifted.axes:
        return None
    inner = (*shifted.inner, exp, *total.inner)
    return _Match(shifted.source, total.axes, False, inner)


def _log_softmax(eqn: Eqn, definitions: Definitions) -> _Match | None:
    """`(x - max) - log(sum(exp(x - max)))`."""
    if eqn.primitive.name != "sub":
        return None
    log = definitions.of(eqn.invars[1], "log")
    shifted = _shifted(eqn.invars[0], definitions)
    if log is None or shifted is None:
        return None
    for exp in shifted.exponentials(definitions):
        total = _kept(log.invars[0], "reduce_sum", exp.outvars[0], definitions)
        if total is not None and total.axes == shifted.axes:
            inner = (*shifted.inner, exp, *total.inner, log)
            return _Match(shifted.source, total.axes, True, inner)
    return None


@dataclass(frozen=True)
class _Reduction:
    source: Atom
    axes: tuple[int, ...]
    inner: tuple[Eqn, ...]

    def exponentials(self, definitions: Definitions) -> list[Eqn]:
        """The exponentials of what the first of the equations makes."""
        return definitions.readers(self.inner[0].outvars[0], "exp")


def _shifted(atom: Atom, definitions: Definitions) -> _Reduction | None:
    """`x - max(x)`: x, the axes of the maximum, and the equations."""
    sub = definitions.of(atom, "sub")
    stopped = sub and definitions.of(sub.invars[1], "stop_gradient")
    if sub is None or stopped is None:
        return None
    x = sub.invars[0]
    found = _kept(stopped.invars[0], "reduce_max", x, definitions)
    if found is None:
        return None
    return _Reduction(x, found.axes, (sub, stopped, *found.inner))


def _kept(
    atom: Atom, kind: str, x: Atom, definitions: Definitions
) -> _Reduction | None:
    """A reduction of `x` whose axes were put back with size one.

    JAX itself reduces before it transposes, where `x` is a transpose, and sums narrow
    floats in float32.
    """
    narrowed = definitions.of(atom, "convert_element_type")
    inner = [] if narrowed is None else [narrowed]
    back = definitions.of(inner[0].invars[0] if inner else atom, *_BACK)
    if back is None:
        return None
    inner.append(back)
    order: tuple[int, ...] | None = None
    below = back.invars[0]
    while (step := definitions.of(below, "max", "transpose")) is not None:
        if step.primitive.name == "max":
            above = _above(step, definitions)
            if len(above) != 1:
                return None
            (below,) = above
        elif order is None:
            order, below = tuple(step.params["permutation"]), step.invars[0]
        else:
            return None
        inner.append(step)
    reduction = definitions.of(below, kind)
    if reduction is None:
        return None
    inner.append(reduction)
    source = reduction.invars[0]
    if narrowed is not None:
        widened = definitions.of(source, "convert_element_type")
        if widened is None or not _sums_wide(widened, narrowed):
            return None
        inner.append(widened)
        source = widened.invars[0]
    axes = _axes_in(x, source, tuple(reduction.params["axes"]), order, definitions)
    if axes is None or not _puts_back(back, axes, x.aval.shape):
        return None
    return _Reduction(x, axes, tuple(inner))


_BACK = ("broadcast_in_dim", "reshape")


def _sums_wide(widened: Eqn, narrowed: Eqn) -> bool:
    """Say whether the casts are those of a sum of narrow floats in float32."""
    narrow, wide = (v.aval.dtype for v in (widened.invars[0], widened.outvars[0]))
    if narrow.name not in FLOATS or narrowed.outvars[0].aval.dtype != narrow:
        return False
    return wide == accumulator(narrow) != narrow


def _axes_in(
    x: Atom, source: Atom, axes: tuple[int, ...], order, definitions: Definitions
) -> tuple[int, ...] | None:
    """The axes of `x` that are reduced, if it is `x` in effect that is."""
    if source is x:
        return axes if order in (None, tuple(range(len(order or ())))) else None
    moved = definitions.of(x, "transpose")
    if moved is None or moved.invars[0] is not source:
        return None
    permutation = tuple(moved.params["permutation"])
    own = tuple(i for i, d in enumerate(permutation) if d in axes)
    rest = [d for d in range(len(permutation)) if d not in axes]
    wanted = tuple(rest.index(d) for d in permutation if d not in axes)
    return own if wanted == (order or tuple(range(len(rest)))) else None


def _puts_back(back: Eqn, axes, shape) -> bool:
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    if back.outvars[0].aval.shape != kept:
        return False
    if back.primitive.name == "reshape":
        return back.params.get("dimensions") is None
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    return tuple(back.params["broadcast_dimensions"]) == rest


def _above(step: Eqn, definitions: Definitions) -> list[Atom]:
    """The operands of a maximum that are not -inf."""
    floors = [definitions.splat(v) for v in step.invars]
    return [
        v
        for v, floor in zip(step.invars, floors, strict=True)
        if floor is None or float(floor) != -np.inf
    ]
