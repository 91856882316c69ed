"""Tiled operations, by their factor rules or else by their references."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax._jax.jaxprs import trace
from tilejax.passes.padded.axes import (
    Frame,
    Layout,
    Padded,
    gate,
    joined,
    mask,
    prefix,
    real_along,
)
from tilejax.passes.padded.run import is_moving, plain, rule, run, shape_of
from tilejax.primitives import parts
from tilejax.primitives.call import Call
from tilejax.primitives.define import operation_of
from tilejax.primitives.factors import Rule
from tilejax.primitives.op import Op


@rule("tiled")
def tiled(frame, eqn, operands):
    """A padded dimension is carried through, summed over as zeros, or looked into."""
    found = operation_of(eqn.primitive)
    assert found is not None, eqn.primitive
    op, part = found
    params = dict(eqn.params)
    call: Call = params.pop("call")
    if op.name == "attention" and part == "forward" and not call.levels:
        outs = _attention(frame, eqn, op, operands, call, params)
        if outs is not None:
            return outs
    factors = parts.rule_of(op, part, [v.aval for v in eqn.invars], call, params)
    if factors is not None and _can_carry(op, part, factors, operands, call, params):
        return _carried(frame, eqn, factors, operands)
    return _by_reference(frame, eqn, op, part, operands, call, params)


def _can_carry(op: Op, part: str, factors: Rule, operands, call, params) -> bool:
    """Say whether padded dimensions are all carried, or summed over linearly."""
    special = factors.whole | factors.halo | factors.shared | {"1"}
    padded = [
        _padded(each, dims)
        for each, dims in zip(operands, factors.operands, strict=True)
    ]
    if any(names & special for names in padded):
        return False
    if part == "forward":
        linear = set(op.linear_in(call, params))
    else:  # linear in what comes last: tangents, cotangents
        linear = set(range(sum(call.given) + len(op.saves), len(operands)))
    summed = set().union(*padded) & factors.reduced
    return all(
        any(name in padded[at] for at in linear if at < len(padded)) for name in summed
    )


def _padded(each: Padded, dims: Sequence[str]) -> set[str]:
    return {name for name, y in zip(dims, each.layouts, strict=True) if y is not None}


def _carried(frame: Frame, eqn, factors: Rule, operands) -> list[Padded]:
    layouts: dict[str, list[Layout]] = {}
    for each, dims in zip(operands, factors.operands, strict=True):
        for name, layout in zip(dims, each.layouts, strict=True):
            layouts.setdefault(name, []).append(layout)
    one = {name: joined(found, eqn.primitive.name) for name, found in layouts.items()}
    one["1"] = None
    padded = {name for name, layout in one.items() if layout is not None}
    is_gated = frame.gated and any(
        padded & {f for dims in factors.results for f in dims} - set(dims)
        for v, dims in zip(eqn.invars, factors.operands, strict=True)
        if is_moving(v)
    )
    arrays = []
    for each, dims, v in zip(operands, factors.operands, eqn.invars, strict=True):
        gated = is_gated and jnp.issubdtype(each.x.dtype, jnp.inexact)
        axes = [d for d, name in enumerate(dims) if gated or name in factors.reduced]
        arrays.append(mask(frame, each, shape_of(v), 0, axes))
    outs = plain(frame, eqn, arrays)
    found = []
    for out, dims, v in zip(outs, factors.results, eqn.outvars, strict=True):
        new = Padded(out.x, tuple(one[name] for name in dims))
        found.append(gate(frame, new, shape_of(v)) if is_gated else new)
    return found


def _by_reference(frame: Frame, eqn, op, part, operands, call, params) -> list[Padded]:
    """Go through the equations that the operation stands for."""
    types = [jax.ShapeDtypeStruct(shape_of(v), v.aval.dtype) for v in eqn.invars]
    with _p.neutral_mesh():
        body, _ = trace(parts.function(op, part, call, params), *types)
    return run(body, frame, operands)


def _attention(frame: Frame, eqn, op: Op, operands, call: Call, params):
    """Hide keys that are not real by a mask; None where that is not enough."""
    q, k, v, bias, seen, q_segments, kv_segments = call.expand(operands)
    shapes = call.expand([shape_of(a) for a in eqn.invars])
    layouts = [each.layouts for each in (q, k, v)]
    is_hidden = k.layouts[2] is not None
    if is_hidden and params["masked_rows"] != "zeros":
        return None
    if any(y[1] is not None or y[3] is not None for y in layouts):
        return None
    lengths = [q.layouts[2], k.layouts[2]]
    if not all(prefix(y, s[2]) for y, s in zip(lengths, shapes, strict=False)):
        return None
    batch = joined([y[0] for y in layouts], "attention")
    gated = frame.gated
    arrays = [each.x for each in (q, k, v)]
    if is_hidden or gated:
        arrays[1:] = [
            mask(frame, x, s, 0, [0, 2] if gated else [2])
            for x, s in zip((k, v), shapes[1:3], strict=True)
        ]
    if gated:
        arrays[0] = mask(frame, q, shapes[0], 0, [0, 2])
    new = None if seen is None else seen.x
    if is_hidden:
        real = real_along(frame, k.layouts[2], shapes[1][2])
        real = jnp.broadcast_to(real, (1, 1, q.x.shape[2], k.x.shape[2]))
        new = real if new is None else new & real
    rest = [
        None if each is None else each.x
        for each in (bias, None, q_segments, kv_segments)
    ]
    full = [*arrays, rest[0], new, *rest[2:]]
    given = tuple(x is not None for x in full)
    outs = op.bind(
        [x for x in full if x is not None],
        Call(given, target=call.target),
        {name: frame.static(value) for name, value in params.items()},
    )
    rows = (batch, None, q.layouts[2])
    found = [Padded(outs[0], (*rows, None)), Padded(outs[1], rows)]
    if gated:
        found = [
            gate(frame, x, shape_of(v)) for x, v in zip(found, eqn.outvars, strict=True)
        ]
    return found
