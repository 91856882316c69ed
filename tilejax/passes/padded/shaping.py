"""Equations that rearrange axes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax._jax.symbolic import is_symbolic
from tilejax.passes.padded.axes import UNIFORM, Layout, Padded, joined, mask, prefix
from tilejax.passes.padded.run import plain, refusal, rule, shape_of


@rule("transpose", takes_uniform=True)
def transpose(frame, eqn, operands):
    """Layouts go with their axes."""
    (value,) = operands
    layouts = [value.layouts[d] for d in eqn.params["permutation"]]
    return plain(frame, eqn, [value.x], layouts)


@rule("squeeze", takes_uniform=True)
def squeeze(frame, eqn, operands):
    """An axis of size 1 has no name in it."""
    (value,), gone = operands, eqn.params["dimensions"]
    layouts = [x for d, x in enumerate(value.layouts) if d not in gone]
    return plain(frame, eqn, [value.x], layouts)


@rule("expand_dims", takes_uniform=True)
def expand_dims(frame, eqn, operands):
    """New axes have size 1."""
    (value,), new = operands, eqn.params["dimensions"]
    there = iter(value.layouts)
    count = len(shape_of(eqn.outvars[0]))
    layouts = [None if d in new else next(there) for d in range(count)]
    return plain(frame, eqn, [value.x], layouts)


@rule("reshape")
def reshape(frame, eqn, operands):
    """Factors of sizes stay in their order; axes are other groups of them."""
    value = operands[0]
    shape, new = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    layouts = regrouped(shape, value.layouts, new)
    if layouts is None:
        raise refusal(eqn, f"elements of shape {new} would not be beside each other")
    out = jax.lax.reshape(value.x, frame.static(new))
    return [Padded(out, tuple(layouts))]


def regrouped(shape: tuple, layouts: tuple, new: tuple) -> list[Layout] | None:
    """Return the layouts after a reshape; None where that cannot be said.

    >>> from tilejax._jax.symbolic import symbols
    >>> n = symbols(["n"])["n"]
    >>> regrouped((n, 8), ((n,), None), (8 * n,))
    [(8*n,)]
    >>> regrouped((8, n), (None, (n,)), (8 * n,))
    [(8, n)]
    """
    left: list = []
    for size, layout in zip(shape, layouts, strict=True):
        left += layout if isinstance(layout, tuple) else [size]
    left = [size for size in left if not _is(size, 1)]
    found: list[Layout] = []
    for at, size in enumerate(new):
        taken = _take(left, size, new[at + 1 :])
        if taken is None:
            return None
        found.append(_layout(taken, size))
    return found if not left else None


def _take(left: list, size: Any, rest: tuple) -> list | None:
    """Take the factors whose product is a size, splitting one if need be."""
    taken: list = []
    total: Any = 1
    while not _is(total, size):
        if not left:
            return None
        factor = left.pop(0)
        if _is(total * factor, size) or _divides(total * factor, size):
            taken.append(factor)
            total = total * factor
            continue
        wanted = _quotient(size, total)
        inner = None if wanted is None else _quotient(factor, wanted)
        # of a symbolic factor only whole multiples of an outer part can be split off
        if inner is None or (is_symbolic(factor) and not isinstance(inner, int)):
            return None
        if is_symbolic(factor) and not is_symbolic(wanted):
            return None
        taken.append(wanted)
        left.insert(0, inner)
        total = size
    return taken


def _is(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except jax.errors.InconclusiveDimensionOperation:
        return False


def _quotient(a: Any, b: Any) -> Any:
    """Return a / b if that is whole for all sizes."""
    if not is_symbolic(a) and is_symbolic(b):
        return None
    if not is_symbolic(a):
        return a // b if b and a % b == 0 else None
    found = a // b
    return found if _is(found * b, a) else None


def _divides(a: Any, b: Any) -> bool:
    return _quotient(b, a) is not None


def _layout(factors: list, size: Any) -> Layout:
    if not any(map(is_symbolic, factors)):
        return None
    if not any(map(is_symbolic, factors[1:])):
        return (size,)
    return tuple(factors)


@rule("slice", crosses=True)
def cut(frame, eqn, operands):
    """From a fixed start, or from one that depends on a size."""
    (value,) = operands
    shape, (out,) = shape_of(eqn.invars[0]), eqn.outvars
    start, limit = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(shape)
    layouts: list[Layout] = []
    x = value.x
    for d, new in enumerate(shape_of(out)):
        layout, size = value.layouts[d], shape[d]
        if layout is None or (_is(start[d], 0) and _is(new, size)):
            last = frame.padded(limit[d])
            x = jax.lax.slice_in_dim(x, start[d], last, strides[d], d)
            layouts.append(layout)
        elif not prefix(layout, size):
            raise refusal(eqn, f"axis {d} is not one of real elements in front")
        elif is_symbolic(start[d]):
            if strides[d] != 1:
                raise refusal(eqn, f"the slice of axis {d} starts at {start[d]}")
            x = _from(frame, x, frame.real(start[d]), new, d)
            layouts.append((new,) if is_symbolic(new) else None)
        else:
            last = min(frame.padded(limit[d]), x.shape[d])
            x = jax.lax.slice_in_dim(x, start[d], last, strides[d], d)
            layouts.append((new,) if is_symbolic(new) else None)
    return [Padded(x, tuple(layouts))]


def _from(frame, x: Any, start: Any, size: Any, axis: int) -> Any:
    """Slice from a traced start, with room behind so that it is not clamped."""
    count = frame.padded(size)
    if is_symbolic(size):
        room = jnp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
        x = jnp.concatenate([x, room], axis)
    return jax.lax.dynamic_slice_in_dim(x, start, count, axis)


@rule("concatenate", crosses=True)
def concatenate(frame, eqn, operands):
    """Each array is put where the real elements of the one before it end."""
    along, (out,) = eqn.params["dimension"], eqn.outvars
    shape = shape_of(out)
    layouts = [
        _joined_axis(eqn, operands, d) if d != along else None
        for d in range(len(shape))
    ]
    sizes = [shape_of(v)[along] for v in eqn.invars]
    if not is_symbolic(shape[along]):
        return plain(frame, eqn, [each.x for each in operands], layouts)
    for each, size in zip(operands, sizes, strict=True):
        if not prefix(each.layouts[along], size):
            raise refusal(eqn, "one of the arrays has no real elements in front")
    layouts[along] = (shape[along],)
    total = jnp.zeros(frame.static(shape), out.aval.dtype)
    end: Any = 0
    for each, size in zip(operands, sizes, strict=True):
        start = jnp.asarray(frame.real(end), "int32")
        total = jax.lax.dynamic_update_slice_in_dim(total, each.x, start, along)
        end = end + size
    return [Padded(total, tuple(layouts))]


def _joined_axis(eqn, operands, d: int) -> Layout:
    return joined([each.layouts[d] for each in operands], eqn.primitive.name)


@rule("pad", crosses=True)
def pad(frame, eqn, operands):
    """What comes behind real elements is written over those that are not."""
    value, fill = operands
    shape, (out,) = shape_of(eqn.invars[0]), eqn.outvars
    config = eqn.params["padding_config"]
    behind = []
    for d, (low, high, inner) in enumerate(config):
        if value.layouts[d] is None or (_is(low, 0) and _is(high, 0) and inner == 0):
            continue
        if is_symbolic(low) or not prefix(value.layouts[d], shape[d]):
            raise refusal(eqn, f"axis {d} has no real elements in front")
        behind.append(d)
    layouts = tuple(
        value.layouts[d] if d not in behind else (size,) if is_symbolic(size) else None
        for d, size in enumerate(shape_of(out))
    )
    if not value.axes:
        return plain(frame, eqn, [value.x, fill.x], layouts)
    # What it is padded with goes where a result is real, and is no element of x: in
    # reverse, its gradient then comes from there alone.
    zero = jnp.zeros((), value.x.dtype)
    is_x = Padded(jnp.ones(value.x.shape, bool), value.layouts)
    is_x = mask(frame, is_x, shape, False, behind)
    config = frame.static(config)
    moved = jax.lax.pad(mask(frame, value, shape, 0, behind), zero, config)
    is_fill = Padded(~jax.lax.pad(is_x, np.array(False), config), layouts)
    is_fill = mask(frame, is_fill, shape_of(out), False, is_fill.axes)
    return [Padded(jnp.where(is_fill, fill.x, moved), layouts)]


@rule("rev")
def reverse(frame, eqn, operands):
    """The real elements end up last; they are rolled to the front."""
    (value,), shape = operands, shape_of(eqn.invars[0])
    (out,) = plain(frame, eqn, [value.x], value.layouts)
    for d in eqn.params["dimensions"]:
        if value.layouts[d] in (None, UNIFORM):
            continue
        if not prefix(value.layouts[d], shape[d]):
            raise refusal(eqn, f"axis {d} has no real elements in front")
        shift = frame.real(shape[d]) - frame.padded(shape[d])
        out = Padded(jnp.roll(out.x, shift, d), out.layouts)
    return [out]


@rule("split")
def split(frame, eqn, operands):
    """Only axes without padding are split."""
    (value,), along = operands, eqn.params["axis"]
    if value.layouts[along] is not None:
        raise refusal(eqn, f"axis {along} is split at sizes that depend on a name")
    outs = plain(frame, eqn, [value.x])
    return [Padded(out.x, value.layouts) for out in outs]


@rule("dynamic_slice", crosses=True)
def dynamic_slice(frame, eqn, operands):
    """A start is clamped to where the real elements leave room."""
    value, *starts = operands
    shape, new = shape_of(eqn.invars[0]), eqn.params["slice_sizes"]
    found, layouts, x = [], [], value.x
    for d, (start, size) in enumerate(zip(starts, new, strict=True)):
        layout = value.layouts[d]
        if layout is None or _is(size, shape[d]):
            found.append(start.x)
            layouts.append(layout)
            continue
        if not prefix(layout, shape[d]):
            raise refusal(eqn, f"axis {d} is not one of real elements in front")
        at = _clamped(frame, start.x, shape[d], size)
        x = _from(frame, x, at, size, d)
        found.append(jnp.zeros_like(start.x))
        layouts.append((size,) if is_symbolic(size) else None)
    return plain(frame, eqn, [x, *found], layouts)


@rule("dynamic_update_slice", crosses=True)
def dynamic_update_slice(frame, eqn, operands):
    """As a dynamic slice; what is put in is put in whole."""
    value, update, *starts = operands
    shape, new = shape_of(eqn.invars[0]), shape_of(eqn.invars[1])
    found, layouts = [], []
    for d, (start, size) in enumerate(zip(starts, new, strict=True)):
        layout = value.layouts[d]
        if _is(size, shape[d]):
            found.append(start.x)
            layouts.append(_joined_axis(eqn, operands[:2], d))
            continue
        if is_symbolic(size) or not prefix(layout, shape[d]):
            raise refusal(eqn, f"what is put in along axis {d} has size {size}")
        is_padded = layout is not None
        at = _clamped(frame, start.x, shape[d], size) if is_padded else start.x
        found.append(at)
        layouts.append((shape[d],) if is_padded else None)
    return plain(frame, eqn, [value.x, update.x, *found], layouts)


def _clamped(frame, start: Any, size: Any, length: Any) -> Any:
    most = jnp.asarray(frame.real(size - length), jnp.result_type(start))
    return jnp.clip(start, 0, most)
