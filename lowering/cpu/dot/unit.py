"""The multiply-accumulate units of hosts, and which one serves a product."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilejax.lowering.cpu.host import Host
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.types import TYPES, is_float, is_float8, itemsize

Step = Callable[[Function, "Unit", str, str, str], str]
"""Emit accumulator + a * b of three vectors; return the name of the sum."""


@dataclass(frozen=True)
class Unit:
    """How vectors of products are summed, and in what form operands are wanted.

    **Arguments:**

    - `name`: tells it apart in the names of functions.
    - `acc`: dtype of the accumulators.
    - `a`, `b`: dtypes of the elements that it multiplies.
    - `group`: neighbours along k that one lane of an accumulator sums in one step.
    - `lanes`: accumulators of a vector.
    - `rows`, `vectors`: the block of accumulator vectors that the registers hold.
    - `step`: emits the multiplication.
    - `tiles`: the AMX instruction that multiplies where whole tiles are, if any.
    - `flip`: whether b is stored with its top bit inverted, and what has then to be
      added to an accumulator for each unit of the sum of its row of a.
    """

    name: str
    acc: str
    a: str
    b: str
    group: int
    lanes: int
    rows: int
    vectors: int
    step: Step
    flip: int = 0
    tiles: str = ""

    @property
    def tile_k(self) -> int:
        """Elements of k that a row of a tile holds."""
        return 64 // itemsize(self.a)

    @property
    def acc_vector(self) -> str:
        """The type of a vector of accumulators."""
        return f"<{self.lanes} x {TYPES[self.acc]}>"

    @property
    def width(self) -> int:
        """Columns of a packed panel."""
        return self.lanes * self.vectors

    def vector(self, dtype: str) -> str:
        """Spell the type of a vector of an operand."""
        return f"<{self.lanes * self.group} x {TYPES[dtype]}>"


def choose(host: Host, a: str, b: str, out: str, shape: tuple[int, int, int]) -> Unit:
    """Choose the fastest exact enough unit of a host for a product.

    Sums are kept in `out`: full precision for float32 and float64, products of
    bfloat16 and float8 exact. The processors' bfloat16 units treat denormals as zeros
    and round sums to even.

    **Arguments:**

    - `a`, `b`, `out`: dtypes.
    - `shape`: M, N and K.
    """
    if shape[2] == 1:
        return plain(host, out)
    unit = _tiles(host, a, b, out, shape)
    if unit is None and out in ("int32", "uint32"):
        unit = _whole(host, a, b, out)
    elif unit is None and out == "float32" and _halves(a) and _halves(b):
        unit = _pairs(host)
    return unit or plain(host, out)


_TILES = {
    ("int8", "int8"): "tdpbssd",
    ("int8", "uint8"): "tdpbsud",
    ("uint8", "int8"): "tdpbusd",
    ("uint8", "uint8"): "tdpbuud",
}


def _tiles(host: Host, a: str, b: str, out: str, shape) -> Unit | None:
    """AMX. Only for bfloat16 a vector unit takes over where tiles are not whole."""
    if host.lanes != 16 or not host.has("amx-tile"):
        return None
    whole = all(size % 16 == 0 for size in shape[:2])
    if out == "float32" and _halves(a) and _halves(b) and host.has("amx-bf16"):
        unit = _pairs(host) if shape[0] >= 16 and shape[2] >= 32 else None
        return replace(unit, tiles="tdpbf16ps") if unit else None
    if out == "float32" and a == b == "float16" and host.has("amx-fp16"):
        name, k, group = "tdpfp16ps", 32, 2
    elif out in ("int32", "uint32") and (a, b) in _TILES and host.has("amx-int8"):
        name, k, group = _TILES[a, b], 64, 4
    else:
        return None
    if not whole or shape[2] % k:
        return None
    return Unit(name, out, a, b, group, 16, 16, 2, _no_step, tiles=name)


def _no_step(f: Function, unit: Unit, acc: str, a: str, b: str) -> str:
    raise AssertionError(f"{unit.name} has tiles only")


def _halves(dtype: str) -> bool:
    return dtype == "bfloat16" or is_float8(dtype)


def _block(host: Host, spare: int = 0) -> tuple[int, int]:
    """Rows and vectors: what the registers hold beside a row of b and one of a."""
    if host.lanes == 16:
        return 14 - spare, 2
    if host.is_x86:
        return 6 - spare, 2
    return 6, 4


def plain(host: Host, out: str) -> Unit:
    """Return the unit that multiplies elements of the accumulators' own dtype."""
    lanes = max(1, host.lanes * 4 // itemsize(out))
    step = _integer if not is_float(out) else _fused if _has_fma(host) else _separate
    rows, vectors = _block(host)
    vectors = max(vectors, host.lanes // lanes)
    name = f"{step.__name__.strip('_')}_{out}"
    return Unit(name, out, out, out, 1, lanes, rows, vectors, step)


def _has_fma(host: Host) -> bool:
    return host.has("fma") if host.is_x86 else host.has("neon") or _is_arm(host)


def _is_arm(host: Host) -> bool:
    return host.triple.startswith(("aarch64", "arm64"))


def _pairs(host: Host) -> Unit | None:
    if host.lanes != 16 or not host.has("avx512bf16"):
        return None
    name = "avx512bf16.dpbf16ps.512"
    rows, vectors = _block(host)
    return Unit(
        name, "float32", "bfloat16", "bfloat16", 2, 16, rows, vectors, _native(name)
    )


_SMALL = ("int8", "uint8")


def _whole(host: Host, a: str, b: str, out: str) -> Unit | None:
    if a in _SMALL and b in _SMALL:
        unit = _quads(host, a, b, out)
        if unit is not None:
            return unit
    if {a, b} <= {*_SMALL, "int16", "bool"} and host.is_x86:
        return _words(host, out)
    return None


def _quads(host: Host, a: str, b: str, out: str) -> Unit | None:
    """Four products a lane: Intel's take one unsigned and one signed operand."""
    rows, vectors = _block(host)
    if host.has("dotprod") and _is_arm(host) and a == b:
        how = "sdot" if a == "int8" else "udot"
        name = f"aarch64.neon.{how}.v4i32.v16i8"
        return Unit(name, out, a, b, 4, 4, rows, vectors, _native(name, "<16 x i8>"))
    if host.lanes == 16 and host.has("avx512vnni"):
        name = "avx512.vpdpbusd.512"
    elif host.lanes == 8 and (
        host.has("avxvnni") or host.has("avx512vnni", "avx512vl")
    ):
        name = "avx512.vpdpbusd.256"
    else:
        return None
    # What is stored as b has the signedness that a has not.
    flip = {"int8": -128, "uint8": 128}[a] if a == b else 0
    step = _native(name, swap=a == "int8")
    stored = "uint8" if a == "int8" else "int8"
    return Unit(f"{name}_{a}", out, a, stored, 4, host.lanes, rows, vectors, step, flip)


def _words(host: Host, out: str) -> Unit:
    rows, vectors = _block(host)
    if host.lanes == 16 and host.has("avx512vnni"):
        name, step = "avx512.vpdpwssd.512", _native("avx512.vpdpwssd.512")
    else:
        name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd"}.get(
            host.lanes, "sse2.pmadd.wd"
        )
        step = _multiply_add(name)
        rows = rows - 1 if host.lanes < 16 else rows
    return Unit(name, out, "int16", "int16", 2, host.lanes, rows, vectors, step)


# The instructions


def _call(f: Function, ty: str, name: str, types, operands) -> str:
    f.module.declare(f"declare {ty} @llvm.{name}({', '.join(types)})")
    args = ", ".join(f"{t} {x}" for t, x in zip(types, operands, strict=True))
    return _define(f, f"call {ty} @llvm.{name}({args})")


def _define(f: Function, right: str) -> str:
    name = f.name()
    f.line(f"{name} = {right}")
    return name


def _fused(f: Function, u: Unit, acc: str, a: str, b: str) -> str:
    ty = u.acc_vector
    suffix = f"v{u.lanes}{'f64' if u.acc == 'float64' else 'f32'}"
    return _call(f, ty, f"fma.{suffix}", [ty] * 3, (a, b, acc))


def _separate(f: Function, u: Unit, acc: str, a: str, b: str) -> str:
    product = _define(f, f"fmul {u.acc_vector} {a}, {b}")
    return _define(f, f"fadd {u.acc_vector} {acc}, {product}")


def _integer(f: Function, u: Unit, acc: str, a: str, b: str) -> str:
    product = _define(f, f"mul {u.acc_vector} {a}, {b}")
    return _define(f, f"add {u.acc_vector} {acc}, {product}")


def _native(name: str, operand: str | None = None, *, swap: bool = False) -> Step:
    """A unit that takes the accumulator first; integers as x86 spells them."""
    intrinsic = name if name.startswith("aarch64") else f"x86.{name}"

    def step(f: Function, u: Unit, acc: str, a: str, b: str) -> str:
        ty = u.acc_vector
        whole = operand or (u.vector(u.a) if is_float(u.a) else ty)
        if whole != u.vector(u.a):
            a = _define(f, f"bitcast {u.vector(u.a)} {a} to {whole}")
            b = _define(f, f"bitcast {u.vector(u.b)} {b} to {whole}")
        x, y = (b, a) if swap else (a, b)
        return _call(f, ty, intrinsic, [ty, whole, whole], (acc, x, y))

    return step


def _multiply_add(name: str) -> Step:
    """Pairs of products summed by one instruction, and accumulated by another."""

    def step(f: Function, u: Unit, acc: str, a: str, b: str) -> str:
        whole, ty = u.vector(u.a), u.acc_vector
        pairs = _call(f, ty, f"x86.{name}", [whole, whole], (a, b))
        return _define(f, f"add {ty} {acc}, {pairs}")

    return step
