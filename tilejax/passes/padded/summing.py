"""Equations that bring elements of an axis together."""

import jax
import jax.numpy as jnp

from tilejax.passes.padded.axes import Padded, gate, joined, mask, prefix
from tilejax.passes.padded.run import is_moving, plain, refusal, rule, shape_of


def least(dtype) -> float | int | bool:
    """Return the value that no other is below."""
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf
    return False if dtype == jnp.bool_ else int(jnp.iinfo(dtype).min)


def greatest(dtype) -> float | int | bool:
    """Return the value that no other is above."""
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.inf
    return True if dtype == jnp.bool_ else int(jnp.iinfo(dtype).max)


# What adds nothing to a reduction or an accumulation of this kind, by dtype.
NEUTRAL = {
    "sum": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "max": least,
    "min": greatest,
    "and": lambda dtype: True if dtype == jnp.bool_ else -1,
    "or": lambda dtype: 0,
    "xor": lambda dtype: 0,
    "logsumexp": least,
}


@rule(
    *(f"reduce_{kind}" for kind in ("sum", "prod", "max", "min", "and", "or", "xor")),
    takes_uniform=True,
)
def reduction(frame, eqn, operands):
    """What is not real is replaced by what adds nothing."""
    (value,), axes = operands, eqn.params["axes"]
    fill = NEUTRAL[eqn.primitive.name.removeprefix("reduce_")](value.x.dtype)
    x = mask(frame, value, shape_of(eqn.invars[0]), fill, axes)
    layouts = [layout for d, layout in enumerate(value.layouts) if d not in axes]
    return plain(frame, eqn, [x], layouts)


@rule("argmax", "argmin")
def choice(frame, eqn, operands):
    """Of equals the first is chosen, and real elements come first."""
    (value,), axes = operands, eqn.params["axes"]
    shape = shape_of(eqn.invars[0])
    if not all(prefix(value.layouts[d], shape[d]) for d in axes):
        raise refusal(eqn, "an index along this axis counts what is not real")
    fill = (least if eqn.primitive.name == "argmax" else greatest)(value.x.dtype)
    x = mask(frame, value, shape, fill, axes)
    layouts = [layout for d, layout in enumerate(value.layouts) if d not in axes]
    return plain(frame, eqn, [x], layouts)


@rule(
    *(f"cum{kind}" for kind in ("sum", "prod", "max", "min", "logsumexp")),
    crosses=True,
)
def accumulation(frame, eqn, operands):
    """Real elements come first, and so do not see the others but in reverse."""
    (value,), axis = operands, eqn.params["axis"]
    shape, x = shape_of(eqn.invars[0]), value.x
    layouts = list(value.layouts)
    if layouts[axis] is not None:
        if not prefix(layouts[axis], shape[axis]):
            raise refusal(eqn, "its elements have no order along this axis")
        layouts[axis] = (shape[axis],)
        if eqn.params["reverse"]:
            fill = NEUTRAL[eqn.primitive.name.removeprefix("cum")](x.dtype)
            x = mask(frame, value, shape, fill, [axis])
    return plain(frame, eqn, [x], layouts)


@rule("dot_general")
def dot_general(frame, eqn, operands):
    """Both operands are zero where a contracted axis is not real."""
    a, b = operands
    (contract, batch), shapes = (
        eqn.params["dimension_numbers"],
        map(shape_of, eqn.invars),
    )
    a_shape, b_shape = shapes
    for i, j in zip(*contract, strict=True):
        joined([a.layouts[i], b.layouts[j]], "dot_general")
    free = [
        [d for d in range(len(each.layouts)) if d not in contract[at] + batch[at]]
        for at, each in enumerate(operands)
    ]
    axes = [list(each) for each in contract]
    is_mixing = [
        any(each.layouts[d] is not None for d in free[at])
        for at, each in enumerate(operands)
    ]
    moving = [is_moving(v) for v in eqn.invars]
    is_gated = frame.gated and any(is_mixing) and any(moving)
    if is_gated:
        axes = [a.axes, b.axes]
    x, y = mask(frame, a, a_shape, 0, axes[0]), mask(frame, b, b_shape, 0, axes[1])
    layouts = [
        joined([a.layouts[i], b.layouts[j]], "dot_general")
        for i, j in zip(*batch, strict=True)
    ]
    layouts += [each.layouts[d] for at, each in enumerate(operands) for d in free[at]]
    (out,) = plain(frame, eqn, [x, y], layouts)
    return [gate(frame, out, shape_of(eqn.outvars[0])) if is_gated else out]


@rule("sort")
def sort(frame, eqn, operands):
    """What is not real comes last: a key before all keys says so."""
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    shape = shape_of(eqn.invars[0])
    layouts = [
        joined([each.layouts[d] for each in operands], "sort")
        for d in range(len(shape))
    ]
    if layouts[axis] is None:
        outs = plain(frame, eqn, [each.x for each in operands])
        return [Padded(out.x, tuple(layouts)) for out in outs]
    if not prefix(layouts[axis], shape[axis]):
        raise refusal(eqn, "its elements have no order along this axis")
    index = jax.lax.broadcasted_iota("int32", operands[0].x.shape, axis)
    is_padding = index >= frame.real(shape[axis])
    _, *outs = jax.lax.sort(
        [is_padding, *(each.x for each in operands)],
        dimension=axis,
        is_stable=eqn.params["is_stable"],
        num_keys=keys + 1,
    )
    layouts[axis] = (shape[axis],)
    return [Padded(x, tuple(layouts)) for x in outs]


@rule("top_k")
def top_k(frame, eqn, operands):
    """What is not real is least; of equals the first is taken."""
    (value,), shape = operands, shape_of(eqn.invars[0])
    axis = eqn.params.get("axis", len(shape) - 1) % len(shape)
    if not prefix(value.layouts[axis], shape[axis]):
        raise refusal(eqn, "an index along this axis counts what is not real")
    x = mask(frame, value, shape, least(value.x.dtype), [axis])
    outs = plain(frame, eqn, [x])
    layouts = tuple(None if d == axis else y for d, y in enumerate(value.layouts))
    return [Padded(out.x, layouts) for out in outs]
