"""Sums of rows, for units whose operands are shifted."""

from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.operand import Operand, lanes_mask
from tilejax.lowering.cpu.elementwise_convert import convert
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


def row_sums(f: Function, arena: Arena, factor: int, x: Operand) -> str:
    """Emit `factor` times the int32 sum of each row; return their address."""
    rows, k = x.shape
    lanes = f.module.host.lanes
    sums = arena.tile((rows,), "int32")
    across = x.row_is_free() and not x.k_is_free()
    spans = [(rows // lanes, lanes, 0), (min(rows % lanes, 1), rows % lanes, rows)]
    if not across:
        spans = [(rows, 1, 0)]
    for count, there, last in spans:
        if not count:
            continue
        with f.loop(count) as index:
            n = Nest(f)
            if across:
                start = n.mul_index(index, lanes) if not last else last // lanes * lanes
                total = _across(f, x, n, start, k, there)
            else:
                start = index
                total = _along(f, x, start, k)
            n = Nest(f)
            ty = f"<{lanes} x i32>" if across else "i32"
            value = n.emit(f"mul {ty} {total}, {_splat(ty, factor)}", total)
            address = n.emit(
                f"getelementptr i32, ptr {sums.pointer}, i64 {start}", str(start)
            )
            n.do(f"store {ty} {value}, ptr {address}, align 4")
            n.flush()
    return sums.pointer


def _splat(ty: str, value: int) -> str:
    return f"splat (i32 {value})" if ty.startswith("<") else str(value)


def _across(f: Function, x: Operand, outer: Nest, row, k: int, there: int) -> str:
    """The sums of a vector of rows."""
    lanes = f.module.host.lanes
    ty = f"<{lanes} x i32>"
    slot = f.alloca(ty)
    outer.do(f"store {ty} zeroinitializer, ptr {slot}")
    outer.flush()
    n = Nest(f, [k])
    at = n.index[0] if k > 1 else 0
    e = x.at(n, (row, True), (at, False), lanes_mask(lanes, there))
    _add(n, slot, ty, e)
    n.flush()
    return _load(f, slot, ty)


def _along(f: Function, x: Operand, row: str, k: int) -> str:
    """The sum of one row."""
    lanes = f.module.host.lanes
    ty = f"<{lanes} x i32>"
    slot = f.alloca(ty)
    f.line(f"store {ty} zeroinitializer, ptr {slot}")
    whole, rest = divmod(k, lanes)
    for count, there, first in ((whole, lanes, 0), (min(rest, 1), rest, whole)):
        if not count:
            continue
        n = Nest(f, [count])
        step = n.mul_index(n.add_index(n.index[0] if count > 1 else 0, first), lanes)
        _add(n, slot, ty, x.at(n, (row, False), (step, True), lanes_mask(lanes, there)))
        n.flush()
    name = f"@llvm.vector.reduce.add.v{lanes}i32"
    f.module.declare(f"declare i32 {name}({ty})")
    total = f.name()
    f.line(f"{total} = call i32 {name}({ty} {_load(f, slot, ty)})")
    return total


def _add(n: Nest, slot: str, ty: str, e: Elt) -> None:
    wide = n.vector(convert(n, e, "int32"))
    before = n.define(f"load {ty}, ptr {slot}")
    after = n.define(f"add {ty} {before}, {wide}")
    n.do(f"store {ty} {after}, ptr {slot}")


def _load(f: Function, slot: str, ty: str) -> str:
    name = f.name()
    f.line(f"{name} = load {ty}, ptr {slot}")
    return name
