"""Calls of micro-kernels: one for some rows and a panel of columns."""

from dataclasses import dataclass, replace

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.dot.finish import Finish
from tilejax.lowering.cpu.dot.micro import Micro, micro_kernel
from tilejax.lowering.cpu.dot.packed import advance
from tilejax.lowering.cpu.dot.rows import Rows
from tilejax.lowering.cpu.dot.tiles import TileKernel, tile_kernel
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import itemsize


@dataclass(frozen=True)
class Job:
    """One product on its way: what all of its blocks share."""

    f: Function
    unit: Unit
    a: Rows
    out: View
    accumulate: bool
    offset: str | None
    finish: Finish | None = None


@dataclass(frozen=True)
class Panels:
    """Some columns of the product, and b for them.

    **Arguments:**

    - `pointer`: of the first element of b.
    - `column`, `width`: the first column of the output, and how many there are.
    - `step`: columns that a micro-kernel does.
    - `panel`, `k`: bytes from panel to panel and from group to group along k.
    - `dtype`: of b in memory.
    - `in_place`: whether nothing may be read behind the last column.
    """

    pointer: str
    column: Index
    width: int
    step: int
    panel: int
    k: int
    dtype: str
    in_place: bool = False


@dataclass(frozen=True)
class Part:
    """Some rows of the product.

    **Arguments:**

    - `row`, `rows`: the first, and how many.
    - `a`: the address of their elements of a.
    - `k0`, `length`: the stretch of k.
    - `ahead`, `asked`: where a lies that is wanted next: the address, rows, the
      bytes between them and the cache lines of each.
    """

    row: Index
    rows: int
    a: str
    k0: int
    length: int
    ahead: str = "null"
    asked: tuple[int, int, int] = (0, 0, 0)


def emit_calls(job: Job, b: Panels, part: Part, n: Nest, at: Index, width: int) -> None:
    """Call the micro-kernels for some rows and a panel."""
    u = job.unit
    if _fits_tiles(job, part.rows, width, part.length):
        _call_tiles(job, b, part, n, at, width)
        return
    most = u.rows if u.tiles else part.rows
    for rows, times, skipped in even_chunks(part.rows, most):
        for r in range(skipped, skipped + rows * times, rows):
            a = advance(n, part.a, (r, job.a.row))
            here = replace(part, row=n.add_index(part.row, r), rows=rows, a=a)
            _call(job, b, here, n, at, width)


def _fits_tiles(job: Job, rows: int, width: int, length: int) -> bool:
    u = job.unit
    whole = rows % 16 == 0 and length % u.tile_k == 0
    return bool(u.tiles) and whole and (width % 16 == 0 or job.out.padded)


def _call_tiles(job: Job, b: Panels, part: Part, n: Nest, at: Index, width: int):
    """Call one micro-kernel on tiles."""
    kernel = TileKernel(
        job.unit.tiles,
        part.rows // 16,
        -(-width // 16),
        part.length // job.unit.tile_k,
        job.a.row,
        b.k,
        job.out.strides[0] * itemsize(job.unit.acc),
        job.accumulate or part.k0 > 0,
    )
    _invoke(job, b, tile_kernel(job.f.module, kernel), part, n, at)


def _call(job: Job, b: Panels, part: Part, n: Nest, at: Index, width: int) -> None:
    """Call one micro-kernel for some rows and a panel."""
    u = job.unit
    tail = width % u.lanes
    micro = Micro(
        u,
        part.rows,
        -(-width // u.lanes),
        -(-part.length // u.group),
        job.a.row,
        job.a.k,
        b.k,
        b.dtype,
        job.out.strides[0] * itemsize(u.acc),
        tail if b.in_place else 0,
        0 if job.out.padded else tail,
        job.accumulate or part.k0 > 0,
        job.offset is not None and part.k0 == 0,
        part.asked,
    )
    _invoke(job, b, micro_kernel(job.f.module, micro), part, n, at)


def _invoke(job: Job, b: Panels, name: str, part: Part, n: Nest, at: Index) -> None:
    out, size = job.out, itemsize(job.unit.acc)
    source = advance(n, b.pointer, (at, b.panel))
    column = n.add_index(n.mul_index(at, b.step), b.column)
    dest = advance(n, out.pointer, (part.row, out.strides[0] * size), (column, size))
    offset = advance(n, job.offset, (part.row, 4)) if job.offset else "null"
    addresses = (part.a, source, dest, offset, part.ahead)
    n.do(f"call void @{name}({', '.join(f'ptr {x}' for x in addresses)})")


def even_chunks(rows: int, most: int) -> list[tuple[int, int, int]]:
    """Cut rows evenly: how many a chunk has, how many chunks, and the first row."""
    pieces = -(-rows // most)
    size, longer = divmod(rows, pieces)
    found = [(size + 1, longer, 0), (size, pieces - longer, (size + 1) * longer)]
    return [run for run in found if run[1]]
