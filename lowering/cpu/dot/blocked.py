"""The product as blocks: panels of b, and micro-kernels down the rows of a."""

from dataclasses import dataclass

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.micro import Micro, micro_kernel
from tilejax.lowering.cpu.dot.operand import Operand
from tilejax.lowering.cpu.dot.pack import pack_rows
from tilejax.lowering.cpu.dot.packed import Packed, Rows, advance, panel_form, rows_of
from tilejax.lowering.cpu.dot.sums import row_sums
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize

PANEL_BYTES = 32768
"""A panel of b is cut along k so that it stays in a first-level cache."""

FEW_ROWS = 2
"""Up to as many blocks of rows b is read where it lies instead of packed."""


@dataclass(frozen=True)
class Job:
    """One product on its way: what all of its blocks share."""

    f: Function
    unit: Unit
    a: Rows
    b: Operand | Packed
    out: View
    accumulate: bool
    offset: str | None
    k: int


def blocked(
    f: Function,
    arena: Arena,
    unit: Unit,
    a: Operand,
    b: Operand | Packed,
    out: View,
    accumulate: bool,
) -> None:
    """Emit out (+)= a @ b.T for sizes of at least one."""
    with arena.scope():
        offset = row_sums(f, arena, unit.flip, a) if unit.flip else None
        rows = rows_of(f, arena, unit, a)
        job = Job(f, unit, rows, b, out, accumulate, offset, a.shape[1])
        if not isinstance(b, Packed) and _read_directly(job):
            _direct(job)
        else:
            _packed(job, arena)


def _cuts(k: int, most: int, group: int) -> list[tuple[int, int]]:
    """Cut k evenly into pieces of at most `most`, whole groups but for the last."""
    pieces = -(-k // most)
    size = -(-k // (pieces * group)) * group
    return [(start, min(size, k - start)) for start in range(0, k, size)]


def _packed(job: Job, arena: Arena) -> None:
    u, f = job.unit, job.f
    size = u.width * itemsize(u.b)
    most = max(u.group, PANEL_BYTES // size // u.group * u.group)
    cuts = _cuts(job.k, most, u.group)
    panel = ""
    if not isinstance(job.b, Packed):
        longest = -(-max(length for _, length in cuts) // u.group) * u.group
        panel = arena.reserve(longest * size)
    for k0, length in cuts:
        for count, width, first in _runs(job.out.shape[1], u.width):
            with f.loop(count) as index:
                n = Nest(f)
                at = n.add_index(index if count > 1 else 0, first)
                column = n.mul_index(at, u.width)
                source = panel
                if isinstance(job.b, Packed):
                    source = advance(
                        n, job.b.pointer, (at, job.b.panel_bytes), (k0, size)
                    )
                n.flush()
                if not isinstance(job.b, Packed):
                    form = panel_form(u)
                    pack_rows(f, form, job.b, source, column, width, k0, length)
                vectors = -(-width // u.lanes)
                _rows(job, source, column, width, vectors, k0, length, size * u.group)


def _runs(length: int, size: int) -> list[tuple[int, int, int]]:
    """Runs of pieces: how many, how long each is, and the number of the first."""
    whole, rest = divmod(length, size)
    runs = [(whole, size, 0), (min(rest, 1), rest, whole)]
    return [run for run in runs if run[0]]


def _rows(
    job: Job, b: str, column: Index, width: int, vectors: int, k0: int, length: int,
    b_k: int, b_dtype: str | None = None, load_tail: int = 0,
) -> None:  # fmt: skip
    """Call micro-kernels for all rows of a panel."""
    u, f = job.unit, job.f
    accumulate = job.accumulate or k0 > 0
    size = itemsize(u.acc)
    most = max(u.rows, u.rows * u.vectors // vectors // 2 * 2 if vectors == 1 else 0)
    for rows, count, first in _chunks(job.out.shape[0], most):
        tail = 0 if job.out.padded else width % u.lanes
        m = Micro(
            u, rows, vectors, -(-length // u.group), job.a.row, job.a.k, b_k,
            b_dtype or u.b, job.out.strides[0] * size, load_tail, tail, accumulate,
            job.offset is not None and k0 == 0,
        )  # fmt: skip
        name = micro_kernel(f.module, m)
        with f.loop(count) as index:
            n = Nest(f)
            row = n.add_index(n.mul_index(index if count > 1 else 0, rows), first)
            k_at = k0 // u.group
            a = advance(n, job.a.pointer, (row, job.a.row), (k_at, job.a.k))
            out = advance(
                n, job.out.pointer, (row, job.out.strides[0] * size), (column, size)
            )
            offset = advance(n, job.offset, (row, 4)) if job.offset else "null"
            n.flush()
            f.line(f"call void @{name}(ptr {a}, ptr {b}, ptr {out}, ptr {offset})")


def _chunks(rows: int, most: int) -> list[tuple[int, int, int]]:
    """Cut rows evenly: how many a chunk has, how many chunks, and the first row."""
    pieces = -(-rows // most)
    size, longer = divmod(rows, pieces)
    runs = [(size + 1, longer, 0), (size, pieces - longer, (size + 1) * longer)]
    return [run for run in runs if run[1]]


# Few rows: b is read where it lies


def _read_directly(job: Job) -> bool:
    u = job.unit
    assert not isinstance(job.b, Packed)
    view = job.b.view()
    if view is None or view.strides[0] != 1 or u.group != 1:
        return False
    if view.dtype != u.b and not (view.dtype in _WIDENED and u.acc == "float32"):
        return False
    return job.out.shape[0] <= FEW_ROWS * u.rows


_WIDENED = ("bfloat16", "int8", "uint8", "int16", "uint16")


def _direct(job: Job) -> None:
    u, f = job.unit, job.f
    assert not isinstance(job.b, Packed)
    view = job.b.view()
    assert view is not None
    rows, columns = job.out.shape
    size = itemsize(view.dtype)
    vectors = u.vectors
    while rows * vectors * 2 <= u.rows * u.vectors and vectors * u.lanes < columns:
        vectors *= 2
    step = vectors * u.lanes
    for count, width, first in _runs(columns, step):
        with f.loop(count) as index:
            n = Nest(f)
            at = n.add_index(index if count > 1 else 0, first)
            column = n.mul_index(at, step)
            b = advance(n, view.pointer, (column, size))
            n.flush()
            used = -(-width // u.lanes)
            tail = width % u.lanes
            _rows(
                job, b, column, width, used, 0, job.k, view.strides[1] * size,
                view.dtype, tail,
            )  # fmt: skip
