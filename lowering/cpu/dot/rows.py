"""The first operand where micro-kernels read it: as it lies, or copied."""

from dataclasses import dataclass

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.operand import Operand
from tilejax.lowering.cpu.dot.pack import Form, copy_rows, pack_rows
from tilejax.lowering.cpu.dot.packed import WIDE, advance, runs
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize

COLLIDES = 1024
"""Rows a multiple of these bytes apart fall into few sets of a cache."""


@dataclass(frozen=True)
class Rows:
    """The first operand in memory, for all of the product.

    **Arguments:**

    - `pointer`: of its first element.
    - `row`, `k`: bytes from row to row and from group to group along k.
    - `group`: neighbours along k in a group.
    - `source`: where the operand lies in memory itself, if it does.
    - `size`: its shape.
    """

    pointer: str
    row: int
    k: int
    group: int
    source: View | None
    size: tuple[int, int]

    def ahead(self, n: Nest, row: Index, rows: int, k0: int, length: int):
        """Return where the rows after some lie in memory: see `Part`."""
        view = self.source
        if view is None or view.strides[1] != 1 or rows == self.size[0]:
            return "null", (0, 0, 0)
        size = itemsize(view.dtype)
        lines, stride = length * size // 64, view.strides[0] * size
        if lines == 0:
            return "null", (0, 0, 0)
        following = n.add_index(row, rows)
        if isinstance(following, str):
            more = n.emit(f"icmp slt i64 {following}, {self.size[0]}", following)
            following = n.emit(
                f"select i1 {more}, i64 {following}, i64 {row}", more, following
            )
        address = advance(n, view.pointer, (following, stride), (k0, size))
        return address, (rows, stride, lines)

    def chunk(self, f: Function, row: Index, rows: int, k0: int, length: int) -> str:
        """Return the address of some rows, from an element of k on."""
        n = Nest(f)
        address = advance(n, self.pointer, (row, self.row), (k0 // self.group, self.k))
        n.flush()
        return address


@dataclass(frozen=True)
class Copied(Rows):
    """The first operand, of which some rows at a time are copied before their use.

    A small buffer, used again and again, stays in the nearest cache.
    """

    operand: Operand
    dtype: str

    def chunk(self, f: Function, row: Index, rows: int, k0: int, length: int) -> str:
        """Copy some rows, from an element of k on; return the address of the copy."""
        form = Form(self.dtype, 1, 0, 0)
        pitch = self.row // itemsize(self.dtype)
        copy_rows(f, form, self.operand, self.pointer, pitch, row, rows, k0, length)
        return self.pointer


def rows_of(
    f: Function, arena: Arena, unit: Unit, x: Operand, most: int, *, once: bool
) -> Rows:
    """Return the first operand as a unit can read it, copied if it must be.

    **Arguments:**

    - `most`: the longest stretch of k that is used at once.
    - `once`: whether each element is asked for once only.
    """
    found = _as_it_lies(unit, x)
    if found is not None:
        return found
    rows, k = x.shape
    size, lanes, group = itemsize(unit.a), f.module.host.lanes, unit.group
    if not x.k_is_free() and x.row_is_free():
        how = _turned if unit.tiles else _packed_along_rows
        return how(f, arena, unit, x)
    in_chunks = once or x.view() is not None
    if in_chunks:
        rows, k = min(rows, max(unit.rows * unit.vectors, 32)), most
    tile = arena.tile((rows, -(-k // lanes) * lanes), unit.a)
    if in_chunks:
        return Copied(
            tile.pointer,
            tile.strides[0] * size,
            group * size,
            group,
            x.view(),
            x.shape,
            x,
            unit.a,
        )
    form = Form(unit.a, 1, 0, 0)
    copy_rows(f, form, x, tile.pointer, tile.strides[0], 0, rows, 0, k)
    return Rows(
        tile.pointer, tile.strides[0] * size, group * size, group, None, x.shape
    )


def _packed_along_rows(f: Function, arena: Arena, unit: Unit, x: Operand) -> Rows:
    """Vectors of rows are stored as they come, so that rows are neighbours."""
    rows, k = x.shape
    size, lanes, group = itemsize(unit.a), f.module.host.lanes, unit.group
    pitch = -(-rows // lanes) * lanes
    pointer = arena.reserve(-(-k // group) * group * pitch * size)
    form = Form(unit.a, group, pitch, unit.lanes)
    step = max(lanes, min(WIDE // size, pitch) // lanes * lanes)
    for count, width, first in runs(rows, step):
        with f.loop(count) as index:
            n = Nest(f)
            row = n.mul_index(n.add_index(index if count > 1 else 0, first), step)
            dest = advance(n, pointer, (row, group * size))
            n.flush()
            pack_rows(f, form, x, dest, row, width, 0, k)
    return Rows(pointer, group * size, pitch * group * size, group, None, x.shape)


class _Turned:
    """An operand with its dimensions exchanged."""

    def __init__(self, x: Operand):
        self.x, self.dtype = x, x.dtype
        self.shape = (x.shape[1], x.shape[0])

    def view(self):
        return None

    def row_is_free(self) -> bool:
        return self.x.k_is_free()

    def k_is_free(self) -> bool:
        return self.x.row_is_free()

    def at(self, n: Nest, row, k, tail: str | None):
        return self.x.at(n, k, row, tail)


def _turned(f: Function, arena: Arena, unit: Unit, x: Operand) -> Rows:
    """Tiles want rows along k: transpose."""
    rows, k = x.shape
    size, lanes = itemsize(unit.a), f.module.host.lanes
    tile = arena.tile((rows, -(-k // lanes) * lanes), unit.a)
    form = Form(unit.a, 1, tile.strides[0], lanes)
    for count, width, first in runs(k, 2 * lanes):
        with f.loop(count) as index:
            n = Nest(f)
            at = n.mul_index(n.add_index(index if count > 1 else 0, first), 2 * lanes)
            dest = advance(n, tile.pointer, (at, size))
            n.flush()
            pack_rows(f, form, _Turned(x), dest, at, width, 0, rows)
    return Rows(
        tile.pointer,
        tile.strides[0] * size,
        unit.group * size,
        unit.group,
        None,
        x.shape,
    )


def _as_it_lies(unit: Unit, x: Operand) -> Rows | None:
    view = x.view()
    if view is None or view.dtype != unit.a:
        return None
    size = itemsize(unit.a)
    row, k = (stride * size for stride in view.strides)
    if unit.group > 1 and (view.strides[1] != 1 or x.shape[1] % unit.group):
        return None
    if x.shape[0] >= 8 and row and row % COLLIDES == 0:
        return None
    return Rows(view.pointer, row, k * unit.group, unit.group, view, x.shape)
