"""Rules of loops, choices and the place in the grid."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import View, load, store
from tilejax.lowering.cpu.tiles import Load, Scalar, Tile
from tilejax.lowering.cpu.types import Elt, dtype_name
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.program import Op, Value

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


@_rule("program_id")
def _program_id(e: "Emitter", op: Op) -> Sequence[Tile]:
    return [Scalar(e.ids[op.params["axis"]])]


@_rule("num_programs")
def _num_programs(e: "Emitter", op: Op) -> Sequence[Tile]:
    return [Scalar(e.sizes[op.params["axis"]])]


def _slot(e: "Emitter", value: Value) -> View:
    """Memory for a value that control flow carries."""
    return e.arena.tile(value.shape, dtype_name(value.dtype))


def _read(e: "Emitter", slot: View) -> Tile:
    if slot.shape:
        return Load(slot)
    return Scalar(e.straight(lambda n: load(n, slot, ())))


def _assign(e: "Emitter", slot: View, tile: Tile) -> None:
    if isinstance(tile, Load) and tile.is_plain and tile.view.is_same_memory(slot):
        return
    e.put(slot, tile)


def _assign_all(e: "Emitter", slots: Sequence[View], tiles: Sequence[Tile]) -> None:
    """Assign all at once: no tile reads what another one's slot has become.

    Numbers are in registers already. A tile goes first if no other still reads its
    slot; where all are read, one that reads it is kept aside.
    """
    left = {i: tile for i, tile in enumerate(tiles) if slots[i].shape}
    while left:
        free = [
            i
            for i in left
            if not any(slots[i].storage in t.reads for j, t in left.items() if j != i)
        ]
        at = free[0] if free else next(iter(left))
        for j, tile in left.items():
            if j != at and slots[at].storage in tile.reads:
                left[j] = e.keep(e.without_dots(tile))
        _assign(e, slots[at], left.pop(at))
    for slot, tile in zip(slots, tiles, strict=True):
        if not slot.shape:
            e.straight(lambda n, s=slot, t=tile: store(n, s, (), t.at(n, ())))


@_rule("switch")
def _switch(e: "Emitter", op: Op) -> Sequence[Tile]:
    which, f = e.scalar(op.inputs[0]), e.function
    slots = [_slot(e, out) for out in op.outputs]
    labels, end = [f.label() for _ in op.blocks], f.label()
    # a number below zero takes the first body, one too large the last
    cases = " ".join(f"i32 {i}, label %{x}" for i, x in enumerate(labels[:-1]))
    low, safe = f.name(), f.name()
    for name in ("smax", "smin"):
        f.module.declare(f"declare i32 @llvm.{name}.i32(i32, i32)")
    f.line(f"{low} = call i32 @llvm.smax.i32(i32 {which.text}, i32 0)")
    last = len(labels) - 1
    f.line(f"{safe} = call i32 @llvm.smin.i32(i32 {low}, i32 {last})")
    f.line(f"switch i32 {safe}, label %{labels[-1]} [{cases}]")
    for block, label in zip(op.blocks, labels, strict=True):
        f.line(f"{label}:")
        with e.arena.scope():
            _assign_all(e, slots, e.run(block))
        f.line(f"br label %{end}")
    f.line(f"{end}:")
    return [_read(e, slot) for slot in slots]


def _start(e: "Emitter", op: Op) -> list[View]:
    slots = [_slot(e, out) for out in op.outputs]
    for slot, x in zip(slots, op.inputs, strict=True):
        _assign(e, slot, e.tile(x))
    return slots


def _bind(e: "Emitter", carries: Sequence[Value], slots: Sequence[View]) -> None:
    for value, slot in zip(carries, slots, strict=True):
        e.bind(value, _read(e, slot))


@_rule("for")
def _for(e: "Emitter", op: Op) -> Sequence[Tile]:
    (block,), p = op.blocks, op.params
    if p["length"] == 0:
        return [e.tile(x) for x in op.inputs]
    slots = _start(e, op)
    with e.function.loop(p["length"]) as step, e.arena.scope():
        counter, *carries = block.inputs
        at = step
        if p["reverse"]:
            last = p["length"] - 1
            at = e.straight(lambda n: n.emit(f"sub i64 {last}, {step}", step))
        number = e.straight(lambda n: n.as_element(at, dtype_name(counter.dtype)))
        e.bind(counter, Scalar(number))
        _bind(e, carries, slots)
        _assign_all(e, slots, e.run(block))
    return [_read(e, slot) for slot in slots]


@_rule("while")
def _while(e: "Emitter", op: Op) -> Sequence[Tile]:
    condition, body = op.blocks
    slots, f = _start(e, op), e.function
    head, inside, end = f.label(), f.label(), f.label()
    f.place(head)
    with e.arena.scope():
        _bind(e, condition.inputs, slots)
        (goes_on,) = e.run(condition)
        bit: Elt = e.straight(lambda n: goes_on.at(n, ()))
        f.line(f"br i1 {bit.text}, label %{inside}, label %{end}")
        f.line(f"{inside}:")
        _bind(e, body.inputs, slots)
        _assign_all(e, slots, e.run(body))
    f.line(f"br label %{head}")
    f.line(f"{end}:")
    return [_read(e, slot) for slot in slots]
