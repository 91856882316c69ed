"""Operands in the form that a unit wants: as they lie, or packed into scratch."""

from dataclasses import dataclass

from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.operand import Operand
from tilejax.lowering.cpu.dot.pack import Form, copy_rows, pack_rows
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize

COLLIDES = 1024
"""Rows a multiple of these bytes apart fall into few sets of a cache."""


@dataclass(frozen=True)
class Packed:
    """The second operand in panels of as many rows as a micro-kernel has columns.

    **Arguments:**

    - `shape`, `dtype`: of the operand that it holds.
    - `unit`: whose form it has.
    - `pointer`: where it is, panel after panel.
    """

    shape: tuple[int, int]
    dtype: str
    unit: Unit
    pointer: str

    @property
    def form(self) -> Form:
        """How a panel lies in memory."""
        return panel_form(self.unit)

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel."""
        u = self.unit
        groups = -(-self.shape[1] // u.group)
        return groups * u.group * u.width * itemsize(u.b)

    def fill(self, f: Function, x: Operand) -> None:
        """Emit code that packs an operand of this shape and dtype."""
        rows, k = self.shape
        width = self.unit.width
        for count, size, first in _panels(rows, width):
            with f.loop(count) as index:
                n = Nest(f)
                panel = n.add_index(index if count > 1 else 0, first)
                place = n.mul_index(panel, self.panel_bytes)
                dest = n.emit(
                    f"getelementptr i8, ptr {self.pointer}, i64 {place}", place
                )
                row = n.mul_index(panel, width)
                n.flush()
                pack_rows(f, self.form, x, dest, row, size, 0, k)


def panel_form(unit: Unit) -> Form:
    """Return how panels of the second operand lie for a unit."""
    return Form(unit.b, unit.group, unit.width, unit.lanes, unit.flip != 0)


def _panels(rows: int, width: int) -> list[tuple[int, int, int]]:
    """Runs of panels: how many, of how many rows, and the number of the first."""
    whole, rest = divmod(rows, width)
    runs = [(whole, width, 0), (min(rest, 1), rest, whole)]
    return [run for run in runs if run[0]]


@dataclass(frozen=True)
class Rows:
    """The first operand where a micro-kernel reads it.

    **Arguments:**

    - `pointer`: of its first element.
    - `row`, `k`: bytes from row to row and from group to group along k.
    """

    pointer: str
    row: int
    k: int


def rows_of(f: Function, arena: Arena, unit: Unit, x: Operand) -> Rows:
    """Return the first operand as a unit can read it, copied if it must be."""
    found = _as_it_lies(unit, x)
    if found is not None:
        return found
    rows, k = x.shape
    size, lanes = itemsize(unit.a), f.module.host.lanes
    if x.k_is_free() or not x.row_is_free():
        pitch = -(-k // max(lanes, unit.group)) * max(lanes, unit.group)
        tile = arena.tile((rows, pitch), unit.a)
        form = Form(unit.a, 1, lanes, lanes)
        copy_rows(f, form, x, tile.pointer, tile.strides[0])
        return Rows(tile.pointer, tile.strides[0] * size, unit.group * size)
    groups, pitch = -(-k // unit.group), -(-rows // lanes) * lanes
    pointer = arena.reserve(groups * pitch * unit.group * size)
    form = Form(unit.a, unit.group, pitch, unit.lanes)
    for count, width, first in _panels(rows, 2 * lanes):
        with f.loop(count) as index:
            n = Nest(f)
            row = n.mul_index(n.add_index(index if count > 1 else 0, first), 2 * lanes)
            place = n.mul_index(row, unit.group * size)
            dest = n.emit(f"getelementptr i8, ptr {pointer}, i64 {place}", place)
            n.flush()
            pack_rows(f, form, x, dest, row, width, 0, k)
    return Rows(pointer, unit.group * size, pitch * unit.group * size)


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
    return Rows(view.pointer, row, k * unit.group)


def advance(n: Nest, pointer: str, *steps: tuple[Index, int]) -> str:
    """Return an address some indices times some bytes further on."""
    place: Index = 0
    for index, size in steps:
        place = n.add_index(place, n.mul_index(index, size))
    if place == 0:
        return pointer
    return n.emit(f"getelementptr i8, ptr {pointer}, i64 {place}", pointer, place)
