"""Rules of the operations that move elements without computing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tilejax.lowering.cpu.access import View, dense_strides
from tilejax.lowering.cpu.strides import reshaped_strides
from tilejax.lowering.cpu.tiles import (
    Iota,
    Load,
    Scalar,
    Stretched,
    Tile,
    permuted,
    reshaped,
    sliced,
    with_units,
)
from tilejax.lowering.cpu.types import constant, dtype_name
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def part_of(view: View, pointer: str, shape, strides, limits=None) -> View:
    """Return a view of other elements of the same memory."""
    return replace(
        view,
        pointer=pointer,
        shape=tuple(shape),
        strides=tuple(strides),
        limits=tuple(limits or (None,) * len(shape)),
        padded=False,
    )


def _is_uniform(value: np.ndarray) -> bool:
    """Whether all elements are the same, bit by bit: zeros may have two signs."""
    rows = np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8)
    return bool((rows == rows[:1]).all())


@_rule("constant")
def _constant(e: "Emitter", op: Op) -> Sequence[Tile]:
    value = op.params["value"]
    dtype = dtype_name(value.dtype)
    if _is_uniform(value):
        number = value.flat[0].item() if value.size else 0
        scalar = Scalar(constant(number, dtype))
        return [Stretched(scalar, (), value.shape) if value.shape else scalar]
    pointer = e.function.module.constant(np.ascontiguousarray(value).tobytes())
    strides, limits = dense_strides(value.shape), (None,) * len(value.shape)
    view = View(pointer, dtype, value.shape, strides, e.arena.storage(), limits)
    return [Load(view)]


@_rule("iota")
def _iota(e: "Emitter", op: Op) -> Sequence[Tile]:
    (out,) = op.outputs
    return [Iota(out.shape, dtype_name(out.dtype), op.params["dimension"])]


@_rule("broadcast")
def _broadcast(e: "Emitter", op: Op) -> Sequence[Tile]:
    arg, (out,) = e.tile(op.inputs[0]), op.outputs
    return [Stretched(arg, op.params["dims"], out.shape)]


@_rule("transpose")
def _transpose(e: "Emitter", op: Op) -> Sequence[Tile]:
    arg, order = e.tile(op.inputs[0]), op.params["permutation"]
    if isinstance(arg, Load) and arg.mask is None:
        v = arg.view
        shape, strides, limits = (
            [x[d] for d in order] for x in (v.shape, v.strides, v.limits)
        )
        return [Load(part_of(v, v.pointer, shape, strides, limits))]
    return [permuted(arg, order)]


@_rule("reshape")
def _reshape(e: "Emitter", op: Op) -> Sequence[Tile]:
    arg, (out,) = e.tile(op.inputs[0]), op.outputs
    wide = [[n for n in shape if n != 1] for shape in (arg.shape, out.shape)]
    if not out.shape:
        return [e.number(arg)]
    if wide[0] == wide[1]:
        return [with_units(arg, out.shape)]
    if isinstance(arg, Load) and arg.is_plain:
        strides = reshaped_strides(arg.view, out.shape)
        if strides is not None:
            view = arg.view
            return [Load(part_of(view, view.pointer, out.shape, strides))]
    return [reshaped(arg, out.shape, e.lanes)]


@_rule("reinterpret")
def _reinterpret(e: "Emitter", op: Op) -> Sequence[Tile]:
    (out,) = op.outputs
    view = e.keep(e.without_dots(e.tile(op.inputs[0])), dense=True).view
    view = replace(view, dtype=dtype_name(out.dtype))
    found = Load(part_of(view, view.pointer, out.shape, dense_strides(out.shape)))
    return [found if out.shape else e.number(found)]


@_rule("slice")
def _slice(e: "Emitter", op: Op) -> Sequence[Tile]:
    arg, (out,) = e.tile(op.inputs[0]), op.outputs
    return [_cut(e, arg, op.params["starts"], op.params["strides"], out.shape)]


@_rule("dynamic_slice")
def _dynamic_slice(e: "Emitter", op: Op) -> Sequence[Tile]:
    arg, (out,) = e.tile(op.inputs[0]), op.outputs
    starts = clamped(e, op.inputs[1:], arg.shape, out.shape)
    return [_cut(e, arg, starts, (1,) * len(out.shape), out.shape)]


def clamped(e: "Emitter", starts, sizes, wanted) -> list:
    """The starts of a window, moved so that all of it is inside."""
    found = []
    for value, size, want in zip(starts, sizes, wanted, strict=True):
        start = e.index(value)
        if isinstance(start, int):
            found.append(min(max(start, 0), size - want))
            continue

        def emit(n, start=start, room=size - want):
            low = n.emit(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)", start)
            return n.emit(f"call i64 @llvm.smin.i64(i64 {low}, i64 {room})", low)

        for name in ("smax", "smin"):
            text = f"declare i64 @llvm.{name}.i64(i64, i64)"
            e.function.module.declare(text)
        found.append(e.straight(emit))
    return found


def _cut(e: "Emitter", arg: Tile, starts, strides, shape) -> Tile:
    if not (isinstance(arg, Load) and arg.is_plain):
        return sliced(arg, starts, strides, shape)
    return Load(window(e, arg.view, starts, strides, shape))


def window(e: "Emitter", view: View, starts, strides, shape) -> View:
    """Return the view of every `stride`-th element of a view from a start on."""

    def emit(n):
        at = [(start, False) for start in starts]
        return view.address(n, view.offset(n, at))

    steps = [a * b for a, b in zip(view.strides, strides, strict=True)]
    return part_of(view, e.straight(emit), shape, steps)


@_rule("concatenate")
def _concatenate(e: "Emitter", op: Op) -> Sequence[Tile]:
    (out,), axis = op.outputs, op.params["dimension"]
    whole = e.arena.tile(out.shape, dtype_name(out.dtype))
    start = 0
    for x in op.inputs:
        starts = [0] * len(out.shape)
        starts[axis] = start
        start += x.shape[axis]
        target = window(e, whole, starts, (1,) * len(out.shape), x.shape)
        e.put(target, e.tile(x))
    return [Load(whole)]


@_rule("pad")
def _pad(e: "Emitter", op: Op) -> Sequence[Tile]:
    """Fill, then put what is inside, every `interior + 1` elements."""
    (out,), p = op.outputs, op.params
    x, filling = (e.tile(v) for v in op.inputs)
    whole = e.arena.tile(out.shape, dtype_name(out.dtype))
    e.put(whole, Stretched(filling, (), out.shape))
    strides = [i + 1 for i in p["interior"]]
    starts, cut, shape = [], [], []
    for low, stride, size, room in zip(
        p["low"], strides, x.shape, out.shape, strict=True
    ):
        first = -(min(low, 0) // stride) if low < 0 else 0
        begin = low + first * stride
        count = max(0, min(size - first, -(-(room - begin) // stride)))
        starts.append(begin)
        cut.append(first)
        shape.append(count)
    if 0 not in shape:
        target = window(e, whole, starts, strides, shape)
        e.put(target, _cut(e, x, cut, (1,) * len(cut), shape))
    return [Load(whole)]


@_rule("reverse")
def _reverse(e: "Emitter", op: Op) -> Sequence[Tile]:
    dims = op.params["dimensions"]
    view = e.in_memory(e.tile(op.inputs[0])).view
    starts = [n - 1 if d in dims else 0 for d, n in enumerate(view.shape)]
    strides = [-1 if d in dims else 1 for d in range(len(view.shape))]
    return [Load(window(e, view, starts, strides, view.shape))]


@_rule("dynamic_update_slice")
def _dynamic_update_slice(e: "Emitter", op: Op) -> Sequence[Tile]:
    x, update = (e.tile(v) for v in op.inputs[:2])
    whole = e.keep(x).view
    starts = clamped(e, op.inputs[2:], x.shape, update.shape)
    target = window(e, whole, starts, (1,) * len(starts), update.shape)
    e.put(target, update)
    return [Load(whole)]
