"""Rules of reductions: accumulators in registers, vectors along the best dimension."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import Place, View, store
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.elementwise_combine import COMBINE, Combine
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.tiles import Load, Tile
from tilejax.lowering.cpu.types import (
    Elt,
    constant,
    dtype_name,
    is_float,
    itemsize,
    memory_type,
)
from tilejax.lowering.cpu.write import UNROLL, best_lane
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def _accumulator(name: str, dtype: str) -> str:
    """Sums of short floats are kept in float32, as XLA keeps them."""
    short = is_float(dtype) and itemsize(dtype) < 4
    return "float32" if short and name in ("sum", "prod", "logsumexp") else dtype


@dataclass
class _Slots:
    """Accumulators on the stack, which LLVM keeps in registers."""

    names: list[str]
    dtype: str
    vector: bool
    lanes: int

    @property
    def type(self) -> str:
        ty = memory_type(self.dtype)
        return f"<{self.lanes} x {ty}>" if self.vector else ty

    def read(self, n: Nest, name: str) -> Elt:
        ty = memory_type(self.dtype)
        text = n.define(f"load {self.type}, ptr {name}")
        if self.dtype != "bool":
            return Elt(text, self.dtype, self.vector)
        byte = Elt(text, "uint8", self.vector)
        assert ty == "i8"
        return n.compare("ne", byte, Elt("0", "uint8"))

    def write(self, n: Nest, name: str, e: Elt) -> None:
        if self.dtype == "bool":
            e = n.cast("zext", e, "uint8")
        text = n.vector(e) if self.vector else e.text
        n.do(f"store {self.type} {text}, ptr {name}")


def _slots(e: "Emitter", dtype: str, vector: bool, count: int, start: Elt) -> _Slots:
    ty = memory_type(dtype)
    whole = f"<{e.lanes} x {ty}>" if vector else ty
    names = [e.function.alloca(whole) for _ in range(count)]
    slots = _Slots(names, dtype, vector, e.lanes)

    def clear(n: Nest) -> None:
        for name in names:
            slots.write(n, name, start)

    e.straight(clear)
    return slots


@_rule("reduce")
def _reduce(e: "Emitter", op: Op) -> Sequence[Tile]:
    (value,), (out,), p = op.inputs, op.outputs, op.params
    tile = e.tile(value)
    dtype = dtype_name(out.dtype)
    combine = COMBINE[p["op"]]
    side = None
    if value in e.plan.by_reduction and not isinstance(tile, Load):
        side = e.arena.tile(tile.shape, tile.dtype)
    whole = e.arena.tile(out.shape, dtype)
    work = _Reduction(e, tile, p["axes"], combine, whole, side)
    work.emit()
    if side is not None:
        e.bind(value, Load(side))
    return [Load(whole) if out.shape else e.number(Load(whole))]


class _Reduction:
    """One reduction: its loops over what is kept, and inside over what is reduced."""

    def __init__(
        self,
        e: "Emitter",
        tile: Tile,
        axes: Sequence[int],
        combine: Combine,
        out: View,
        side: View | None,
    ):
        self.e, self.tile, self.combine, self.out, self.side = (
            e,
            tile,
            combine,
            out,
            side,
        )
        shape = tile.shape
        self.axes = [d for d in range(len(shape)) if d in axes]
        self.kept = [d for d in range(len(shape)) if d not in axes]
        self.dtype = _accumulator(combine.name, tile.dtype)
        strides = side.strides if side is not None else ()
        self.lane = best_lane(tile.lanes, shape, strides)
        self.start = combine.identity(self.dtype)

    def emit(self) -> None:
        if 0 in self.out.shape:
            return
        if self.lane in self.kept:
            self._along_kept()
        else:
            self._along_reduced()

    def _loops(self, stack: ExitStack, dims: Sequence[int]) -> dict[int, Place]:
        """Open a loop over each of the kept dimensions; return the places."""
        found = {}
        for d in dims:
            size = self.tile.shape[d]
            loop = self.e.function.loop(size)
            found[d] = (stack.enter_context(loop) if size != 1 else 0, False)
        return found

    def _step(self, n: Nest, slots: _Slots, name: str, places, tail) -> None:
        """Combine the element at the places with an accumulator."""
        e = self.tile.at(n, places, tail)
        if self.side is not None:
            store(n, self.side, places, e)
        e = OPS["convert_element_type"](n, [e], self.dtype)
        if tail is not None and self.lane not in self.kept:
            e = n.select(Elt(tail, "bool", True), e, self.start)
        old = slots.read(n, name)
        slots.write(n, name, self.combine(n, old, e))

    def _finish(self, n: Nest, e: Elt, places: dict[int, Place]) -> None:
        result = OPS["convert_element_type"](n, [e], self.out.dtype)
        store(n, self.out, [places[d] for d in self.kept], result)

    def _along_reduced(self) -> None:
        """Vectors run along what is reduced: one number is left of each."""
        e, shape = self.e, self.tile.shape
        vector = self.lane is not None
        wide = self.lane is not None and shape[self.lane] >= UNROLL * e.lanes
        with ExitStack() as stack:
            places = self._loops(stack, self.kept)
            slots = _slots(e, self.dtype, vector, UNROLL if wide else 1, self.start)
            turn = [0]

            def body(n: Nest, reduced, tail) -> None:
                full = dict(zip(self.axes, reduced, strict=True)) | places
                at = tuple(full[d] for d in range(len(shape)))
                name = slots.names[turn[0] % len(slots.names)]
                turn[0] += 1
                self._step(n, slots, name, at, tail)

            lane = None if self.lane is None else self.axes.index(self.lane)
            sizes = [shape[d] for d in self.axes]
            e.each(sizes, lane, body, unroll=len(slots.names))
            e.straight(lambda n: self._finish(n, self._total(n, slots), places))

    def _total(self, n: Nest, slots: _Slots) -> Elt:
        total = slots.read(n, slots.names[0])
        for name in slots.names[1:]:
            total = self.combine(n, total, slots.read(n, name))
        return across(n, self.combine, total) if slots.vector else total

    def _along_kept(self) -> None:
        """Vectors run along what is kept: a vector of numbers is left."""
        e, shape, lane = self.e, self.tile.shape, self.lane
        assert lane is not None
        full, rest = divmod(shape[lane], e.lanes)
        bits = ", ".join(f"i1 {int(i < rest)}" for i in range(e.lanes))
        parts: list[tuple] = [(full, 0, None)] if full else []
        if rest:
            parts.append((1, full * e.lanes, f"<{bits}>"))
        for trips, start, tail in parts:
            with ExitStack() as stack:
                places = self._loops(stack, [d for d in self.kept if d != lane])
                at = stack.enter_context(e.function.loop(trips)) if trips > 1 else 0
                first = e.straight(
                    lambda n, at=at, start=start: n.add_index(
                        n.mul_index(at, e.lanes), start
                    )
                )
                places[lane] = (first, True)
                self._one_vector(places, tail)

    def _one_vector(self, places: dict[int, Place], tail: str | None) -> None:
        e, shape = self.e, self.tile.shape
        slots = _slots(e, self.dtype, True, 1, self.start)
        n = Nest(e.function, [shape[d] for d in self.axes if shape[d] != 1])
        index = iter(n.index)
        inner = {d: (next(index) if shape[d] != 1 else 0, False) for d in self.axes}
        full = inner | places
        at = tuple(full[d] for d in range(len(shape)))
        if 0 not in [shape[d] for d in self.axes]:
            self._step(n, slots, slots.names[0], at, tail)
            n.flush()
        (name,) = slots.names
        e.straight(lambda n: self._finish(n, slots.read(n, name), places))


def across(n: Nest, combine: Combine, e: Elt) -> Elt:
    """Combine the lanes of a vector to one number, halving it."""
    ty, text = e.type, n.vector(e)
    whole = f"<{n.lanes} x {ty}>"
    total = Elt(text, e.dtype, True)
    half = n.lanes // 2
    while half:
        # nobody uses the other lanes; LLVM 22 finds a wrong sum if they are given
        picks = [str(i + half) if i < half else "poison" for i in range(n.lanes)]
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        right = (
            f"shufflevector {whole} {total.text}, {whole} poison, "
            f"<{n.lanes} x i32> <{mask}>"
        )
        other = Elt(n.emit(right, total.text), e.dtype, True)
        total = combine(n, total, other)
        half //= 2
    right = f"extractelement {whole} {n.vector(total)}, i32 0"
    return Elt(n.emit(right, total.text), e.dtype)


@_rule("arg_reduce")
def _arg_reduce(e: "Emitter", op: Op) -> Sequence[Tile]:
    """The first of the greatest or least; the first NaN if there is one."""
    (value,), (out,), axis = op.inputs, op.outputs, op.params["axis"]
    tile, index_dtype = e.in_memory(e.tile(value)), dtype_name(out.dtype)
    kept = [d for d in range(len(tile.shape)) if d != axis]
    whole = e.arena.tile(out.shape, index_dtype)
    beats = OPS["gt" if op.params["op"] == "argmax" else "lt"]
    with ExitStack() as stack:
        places = {}
        for d in kept:
            loop = e.function.loop(tile.shape[d])
            places[d] = (stack.enter_context(loop), False)
        best = _slots(e, tile.dtype, False, 1, constant(0, tile.dtype))
        where = _slots(e, index_dtype, False, 1, Elt("0", index_dtype))
        with e.function.loop(tile.shape[axis]) as at:
            n = Nest(e.function)
            full = [places.get(d, (at, False)) for d in range(len(tile.shape))]
            new = tile.at(n, tuple(full))
            old = best.read(n, best.names[0])
            better = beats(n, [new, old], "bool")
            if is_float(tile.dtype):
                is_number = OPS["eq"](n, [old, old], "bool")
                nan = OPS["ne"](n, [new, new], "bool")
                better = n.binary("and", is_number, n.binary("or", better, nan))
            first = n.compare("eq", Elt(at, "int64"), Elt("0", "int64"))
            better = n.binary("or", better, first)
            best.write(n, best.names[0], n.select(better, new, old))
            was = where.read(n, where.names[0])
            here = n.as_element(at, index_dtype)
            where.write(n, where.names[0], n.select(better, here, was))
            n.flush()
        n = Nest(e.function)
        store(n, whole, [places[d] for d in kept], where.read(n, where.names[0]))
        n.flush()
    return [Load(whole) if out.shape else e.number(Load(whole))]


@_rule("cumulate")
def _cumulate(e: "Emitter", op: Op) -> Sequence[Tile]:
    (value,), (out,), p = op.inputs, op.outputs, op.params
    if p["op"] not in COMBINE:
        raise e.refuse(f"a cumulative {p['op']}")
    combine, axis = COMBINE[p["op"]], p["axis"]
    tile = e.tile(value)
    whole = e.arena.tile(out.shape, dtype_name(out.dtype))
    dtype = _accumulator(combine.name, tile.dtype)
    kept = [d for d in range(len(tile.shape)) if d != axis and tile.shape[d] != 1]
    if 0 in tile.shape:
        return [Load(whole)]
    with ExitStack() as stack:
        places: list[Place] = [(0, False)] * len(tile.shape)
        for d in kept:
            loop = e.function.loop(tile.shape[d])
            places[d] = (stack.enter_context(loop), False)
        slots = _slots(e, dtype, False, 1, combine.identity(dtype))
        with e.function.loop(tile.shape[axis]) as step:
            n = Nest(e.function)
            at: Index = step
            if p["reverse"]:
                last = tile.shape[axis] - 1
                at = n.emit(f"sub i64 {last}, {step}", step)
            places[axis] = (at, False)
            new = tile.at(n, tuple(places))
            new = OPS["convert_element_type"](n, [new], dtype)
            total = combine(n, slots.read(n, slots.names[0]), new)
            slots.write(n, slots.names[0], total)
            store(
                n, whole, places, OPS["convert_element_type"](n, [total], whole.dtype)
            )
            n.flush()
    return [Load(whole)]
