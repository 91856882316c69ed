"""The second operand in packed panels."""

from dataclasses import dataclass

from tilejax.lowering.cpu.dot.operand import Operand
from tilejax.lowering.cpu.dot.pack import Form, pack_rows, packs_along_rows
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize

WIDE = 2048
"""Bytes of a row of memory that are packed in one stretch."""


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
        """How the panels lie in memory."""
        return panel_form(self.unit, -(-self.shape[1] // self.unit.group))

    def fill(self, f: Function, x: Operand) -> None:
        """Emit code that packs an operand of this shape and dtype."""
        pack_panels(f, self.form, x, self.pointer, 0, self.shape[0], 0, self.shape[1])


def panel_form(unit: Unit, groups: int) -> Form:
    """Return how panels of the second operand, of some groups along k, lie."""
    panel = groups * unit.width * unit.group * itemsize(unit.b)
    return Form(unit.b, unit.group, unit.width, unit.lanes, unit.flip != 0, panel)


def runs(length: int, size: int) -> list[tuple[int, int, int]]:
    """Cut a length: how many pieces, how long each is, and the number of the first."""
    whole, rest = divmod(length, size)
    found = [(whole, size, 0), (min(rest, 1), rest, whole)]
    return [run for run in found if run[0]]


def pack_panels(
    f: Function, form: Form, x: Operand, dest: str, row: Index, rows: int, k0: int, k
) -> None:
    """Pack rows, from `row` on, into as many panels as it takes.

    Where vectors of rows are read, several panels are packed at once: a row of memory
    is then read in longer stretches.
    """
    at_once = form.pitch
    if packs_along_rows(form, x, k):
        at_once *= max(1, min(WIDE // itemsize(form.dtype), rows) // form.pitch)
    for count, width, first in runs(rows, at_once):
        with f.loop(count) as index:
            n = Nest(f)
            at = n.add_index(index if count > 1 else 0, first)
            place = advance(n, dest, (at, at_once // form.pitch * form.panel))
            start = n.add_index(n.mul_index(at, at_once), row)
            n.flush()
            pack_rows(f, form, x, place, start, width, k0, k)


def advance(n: Nest, pointer: str, *steps: tuple[Index, int]) -> str:
    """Return an address some indices times some bytes further on."""
    place: Index = 0
    for index, size in steps:
        place = n.add_index(place, n.mul_index(index, size))
    if place == 0:
        return pointer
    return n.emit(f"getelementptr i8, ptr {pointer}, i64 {place}", pointer, place)
