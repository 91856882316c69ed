"""Products of tiles: packed operands and register-blocked micro-kernels."""

from dataclasses import replace

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.blocked import blocked
from tilejax.lowering.cpu.dot.finish import Finish as Finish, emit_finish
from tilejax.lowering.cpu.dot.operand import InMemory as InMemory, Operand as Operand
from tilejax.lowering.cpu.dot.packed import Packed as Packed, advance
from tilejax.lowering.cpu.dot.thin import (
    FEW,
    LONG,
    emit_dots,
    emit_updates,
    is_few_dots,
    move,
    turned,
)
from tilejax.lowering.cpu.dot.unit import choose, plain
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import TYPES, itemsize, literal


def emit_dot(
    function: Function,
    arena: Arena,
    a: Operand,
    b: Operand | Packed,
    out: View,
    *,
    accumulate: bool,
    precision=None,
    finish: Finish | None = None,
) -> None:
    """Emit `out = a @ b.T`, or `out += a @ b.T`.

    **Arguments:**

    - `a`, `b`: operands [M, K] and [N, K] of any dtypes. They must not overlap `out`.
    - `out`: float32, float64, int32 or uint32 [M, N]: a view with stride 1 along N that
      is not ragged. If it is `padded`, what lies in a row's padding is overwritten.
    - `accumulate`: whether the product is added to what `out` holds.
    - `precision`: has no effect: float32 is never rounded to fewer digits.
    - `finish`: is applied to what `out` would hold, while that is in a cache.
    """
    (rows, k), columns = a.shape, b.shape[0]
    assert b.shape[1] == k and out.shape == (rows, columns), "the shapes do not match"
    assert not out.is_ragged and (columns == 1 or out.strides[1] == 1)
    if rows == 0 or columns == 0:
        return
    lanes = function.module.host.lanes
    if rows > 1 and out.strides[0] < -(-columns // lanes) * lanes:
        out = replace(out, padded=False)
    if k == 0:
        if not accumulate:
            _clear(function, out)
    elif isinstance(b, Packed) or not _thin(function, arena, a, b, out, accumulate):
        if isinstance(b, Packed):
            unit = b.unit
        else:
            shape = (rows, columns, k)
            unit = choose(function.module.host, a.dtype, b.dtype, out.dtype, shape)
        blocked(function, arena, unit, a, b, out, accumulate, finish)
        return
    if finish:
        emit_finish(function, finish, out)


def _thin(
    f: Function, arena: Arena, a: Operand, b: Operand, out: View, accumulate: bool
) -> bool:
    """Emit a product with few rows or columns; return False for others."""
    rows, columns = out.shape
    if is_few_dots(a, b):
        emit_dots(f, arena, a, b, out, accumulate)
    elif is_few_dots(b, a):
        emit_dots(f, arena, b, a, turned(out), accumulate)
    elif rows <= FEW and b.row_is_free() and columns * itemsize(b.dtype) >= LONG:
        emit_updates(f, arena, a, b, out, accumulate)
    elif rows <= FEW and b.row_is_free():
        unit = plain(f.module.host, out.dtype)
        blocked(f, arena, unit, a, b, out, accumulate)
    elif columns <= FEW and a.row_is_free() and rows > FEW:
        with arena.scope():
            other = arena.tile((columns, rows), out.dtype)
            emit_dot(f, arena, b, a, other, accumulate=False)
            move(f, turned(other), out, accumulate)
    else:
        return False
    return True


def packed_form(arena: Arena, a: Operand, b: Operand, out: str) -> Packed:
    """Reserve scratch for the packed form of b [N, K].

    `Packed.fill` emits the code that packs b; what it made serves as `b` of `emit_dot`
    for as long as the scratch is reserved, with first operands like `a`.

    **Arguments:**

    - `a`, `b`: the operands of the products, of which shapes and dtypes are read.
    - `out`: the dtype of their outputs.
    """
    shape = (a.shape[0], *b.shape)
    unit = choose(arena.function.module.host, a.dtype, b.dtype, out, shape)
    packed = Packed(b.shape, b.dtype, unit, "")
    size = packed.form.panel * -(-b.shape[0] // unit.width)
    return replace(packed, pointer=arena.reserve(size))


def _clear(f: Function, out: View) -> None:
    n = Nest(f, [out.shape[0], out.shape[1]])
    size = itemsize(out.dtype)
    row, column = (n.index[d] if out.shape[d] > 1 else 0 for d in range(2))
    address = advance(n, out.pointer, (row, out.strides[0] * size), (column, size))
    n.do(f"store {TYPES[out.dtype]} {literal(0, out.dtype)}, ptr {address}")
    n.flush()
