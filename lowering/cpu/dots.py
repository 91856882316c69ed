"""Dots of tiles of any rank, as products of matrices over the batch."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import Place, View, dense_strides
from tilejax.lowering.cpu.dot import InMemory, Operand, emit_dot
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.strides import reshaped_strides
from tilejax.lowering.cpu.tiles import (
    ORIGIN,
    Dot,
    Lanes,
    Load,
    Mapped,
    Tile,
    permuted,
)
from tilejax.lowering.cpu.types import Elt, dtype_name
from tilejax.lowering.cpu.writing import Writing
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}


def _dot(e: "Emitter", op: Op) -> Sequence[Tile]:
    (out,), p = op.outputs, op.params
    a, b = (e.tile(x) for x in op.inputs)
    dot = Dot(a, b, p["dims"], out.shape, dtype_name(out.dtype), p["precision"])
    if out in e.plan.deferred:
        return [dot]
    kept = kept_dot(e, dot)
    return [kept if out.shape else e.number(kept)]


RULES["dot"] = _dot


class _Side:
    """One operand of a dot: its dimensions by their part in it."""

    def __init__(self, tile: Tile, contracted: Sequence[int], batch: Sequence[int]):
        self.tile = tile
        self.batch, self.contracted = tuple(batch), tuple(contracted)
        taken = {*batch, *contracted}
        self.rows = tuple(d for d in range(len(tile.shape)) if d not in taken)

    def wide(self, dims: Sequence[int]) -> list[int]:
        """The dimensions of more than one element."""
        return [d for d in dims if self.tile.shape[d] != 1]

    def size(self, dims: Sequence[int]) -> int:
        """How many elements the dimensions have together."""
        return math.prod(self.tile.shape[d] for d in dims)

    @property
    def is_matrix(self) -> bool:
        """Whether it is one row dimension and one summed dimension as it is."""
        return len(self.wide(self.rows)) < 2 and len(self.wide(self.contracted)) < 2


class _Matrix:
    """A side seen as [rows, k] at one index of the batch."""

    def __init__(self, side: _Side, batch: dict[int, Place]):
        self._tile, self._batch = side.tile, batch
        self._row = next(iter(side.wide(side.rows)), None)
        self._k = next(iter(side.wide(side.contracted)), None)
        self.shape = (side.size(side.rows), side.size(side.contracted))
        self.dtype = side.tile.dtype

    def _free(self, d: int | None) -> bool:
        return d is None or self._tile.lanes[d] == Lanes.FREE

    def row_is_free(self) -> bool:
        return self._free(self._row)

    def k_is_free(self) -> bool:
        return self._free(self._k)

    def view(self) -> View | None:
        return None

    def at(self, n: Nest, row: Place, k: Place, tail: str | None) -> Elt:
        places = [ORIGIN] * len(self._tile.shape)
        for d, index in self._batch.items():
            places[d] = index
        if self._row is not None:
            places[self._row] = row
        if self._k is not None:
            places[self._k] = k
        return self._tile.at(n, tuple(places), tail)


def takes_dot(view: View, dot: Dot) -> bool:
    """Tell whether a dot can write to a view by itself."""
    if view.is_ragged or view.dtype != dot.dtype or 0 in view.shape:
        return False
    return _flattened(view, dot) is not None


def _flattened(view: View, dot: Dot) -> View | None:
    """The view as [batch..., rows, columns], if its strides can say that."""
    a, b = _sides(dot)
    batch = len(a.batch)
    shape = (*view.shape[:batch], a.size(a.rows), b.size(b.rows))
    strides = view.strides
    if view.shape != shape:
        found = reshaped_strides(view, shape)
        if found is None:
            return None
        strides = found
    if shape[-1] != 1 and strides[-1] != 1:
        return None
    return _of_shape(view, view.pointer, shape, strides)


def kept_dot(w: Writing, dot: Dot) -> Load:
    """Compute a dot into scratch."""
    a, b = _sides(dot)
    batch = len(a.batch)
    flat = w.arena.tile(
        (*[a.tile.shape[d] for d in a.batch], a.size(a.rows), b.size(b.rows)), dot.dtype
    )
    _products(w, flat, dot, accumulate=False)
    row, column = flat.strides[batch:]
    rows = [row * s for s in dense_strides([a.tile.shape[d] for d in a.rows])]
    columns = [column * s for s in dense_strides([b.tile.shape[d] for d in b.rows])]
    strides = (*flat.strides[:batch], *rows, *columns)
    return Load(_of_shape(flat, flat.pointer, dot.shape, strides))


def _sides(dot: Dot) -> tuple[_Side, _Side]:
    (contracted_a, contracted_b), (batch_a, batch_b) = dot.dims
    a, b = dot.args
    return _Side(a, contracted_a, batch_a), _Side(b, contracted_b, batch_b)


def put_dot(w: Writing, view: View, dot: Dot, *, accumulate: bool) -> None:
    """Emit a dot into a view that takes it, or add it to what is there."""
    flat = _flattened(view, dot)
    assert flat is not None, "a view that takes no dot"
    _products(w, flat, dot, accumulate)


def _products(w: Writing, flat: View, dot: Dot, accumulate: bool) -> None:
    if 0 in flat.shape:
        return
    a, b = (_simple(w, side) for side in _sides(dot))
    sizes = [a.tile.shape[d] for d in a.batch]
    with w.arena.scope():
        _over_batch(w, flat, a, b, sizes, accumulate)


def _simple(w: Writing, side: _Side) -> _Side:
    """A side with at most one row and one summed dimension, copied if need be."""
    if side.is_matrix and _is_cheap(side.tile):
        return side
    order = (*side.batch, *side.rows, *side.contracted)
    kept = w.keep(permuted(side.tile, order), dense=True).view
    lead = len(side.batch)
    shape = [*kept.shape[:lead], side.size(side.rows), side.size(side.contracted)]
    strides = [*kept.strides[:lead], max(shape[-1], 1), 1]
    view = _of_shape(kept, kept.pointer, shape, strides)
    return _Side(Load(view), (lead + 1,), range(lead))


def _is_cheap(tile: Tile) -> bool:
    """Whether packing may compute an element, and in vectors along any dimension."""
    if isinstance(tile, Load):
        return True
    deep = isinstance(tile, Mapped) and any(isinstance(a, Mapped) for a in tile.args)
    return Lanes.FREE in tile.lanes and Lanes.NEVER not in tile.lanes and not deep


def _over_batch(w: Writing, out: View, a: _Side, b: _Side, sizes, accumulate) -> None:
    """Loop over the batch at run time, so that the code stays small."""
    with ExitStack() as loops:
        index = [
            loops.enter_context(w.function.loop(n)) if n != 1 else 0 for n in sizes
        ]
        target = _at_batch(w, out, index)
        left, right = (
            _operand(w, side, [(i, False) for i in index]) for side in (a, b)
        )
        emit_dot(w.function, w.arena, left, right, target, accumulate=accumulate)


def _operand(w: Writing, side: _Side, index: list[Place]) -> Operand:
    """The matrix of a side at an index of the batch; in memory if the side is."""
    tile = side.tile
    places = dict(zip(side.batch, index, strict=True))
    if not (isinstance(tile, Load) and tile.is_plain):
        return _Matrix(side, places)
    view = tile.view
    at = [places.get(d, ORIGIN) for d in range(len(view.shape))]
    pointer = w.straight(lambda n: view.address(n, view.offset(n, at)))
    picked = [next(iter(side.wide(d)), None) for d in (side.rows, side.contracted)]
    shape = (side.size(side.rows), side.size(side.contracted))
    strides = tuple(0 if d is None else view.strides[d] for d in picked)
    return InMemory(_of_shape(view, pointer, shape, strides))


def _of_shape(view: View, pointer: str, shape, strides) -> View:
    return replace(
        view,
        pointer=pointer,
        shape=tuple(shape),
        strides=tuple(strides),
        limits=(None,) * len(shape),
    )


def _at_batch(w: Writing, out: View, index: list) -> View:
    lead = len(index)
    at = [*[(i, False) for i in index], *[ORIGIN] * (len(out.shape) - lead)]
    pointer = w.straight(lambda n: out.address(n, out.offset(n, at)))
    return _of_shape(out, pointer, out.shape[lead:], out.strides[lead:])
