"""Micro-kernels: a block of the output kept in registers along all of k."""

from dataclasses import dataclass

from tilejax.lowering.cpu.dot.operand import lanes_mask
from tilejax.lowering.cpu.dot.unit import Unit
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.types import (
    SUFFIX,
    TYPES,
    is_float,
    is_unsigned,
    itemsize,
    memory_type,
)

ENOUGH = 10
"""Sums in flight at once that hide the latency of a unit."""


@dataclass(frozen=True)
class Micro:
    """What a micro-kernel is made for; all of it is constant in its code.

    **Arguments:**

    - `unit`: what multiplies.
    - `rows`, `vectors`: the block of accumulator vectors.
    - `k`: groups along k.
    - `a_row`, `a_k`: bytes between rows of a and between its groups.
    - `b_k`: bytes between the groups of b.
    - `b_dtype`: what b is in memory, converted when loaded if the unit wants another.
    - `out_row`: bytes between rows of the output.
    - `load_tail`, `store_tail`: lanes of the last vector that may be read of b and
      written; 0 for all.
    - `accumulate`: whether the output is added to.
    - `offset`: whether an int32 for each row is added.
    - `ahead`: how many rows, how many bytes apart, and how many cache lines of each to
      ask for: memory that is read next.
    """

    unit: Unit
    rows: int
    vectors: int
    k: int
    a_row: int
    a_k: int
    b_k: int
    b_dtype: str
    out_row: int
    load_tail: int = 0
    store_tail: int = 0
    accumulate: bool = False
    offset: bool = False
    ahead: tuple[int, int, int] = (0, 0, 0)

    @property
    def name(self) -> str:
        """A name that tells it apart from every other."""
        numbers = (
            self.rows, self.vectors, self.k, self.a_row, self.a_k, self.b_k,
            self.out_row, self.load_tail, self.store_tail, int(self.accumulate),
            int(self.offset), *self.ahead,
        )  # fmt: skip
        return "_".join(["dot", self.unit.name, self.b_dtype, *map(str, numbers)])


def micro_kernel(module: Module, m: Micro) -> str:
    """Return the name of the function of a micro-kernel, made when first wanted.

    Its arguments: a, b, the output, and the rows' offsets, all of them addresses.
    """
    if f"@{m.name}" not in module.globals and m.name not in module.functions:
        _emit(module, m)
    return m.name


