"""Rules of gathers and scatters: windows of an array at arrays of places."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tilejax.lowering.tile.build import Builder, indexed_shape
from tilejax.lowering.tile.program import Span, Value
from tilejax.lowering.tile.through import inverse, transposed, values_in

RULES: dict[str, Callable] = {}


@dataclass(frozen=True)
class _Windows:
    """Where the windows are.

    **Arguments:**

    - `entries`: an index of the whole array, for `pick` and `put`.
    - `order`: where those operations' dimensions are among the user's, that are more
      than one element wide.
    - `inside`: for each window whether all of it is in the array; None for certainly.
    """

    entries: tuple
    order: tuple[int, ...]
    inside: Value | None


def _component(b: Builder, places: Value, k: int) -> Value:
    """The k-th number of each place."""
    batch = places.shape[:-1]
    starts = (*[0] * len(batch), k)
    strides = (1,) * len(places.shape)
    part = b.value(
        "slice", [places], (*batch, 1), places.dtype, starts=starts, strides=strides
    )
    return b.reshape(part, batch)


def _windows(
    b: Builder,
    shape: Sequence[int],
    sizes: Sequence[int],
    places: Value,
    *,
    start_map: Sequence[int],
    hidden: Sequence[int],
    batching: Sequence[tuple[int, int]],
    window_dims: Sequence[int],
    clamped: bool,
) -> _Windows:
    """Work out where windows are.

    **Arguments:**

    - `shape`, `sizes`: of the array and of a window.
    - `places`: [batch..., numbers]; number k is the start along dimension
      `start_map[k]`.
    - `hidden`: dimensions of the array without a dimension of the window.
    - `batching`: pairs of an array's dimension and the batch's that it goes along with.
    - `window_dims`: the user's dimensions that run along windows.
    - `clamped`: whether windows are moved inside of the array.
    """
    batch, rank = places.shape[:-1], len(places.shape) - 1
    if places.dtype.itemsize < 4 or places.dtype.kind == "u":
        places = b.convert(places, np.int32)
    starts = {d: _component(b, places, k) for k, d in enumerate(start_map)}
    checks = []
    for d, start in starts.items():
        zero = _constant(b, 0, start)
        room = _constant(b, shape[d] - sizes[d], start)
        if clamped:
            high = b.binary("min", start, room)
            starts[d] = b.binary("max", high, zero)
        else:
            checks.append(b.binary("ge", start, zero, np.bool_))
            checks.append(b.binary("le", start, room, np.bool_))
    along = dict(batching)
    shown = [d for d in range(len(shape)) if d not in hidden]
    users_dim = dict(zip(shown, sorted(window_dims), strict=True))
    # windows that are more than one element wide along what batches move them along
    wide = [d for d in shown if d in starts and sizes[d] != 1 and batch]
    lead = (*batch, *[sizes[d] for d in wide])
    entries, labels = [], []
    for d in range(len(shape)):
        if d in along:
            dtype = starts[start_map[0]].dtype if starts else np.dtype(np.int32)
            entries.append(_counted(b, lead, along[d], dtype))
        elif d not in starts:
            entries.append(Span(0, sizes[d]))
            labels.append(users_dim[d] if d in users_dim else None)
        elif not batch and d in users_dim:
            entries.append(Span(starts[d], sizes[d]))
            labels.append(users_dim[d])
        else:
            entry = _stretched(b, starts[d], lead, rank)
            if d in wide:
                steps = _counted(b, lead, rank + wide.index(d), entry.dtype)
                entry = b.binary("add", entry, steps)
            entries.append(entry)
    total = rank + len(window_dims)
    batch_dims = [d for d in range(total) if d not in window_dims]
    own = [*batch_dims, *[users_dim[d] for d in wide], *labels]
    order = tuple(own.index(d) for d in sorted(x for x in own if x is not None))
    inside = reduce(lambda x, y: b.binary("and", x, y), checks) if checks else None
    if inside is not None:
        inside = _stretched(b, inside, indexed_shape(entries), rank)
    return _Windows(tuple(entries), order, inside)


def _constant(b: Builder, number: int, like: Value) -> Value:
    return b.broadcast(b.constant(number, like.dtype), like.shape)


def _counted(b: Builder, shape: Sequence[int], dimension: int, dtype) -> Value:
    return b.value("iota", (), shape, dtype, dimension=dimension)


def _stretched(b: Builder, x: Value, shape: Sequence[int], rank: int) -> Value:
    """Repeat a value of the batch along the dimensions after the batch."""
    return b.broadcast(x, shape, tuple(range(rank)))


def _mode(eqn) -> str:
    return str(getattr(eqn.params["mode"], "name", eqn.params["mode"]) or "CLIP")


def _gather(b: Builder, eqn, inputs):
    (x, places), p, aval = inputs, eqn.params, eqn.outvars[0].aval
    numbers = p["dimension_numbers"]
    pairs = zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    )
    is_filled = _mode(eqn) == "FILL_OR_DROP"
    at = _windows(
        b,
        x.shape,
        p["slice_sizes"],
        places,
        start_map=numbers.start_index_map,
        hidden=(*numbers.collapsed_slice_dims, *numbers.operand_batching_dims),
        batching=tuple(pairs),
        window_dims=numbers.offset_dims,
        clamped=not is_filled,
    )
    found = _pick(b, x, at, p["fill_value"])
    return b.reshape(transposed(b, found, at.order), aval.shape)


def _pick(b: Builder, x: Value, at: _Windows, filling) -> Value:
    shape, other = indexed_shape(at.entries), None
    if at.inside is not None:
        if filling is None:
            filling = _filling(x.dtype)
        other = b.broadcast(b.constant(filling, x.dtype), shape)
    inputs = [x, at.inside, other, *values_in(at.entries)]
    return b.value("pick", inputs, shape, x.dtype, index=at.entries)


def _filling(dtype: np.dtype):
    """What JAX gives outside of an array."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if dtype.kind == "i" else limits.max
    return True if dtype.kind == "b" else np.nan


