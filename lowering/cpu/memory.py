"""Rules of the operations that read and write references."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import View, load, store
from tilejax.lowering.cpu.picked import Picked
from tilejax.lowering.cpu.shaping import part_of
from tilejax.lowering.cpu.strides import reshaped_strides
from tilejax.lowering.cpu.tiles import Load, Scalar, Tile
from tilejax.lowering.cpu.types import Elt, dtype_name
from tilejax.lowering.cpu.write import best_lane
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.build import indexed_shape
from tilejax.lowering.tile.program import Op, Span, Value

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def part(e: "Emitter", view: View, index: Sequence) -> View:
    """Return the part of a view that an index of spans and scalars names."""
    starts, shape, strides, limits = [], [], [], []
    n_starts = [
        e.index(entry.start if isinstance(entry, Span) else entry) for entry in index
    ]

    def emit(n):
        for entry, start, stride, limit in zip(
            index, n_starts, view.strides, view.limits, strict=True
        ):
            starts.append((start, False))
            if not isinstance(entry, Span):
                continue
            shape.append(entry.size)
            strides.append(stride * entry.stride)
            limits.append(_left(n, limit, start, entry.stride))
        return view.address(n, view.offset(n, starts))

    whole = all(
        isinstance(entry, Span) and entry.start == 0 and entry.stride == 1
        and entry.size == size
        for entry, size in zip(index, view.shape, strict=True)
    )  # fmt: skip
    if whole:
        return view
    pointer = e.straight(emit)
    return part_of(view, pointer, shape, strides, limits)


def _left(n, limit, start, stride: int):
    """How many elements from a start on are inside of the array."""
    if limit is None:
        return None
    rest = n.add_index(limit, n.mul_index(start, -1))
    if stride == 1 or isinstance(rest, int):
        return -(-rest // stride) if isinstance(rest, int) else rest
    room = n.add_index(rest, stride - 1)
    return n.emit(f"sdiv i64 {room}, {stride}", room)


def _is_array(entry) -> bool:
    return isinstance(entry, Value) and bool(entry.shape)


def _access(e: "Emitter", op: Op, mask, other) -> Load | Picked:
    return access(e, e.view(op.inputs[0]), op.params["index"], mask, other)


def access(e: "Emitter", view: View, index: Sequence, mask, other) -> Load | Picked:
    """Return the read, or the place to write to, of an index into a view."""
    mask, other = (None if x is None else e.tile(x) for x in (mask, other))
    if not any(map(_is_array, index)):
        return Load(part(e, view, index), mask, other)
    shape = indexed_shape(index)
    lead = len(shape) - sum(isinstance(entry, Span) for entry in index)
    entries, dim = [], lead
    for entry in index:
        if isinstance(entry, Span):
            entries.append((e.index(entry.start), dim, entry.stride))
            dim += 1
        elif isinstance(entry, Value):
            entries.append(e.tile(entry))
        else:
            entries.append(Scalar(Elt(str(entry), "int32")))
    return Picked(view, entries, shape[:lead], shape, mask, other)


@_rule("load")
def _load(e: "Emitter", op: Op) -> Sequence[Tile]:
    found = _access(e, op, op.inputs[1], op.inputs[2])
    return [found if op.outputs[0].shape else e.number(found)]


@_rule("store")
def _store(e: "Emitter", op: Op) -> Sequence[Tile]:
    value, mask = e.tile(op.inputs[1]), op.inputs[2]
    target = _access(e, op, mask, None)
    if isinstance(target, Picked):
        put_picked(e, target, value)
    else:
        e.put(target.view, value, target.mask)
    return []


def put_picked(e: "Emitter", target: Picked, value: Tile) -> None:
    """Write a tile to elements at arrays of indices."""
    value = e.without_dots(value)
    if target.source.storage in value.reads:
        value = e.keep(value)
    if target.source.storage in target.reads_of_indices():
        target = target.with_kept(e.keep)
    read = [target.index_lanes(), value.lanes, *[m.lanes for m in [target.mask] if m]]
    lanes = [min(column) for column in zip(*read, strict=True)]
    e.each(
        target.shape,
        best_lane(lanes, target.shape, ()),
        lambda n, places, tail: target.put(n, places, value.at(n, places, tail), tail),
    )


@_rule("view")
def _view(e: "Emitter", op: Op) -> Sequence[View]:
    ref, (out,), p = op.inputs[0], op.outputs, op.params
    view = e.view(ref)
    if "index" in p:
        return [part(e, view, p["index"])]
    if "transpose" in p:
        shape, strides, limits = (
            [x[d] for d in p["transpose"]]
            for x in (view.shape, view.strides, view.limits)
        )
        return [part_of(view, view.pointer, shape, strides, limits)]
    if "bitcast" in p:
        return [replace(view, dtype=dtype_name(out.dtype))]
    strides = None if view.is_ragged else reshaped_strides(view, out.shape)
    if strides is None:
        raise e.refuse("a reshape of a reference whose rows are apart")
    return [part_of(view, view.pointer, out.shape, strides)]


@_rule("allocate")
def _allocate(e: "Emitter", op: Op) -> Sequence[View]:
    (ref,) = op.outputs
    return [scratch(e, ref)]


def scratch(e: "Emitter", ref) -> View:
    """Reserve the memory of a reference; a semaphore is a counter that starts at 0."""
    view = e.arena.tile(ref.shape, dtype_name(ref.dtype), dense=True)
    return view


@_rule("transfer")
def _transfer(e: "Emitter", op: Op) -> Sequence[Tile]:
    source, target = (e.view(x) for x in op.inputs)
    e.put(target, Load(source))
    return []


def _add_to_semaphore(e: "Emitter", op: Op, sign: int) -> Sequence[Tile]:
    view, amount = e.view(op.inputs[0]), e.scalar(op.inputs[1])
    places = [(0, False)] * len(view.shape)

    def emit(n):
        instruction = "add" if sign > 0 else "sub"
        store(n, view, places, n.binary(instruction, load(n, view, places), amount))

    e.straight(emit)
    return []


@_rule("signal")
def _signal(e: "Emitter", op: Op) -> Sequence[Tile]:
    return _add_to_semaphore(e, op, 1)


@_rule("wait")
def _wait(e: "Emitter", op: Op) -> Sequence[Tile]:
    """Steps run one after the other, so what is waited for has happened."""
    return _add_to_semaphore(e, op, -1)
