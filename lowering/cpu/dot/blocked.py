"""The product as blocks: b in packed panels, and for some rows of a all panels."""

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.calls import Job, Panels, Part, emit_calls, even_chunks
from tilejax.lowering.cpu.dot.finish import Finish, emit_finish
from tilejax.lowering.cpu.dot.operand import Operand
from tilejax.lowering.cpu.dot.pack import Form
from tilejax.lowering.cpu.dot.packed import (
    Packed,
    advance,
    pack_panels,
    panel_form,
    runs,
)
from tilejax.lowering.cpu.dot.rows import rows_of
from tilejax.lowering.cpu.dot.sums import row_sums
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize

PANEL_BYTES = 32768
"""A panel of b is cut along k to about what a first-level cache holds."""

HELD_BYTES = 524288
"""As much of b is packed at once: it stays in a second-level cache."""

FEW_ROWS = 2
"""Up to as many blocks of rows b is read where it lies instead of packed."""


def blocked(
    f: Function,
    arena: Arena,
    unit: Unit,
    a: Operand,
    b: Operand | Packed,
    out: View,
    accumulate: bool,
    finish: Finish | None = None,
) -> None:
    """Emit out (+)= a @ b.T for sizes of at least one."""
    with arena.scope():
        offset = row_sums(f, arena, unit.flip, a) if unit.flip else None
        k = a.shape[1]
        row = unit.width * itemsize(unit.b)
        cuts = _cuts(k, max(unit.group, PANEL_BYTES // row), unit)
        direct = None if isinstance(b, Packed) else _in_place(unit, b, out)
        if direct:
            cuts = [(0, k)]
        form = panel_form(unit, -(-cuts[0][1] // unit.group))
        held = max(1, min(-(-out.shape[1] // unit.width), HELD_BYTES // form.panel))
        again = not direct and held * unit.width < out.shape[1]
        rows = rows_of(f, arena, unit, a, cuts[0][1], once=not again)
        job = Job(f, unit, rows, out, accumulate, offset, finish)
        if direct:
            _multiply(job, direct, 0, k)
        elif isinstance(b, Packed):
            for k0, length in cuts:
                n = Nest(f)
                source = advance(n, b.pointer, (k0, row))
                n.flush()
                panels = _packed(unit, b.form, source, 0, out.shape[1])
                _multiply(job, panels, k0, length)
        else:
            _pack_and_multiply(job, arena, form, held, b, cuts)


def _pack_and_multiply(job: Job, arena: Arena, form: Form, held: int, b, cuts) -> None:
    f, unit = job.f, job.unit
    scratch = arena.reserve(held * form.panel)
    for k0, length in cuts:
        for count, width, first in runs(job.out.shape[1], held * unit.width):
            with f.loop(count) as index:
                n = Nest(f)
                at = n.add_index(index if count > 1 else 0, first)
                column = n.mul_index(at, held * unit.width)
                n.flush()
                pack_panels(f, form, b, scratch, column, width, k0, length)
                panels = _packed(unit, form, scratch, column, width)
                _multiply(job, panels, k0, length)


def _cuts(k: int, most: int, unit: Unit) -> list[tuple[int, int]]:
    """Cut k evenly into pieces of about `most`, whole groups but for the last.

    For tiles, what does not fill one is a piece of its own.
    """
    group = unit.tile_k if unit.tiles else unit.group
    rest = k % group if unit.tiles else 0
    whole = k - rest
    pieces = max(1, round(whole / most))
    size = -(-whole // (pieces * group)) * group
    cuts = [(start, min(size, whole - start)) for start in range(0, whole, size or 1)]
    return cuts + [(whole, rest)] * (rest > 0)


def _packed(unit: Unit, form: Form, source: str, column: Index, width: int) -> Panels:
    k = unit.width * unit.group * itemsize(unit.b)
    return Panels(source, column, width, unit.width, form.panel, k, unit.b)


_INTEGERS = ("int8", "uint8", "int16", "uint16")
_WIDENED = {
    "float32": ("bfloat16", *_INTEGERS),
    "int32": _INTEGERS,
    "uint32": _INTEGERS,
}
"""What the loads of a micro-kernel convert."""


def _in_place(unit: Unit, b: Operand, out: View) -> Panels | None:
    """B where it lies, if that is good enough: few rows, and vectors of columns."""
    view = b.view()
    rows, columns = out.shape
    if view is None or view.strides[0] != 1 or unit.group != 1:
        return None
    if view.dtype != unit.b and view.dtype not in _WIDENED.get(unit.acc, ()):
        return None
    if rows > FEW_ROWS * unit.rows:
        return None
    size, vectors = itemsize(view.dtype), unit.vectors
    while rows * vectors * 2 <= unit.rows * unit.vectors:
        vectors *= 2
    step = min(vectors, -(-columns // unit.lanes)) * unit.lanes
    k = view.strides[1] * size
    return Panels(view.pointer, 0, columns, step, step * size, k, view.dtype, True)


def _multiply(job: Job, b: Panels, k0: int, length: int) -> None:
    """Call micro-kernels: for some rows at a time all panels."""
    f = job.f
    for rows, count, first in _row_chunks(job, b, length):
        with f.loop(count) as index:
            n = Nest(f)
            row = n.add_index(n.mul_index(index if count > 1 else 0, rows), first)
            n.flush()
            a = job.a.chunk(f, row, rows, k0, length)
            n = Nest(f)
            ahead, asked = job.a.ahead(n, row, rows, k0, length)
            n.flush()
            part = Part(row, rows, a, k0, length, ahead, asked)
            for panels, width, start in runs(b.width, b.step):
                with f.loop(panels) as panel:
                    n = Nest(f)
                    at = n.add_index(panel if panels > 1 else 0, start)
                    emit_calls(job, b, part, n, at, width)
                    n.flush()
            if job.finish and k0 + length == job.a.size[1]:
                emit_finish(f, job.finish, job.out, row, rows, b.column, b.width)


def _row_chunks(job: Job, b: Panels, length: int) -> list[tuple[int, int, int]]:
    u, rows = job.unit, job.out.shape[0]
    if u.tiles and length % u.tile_k == 0:
        pairs, rest = divmod(rows, 32)
        found = [(32, pairs, 0), (16, rest // 16, 32 * pairs)]
        found.append((rest % 16, 1 if rest % 16 else 0, rows - rest % 16))
        return [run for run in found if run[1]]
    vectors = -(-min(b.step, b.width) // u.lanes)
    most = max(1, u.rows * u.vectors // max(vectors, u.vectors))
    if vectors == 1 and not u.tiles:
        most = u.rows * u.vectors // 2 * 2
    return even_chunks(rows, most)