def _emit(module: Module, m: Micro) -> None:
    header = (
        f"define internal void @{m.name}(ptr noalias %a, ptr noalias %b, "
        "ptr noalias %out, ptr noalias %offset, ptr %ahead) noinline nounwind"
    )
    f = Function(module, header)
    u = m.unit
    block = m.rows * m.vectors
    ways = max(1, min(ENOUGH // block, m.k // 4)) if block < ENOUGH else 1
    if u.vectors * u.rows < ways * block:
        ways = 1
    sums = [
        [[f.alloca(u.acc_vector) for _ in range(m.vectors)] for _ in range(m.rows)]
        for _ in range(ways)
    ]
    for way, rows in enumerate(sums):
        _start(f, m, rows, first=way == 0)
    a_at, b_at = f.alloca("ptr"), f.alloca("ptr")
    f.line(f"store ptr %a, ptr {a_at}")
    f.line(f"store ptr %b, ptr {b_at}")
    turns = m.k // ways
    if m.ahead[0]:
        turns -= _ask_meanwhile(f, m, turns, lambda: _advance(f, m, sums, a_at, b_at))
    if turns:
        with f.loop(turns):
            _advance(f, m, sums, a_at, b_at)
    if m.k % ways:
        _advance(f, m, sums[: m.k % ways], a_at, b_at)
    _finish(f, m, sums)
    f.finish()


def _ask_meanwhile(f: Function, m: Micro, turns: int, advance) -> int:
    """Ask for a line of what is read next in each turn; return the turns taken."""
    rows, stride, lines = m.ahead
    rows = min(rows, turns // lines)
    if rows == 0:
        return 0
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    at = f.alloca("ptr")
    f.line(f"store ptr %ahead, ptr {at}")
    with f.loop(rows):
        row = _define(f, f"load ptr, ptr {at}")
        with f.loop(64 * lines, step=64) as line:
            place = _define(f, f"getelementptr i8, ptr {row}, i64 {line}")
            f.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")
            advance()
        f.line(f"store ptr {_place(f, row, stride)}, ptr {at}")
    return rows * lines


def _define(f: Function, right: str) -> str:
    name = f.name()
    f.line(f"{name} = {right}")
    return name


def _place(f: Function, base: str, offset: int) -> str:
    if offset == 0:
        return base
    return _define(f, f"getelementptr i8, ptr {base}, i64 {offset}")


def _start(f: Function, m: Micro, rows, *, first: bool) -> None:
    """The first value of sums: zero, or what is to be added to."""
    ty = m.unit.acc_vector
    for r, row in enumerate(rows):
        shift = None
        if m.offset and first:
            one = _define(f, f"load i32, ptr {_place(f, '%offset', 4 * r)}, align 4")
            shift = _splat(f, one, "i32", m.unit.lanes)
        for v, slot in enumerate(row):
            value = "zeroinitializer"
            if m.accumulate and first:
                value = _read_out(f, m, r, v)
            if shift is not None:
                value = _define(f, f"add {ty} {value}, {shift}")
            f.line(f"store {ty} {value}, ptr {slot}")


def _advance(f: Function, m: Micro, sums, a_at: str, b_at: str) -> None:
    """One group of k for each of the independent sums."""
    u = m.unit
    ty = u.acc_vector
    a = _define(f, f"load ptr, ptr {a_at}")
    b = _define(f, f"load ptr, ptr {b_at}")
    for way, rows in enumerate(sums):
        vectors = [
            _read_b(f, m, _place(f, b, way * m.b_k + _vector_bytes(m) * v), v)
            for v in range(m.vectors)
        ]
        for r, row in enumerate(rows):
            x = _broadcast(f, u, _place(f, a, way * m.a_k + r * m.a_row))
            for v, slot in enumerate(row):
                old = _define(f, f"load {ty}, ptr {slot}")
                new = u.step(f, u, old, x, vectors[v])
                f.line(f"store {ty} {new}, ptr {slot}")
    f.line(f"store ptr {_place(f, a, len(sums) * m.a_k)}, ptr {a_at}")
    f.line(f"store ptr {_place(f, b, len(sums) * m.b_k)}, ptr {b_at}")


def _vector_bytes(m: Micro) -> int:
    return m.unit.lanes * m.unit.group * itemsize(m.b_dtype)


def _splat(f: Function, one: str, ty: str, lanes: int) -> str:
    whole = f"<{lanes} x {ty}>"
    vector = _define(f, f"insertelement {whole} poison, {ty} {one}, i32 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return _define(f, f"shufflevector {whole} {vector}, {whole} poison, {zeros}")


def _broadcast(f: Function, u: Unit, address: str) -> str:
    """One group of a in every lane."""
    size = itemsize(u.a)
    if u.group == 1:
        ty = TYPES[u.a]
        one = _define(f, f"load {ty}, ptr {address}, align {size}")
        return _splat(f, one, ty, u.lanes)
    word = f"i{8 * size * u.group}"
    one = _define(f, f"load {word}, ptr {address}, align {size}")
    vector = _splat(f, one, word, u.lanes)
    return _define(f, f"bitcast <{u.lanes} x {word}> {vector} to {u.vector(u.a)}")


def _read_b(f: Function, m: Micro, address: str, v: int) -> str:
    u = m.unit
    ty, lanes = memory_type(m.b_dtype), u.lanes * u.group
    tail = m.load_tail if v == m.vectors - 1 else 0
    vector = _load(f, ty, lanes, address, itemsize(m.b_dtype), tail)
    if m.b_dtype == u.b:
        return vector
    if m.b_dtype == "bfloat16":
        return _widen_bfloat(f, vector, lanes)
    if is_float(u.b):
        how = "uitofp" if is_unsigned(m.b_dtype) else "sitofp"
    else:
        how = "zext" if is_unsigned(m.b_dtype) else "sext"
    return _define(f, f"{how} <{lanes} x {ty}> {vector} to {u.vector(u.b)}")


def _widen_bfloat(f: Function, vector: str, lanes: int) -> str:
    """Its bits are the upper half of a float's; `fpext` may become a call."""
    bits = _define(f, f"bitcast <{lanes} x bfloat> {vector} to <{lanes} x i16>")
    wide = _define(f, f"zext <{lanes} x i16> {bits} to <{lanes} x i32>")
    high = _define(f, f"shl <{lanes} x i32> {wide}, splat (i32 16)")
    return _define(f, f"bitcast <{lanes} x i32> {high} to <{lanes} x float>")


def _read_out(f: Function, m: Micro, r: int, v: int) -> str:
    u = m.unit
    ty, size = TYPES[u.acc], itemsize(u.acc)
    place = _place(f, "%out", r * m.out_row + v * u.lanes * size)
    tail = m.store_tail if v == m.vectors - 1 else 0
    return _load(f, ty, u.lanes, place, size, tail)


def _load(f: Function, ty: str, lanes: int, address: str, align: int, tail: int):
    whole = f"<{lanes} x {ty}>"
    if not tail:
        return _define(f, f"load {whole}, ptr {address}, align {align}")
    name = f"@llvm.masked.load.v{lanes}{SUFFIX.get(ty, ty)}.p0"
    bits = f"<{lanes} x i1>"
    f.module.declare(f"declare {whole} {name}(ptr, i32, {bits}, {whole})")
    mask = lanes_mask(lanes, tail)
    return _define(
        f,
        f"call {whole} {name}(ptr {address}, i32 {align}, {bits} {mask}, "
        f"{whole} zeroinitializer)",
    )


def _finish(f: Function, m: Micro, sums) -> None:
    """Add up the independent sums, and store."""
    u = m.unit
    ty, size = u.acc_vector, itemsize(u.acc)
    add = "fadd" if is_float(u.acc) else "add"
    for r in range(m.rows):
        for v in range(m.vectors):
            parts = [_define(f, f"load {ty}, ptr {rows[r][v]}") for rows in sums]
            while len(parts) > 1:
                left, right = parts.pop(0), parts.pop(0)
                parts.append(_define(f, f"{add} {ty} {left}, {right}"))
            place = _place(f, "%out", r * m.out_row + v * u.lanes * size)
            tail = m.store_tail if v == m.vectors - 1 else 0
            _store(f, u, parts[0], place, size, tail)


def _store(f: Function, u: Unit, vector: str, address: str, size: int, tail: int):
    ty, whole = TYPES[u.acc], u.acc_vector
    if not tail:
        f.line(f"store {whole} {vector}, ptr {address}, align {size}")
        return
    name = f"@llvm.masked.store.v{u.lanes}{SUFFIX.get(ty, ty)}.p0"
    bits = f"<{u.lanes} x i1>"
    f.module.declare(f"declare void {name}({whole}, ptr, i32, {bits})")
    mask = lanes_mask(u.lanes, tail)
    f.line(
        f"call void {name}({whole} {vector}, ptr {address}, i32 {size}, {bits} {mask})"
    )
