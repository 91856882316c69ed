"""Gathers and scatters: indices count real elements, and so must their limits."""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax.symbolic import is_symbolic
from tilejax.passes.padded.axes import (
    Frame,
    Layout,
    Padded,
    joined,
    layouts_of,
    mask,
    prefix,
)
from tilejax.passes.padded.run import plain, refusal, rule, shape_of
from tilejax.passes.padded.summing import greatest, least

_MODES = jax.lax.GatherScatterMode


@rule("gather", crosses=True)
def gather(frame, eqn, operands):
    """Indices past the real elements are out of range, as they were."""
    value, indices = operands
    numbers, slices = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape, out = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    mapped = numbers.start_index_map
    x, index = _limited(frame, eqn, value, indices.x, shape, slices, mapped)
    batch = indices.layouts[:-1]
    window = [
        layout if _same(slices[d], shape[d]) else layouts_of([slices[d]])[0]
        for d, layout in enumerate(value.layouts)
        if d not in (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ]
    pairs = zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    )
    rows = list(batch)
    for d, at in pairs:
        rows[at] = joined([value.layouts[d], batch[at]], "gather")
    there, windows = iter(rows), iter(window)
    layouts = [
        next(windows) if d in numbers.offset_dims else next(there)
        for d in range(len(out))
    ]
    return plain(frame, eqn, [x, index], layouts)


def _same(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


def _limited(
    frame: Frame, eqn, value: Padded, index: Any, shape, slices, mapped
) -> tuple[Any, Any]:
    """Make indices past the real elements be past the padded ones, or be clipped.

    **Returns:** the array, with room behind where a slice's own size is not known, and
    the indices.
    """
    x = value.x
    for d, layout in enumerate(value.layouts):
        if layout is None or _same(slices[d], shape[d]) or d not in mapped:
            continue
        if not prefix(layout, shape[d]):
            raise refusal(eqn, f"axis {d} has no real elements in front")
        if is_symbolic(slices[d]):
            room = (*x.shape[:d], frame.padded(slices[d]), *x.shape[d + 1 :])
            x = jnp.concatenate([x, jnp.zeros(room, x.dtype)], d)
        at = mapped.index(d)
        column = index[..., at]
        most = jnp.asarray(frame.real(shape[d] - slices[d]), column.dtype)
        if eqn.params["mode"] == _MODES.FILL_OR_DROP:
            outside = jnp.asarray(x.shape[d], column.dtype)
            column = jnp.where(column > most, outside, column)
        elif eqn.params["mode"] == _MODES.CLIP or is_symbolic(slices[d]):
            column = jnp.clip(column, 0, most)
        index = index.at[..., at].set(column)
    return x, index


_NEUTRAL = {
    "scatter-add": lambda dtype: 0,
    "scatter-sub": lambda dtype: 0,
    "scatter-mul": lambda dtype: 1,
    "scatter-min": greatest,
    "scatter-max": least,
}


@rule("scatter", *_NEUTRAL)
def scatter(frame, eqn, operands):
    """Updates that are not real change nothing."""
    value, indices, updates = operands
    numbers, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    shape, update_shape = shape_of(eqn.invars[0]), shape_of(eqn.invars[2])
    windows = iter(numbers.update_window_dims)
    skipped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    slices: list[Any] = [1] * len(shape)
    layouts: list[Layout] = list(value.layouts)
    for d in range(len(shape)):
        if d in numbers.operand_batching_dims:
            slices[d] = shape[d]
        if d not in skipped:
            at = next(windows)
            slices[d] = update_shape[at]
            layouts[d] = joined([value.layouts[d], updates.layouts[at]], "scatter")
        if layouts[d] is not None and not _same(slices[d], shape[d]):
            layouts[d] = (shape[d],)
    mapped = numbers.scatter_dims_to_operand_dims
    x, index = _limited(frame, eqn, value, indices.x, shape, slices, mapped)
    if x is not value.x:
        raise refusal(eqn, "what is put in has a size that depends on a name")
    rows = [d for d in range(len(update_shape)) if d not in numbers.update_window_dims]
    new = updates.x
    if any(updates.layouts[d] is not None for d in rows):
        if eqn.primitive.name in _NEUTRAL:
            fill = _NEUTRAL[eqn.primitive.name](new.dtype)
            new = mask(frame, updates, update_shape, fill, rows)
        else:
            index = _dropped(frame, eqn, indices, index, mode)
    return plain(frame, eqn, [value.x, index, new], layouts)


def _dropped(frame: Frame, eqn, indices: Padded, index: Any, mode) -> Any:
    """Put the indices that are not real out of range, where they are dropped."""
    if mode == _MODES.CLIP:
        raise refusal(eqn, "indices that are not real would be clipped to real ones")
    shape = shape_of(eqn.invars[1])
    outside = int(jnp.iinfo(index.dtype).max)
    return mask(
        frame, Padded(index, indices.layouts), shape, outside, range(len(shape))
    )
