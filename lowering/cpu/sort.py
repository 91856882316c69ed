"""The rule of sorting: a merge of places, row by row, that keeps equals in order."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import Place, View, load, store
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.tiles import Load, Tile
from tilejax.lowering.cpu.types import Elt, is_float
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}


def _sort(e: "Emitter", op: Op) -> Sequence[Tile]:
    """Sort operands together by the first ones, NaN last, as `jax.lax.sort` does."""
    axis, shape = op.params["dimension"], op.inputs[0].shape
    sources = [e.in_memory(e.tile(x)).view for x in op.inputs]
    results = [e.arena.tile(v.shape, v.dtype) for v in sources]
    if 0 in shape:
        return [Load(view) for view in results]
    with ExitStack() as stack:
        row: list[Place] = [(0, False)] * len(shape)
        for d, size in enumerate(shape):
            if d != axis and size != 1:
                row[d] = (stack.enter_context(e.function.loop(size)), False)
        stack.enter_context(e.arena.scope())
        keys = sources[: op.params["keys"]]
        order = _Merge(e, keys, row, axis).emit()
        at = stack.enter_context(e.function.loop(shape[axis]))
        n = Nest(e.function)
        picked = n.as_index(load(n, order, [(at, False)]))
        for source, result in zip(sources, results, strict=True):
            found = load(n, source, _replaced(row, axis, picked))
            store(n, result, _replaced(row, axis, at), found)
        n.flush()
    return [Load(view) for view in results]


RULES["sort"] = _sort


def _replaced(row: Sequence[Place], axis: int, index) -> list[Place]:
    return [(index, False) if d == axis else place for d, place in enumerate(row)]


class _Merge:
    """The sorting of one row: runs of places, merged in pairs until one is left."""

    def __init__(self, e: "Emitter", keys: Sequence[View], row: Sequence[Place], axis):
        self.e, self.keys, self.row, self.axis = e, keys, row, axis
        self.size = keys[0].shape[axis]
        for name in ("smin", "smax"):
            e.function.module.declare(f"declare i64 @llvm.{name}.i64(i64, i64)")

    def emit(self) -> View:
        """Emit it; return the places in their order."""
        e, size, f = self.e, self.size, self.e.function
        here, there = (e.arena.tile((size,), "int32", dense=True) for _ in range(2))
        with f.loop(size) as i:
            e.straight(lambda n: store(n, here, [(i, False)], n.as_element(i, "int32")))
        levels = max(size - 1, 0).bit_length()
        if levels:
            with f.loop(levels) as level:
                self._level(level, here, there)
        return there if levels % 2 else here

    def _level(self, level: str, here: View, there: View) -> None:
        """Merge runs of 2**level places in pairs, from one memory to the other."""
        f, size = self.e.function, self.size
        n = Nest(f)
        turned = n.emit(f"trunc i64 {level} to i1", level)
        source, target = (
            n.emit(f"select i1 {turned}, ptr {a.pointer}, ptr {b.pointer}", turned)
            for a, b in ((there, here), (here, there))
        )
        run = n.emit(f"shl i64 1, {level}", level)
        both = n.emit(f"shl i64 2, {level}", level)
        up = n.emit(f"add i64 {both}, {size - 1}", both)
        pairs = n.emit(f"udiv i64 {up}, {both}", up, both)
        n.flush()
        with f.loop(pairs) as pair:
            n = Nest(f)
            low = n.emit(f"mul i64 {pair}, {both}", pair, both)
            middle, high = (
                self._least(n, n.emit(f"add i64 {low}, {step}", low, step), size)
                for step in (run, both)
            )
            n.flush()
            left, right = f.alloca("i64"), f.alloca("i64")
            f.line(f"store i64 {low}, ptr {left}")
            f.line(f"store i64 {middle}, ptr {right}")
            with f.loop(high, start=low) as k:
                self._take(k, (left, middle), (right, high), source, target)

    def _least(self, n: Nest, a: str, b: int) -> str:
        return n.emit(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})", a)

    def _take(self, k: str, left, right, source: str, target: str) -> None:
        """Move the lesser of the heads of two runs; the left one if they are equal."""
        n = Nest(self.e.function)
        heads, places, there = [], [], []
        for slot, end in (left, right):
            at = n.define(f"load i64, ptr {slot}")
            there.append(n.emit(f"icmp slt i64 {at}, {end}", at, end))
            safe = self._least(n, at, self.size - 1)
            address = n.emit(f"getelementptr i32, ptr {source}, i64 {safe}", safe)
            heads.append(at)
            places.append(n.define(f"load i32, ptr {address}"))
        less = self._is_less(n, places[1], places[0])
        empty = n.emit(f"xor i1 {there[0]}, true", there[0])
        wins = n.emit(f"or i1 {empty}, {less.text}", empty, less.text)
        takes = n.emit(f"and i1 {there[1]}, {wins}", there[1], wins)
        found = n.emit(f"select i1 {takes}, i32 {places[1]}, i32 {places[0]}", takes)
        address = n.emit(f"getelementptr i32, ptr {target}, i64 {k}", k)
        n.do(f"store i32 {found}, ptr {address}")
        one = n.emit(f"zext i1 {takes} to i64", takes)
        other = n.emit(f"sub i64 1, {one}", one)
        for (slot, _), at, step in zip((left, right), heads, (other, one), strict=True):
            n.do(f"store i64 {n.emit(f'add i64 {at}, {step}', at, step)}, ptr {slot}")
        n.flush()

    def _is_less(self, n: Nest, a: str, b: str) -> Elt:
        """Whether the keys at one place come before those at another."""
        less, equal = Elt("false", "bool"), Elt("true", "bool")
        for view in self.keys:
            x, y = (self._key(n, view, place) for place in (a, b))
            before = OPS["lt"](n, [x, y], "bool")
            same = OPS["eq"](n, [x, y], "bool")
            if is_float(view.dtype):
                nan_x, nan_y = (OPS["ne"](n, [k, k], "bool") for k in (x, y))
                number_x = n.binary("xor", nan_x, Elt("true", "bool"))
                before = n.binary("or", before, n.binary("and", number_x, nan_y))
                same = n.binary("or", same, n.binary("and", nan_x, nan_y))
            less = n.binary("or", less, n.binary("and", equal, before))
            equal = n.binary("and", equal, same)
        return less

    def _key(self, n: Nest, view: View, place: str) -> Elt:
        index = n.emit(f"sext i32 {place} to i64", place)
        places = _replaced(self.row, self.axis, index)
        address = view.address(n, view.offset(n, places))
        loose = View(address, view.dtype, (), (), view.storage, ())
        return load(n, loose, ())