def _scattering(op: str | None) -> Callable:
    def rule(b: Builder, eqn, inputs):
        (x, places, updates), p = inputs, eqn.params
        numbers = p["dimension_numbers"]
        batching = numbers.operand_batching_dims
        pairs = zip(batching, numbers.scatter_indices_batching_dims, strict=True)
        hidden = (*numbers.inserted_window_dims, *batching)
        shown = [d for d in range(len(x.shape)) if d not in hidden]
        dims = numbers.update_window_dims
        sizes = [1] * len(x.shape)
        for d, theirs in zip(shown, sorted(dims), strict=True):
            sizes[d] = updates.shape[theirs]
        at = _windows(
            b,
            x.shape,
            sizes,
            places,
            start_map=numbers.scatter_dims_to_operand_dims,
            hidden=hidden,
            batching=tuple(pairs),
            window_dims=dims,
            clamped=_mode(eqn) == "CLIP",
        )
        shape = indexed_shape(at.entries)
        updates = b.reshape(updates, [shape[d] for d in at.order])
        updates = transposed(b, updates, inverse(at.order))
        inputs = [x, updates, at.inside, *values_in(at.entries)]
        return b.value("put", inputs, x.shape, x.dtype, index=at.entries, op=op)

    return rule


RULES["gather"] = _gather
for _name, _op in (
    ("scatter", None),
    ("scatter-add", "add"),
    ("scatter_add", "add"),
    ("scatter_mul", "mul"),
    ("scatter-mul", "mul"),
    ("scatter_min", "min"),
    ("scatter-min", "min"),
    ("scatter_max", "max"),
    ("scatter-max", "max"),
    ("scatter_sub", "sub"),
    ("scatter-sub", "sub"),
):
    RULES[_name] = _scattering(_op)
