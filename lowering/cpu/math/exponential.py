"""The exponential function and those that are made of it.

The argument is reduced by multiples of log 2 in two parts (W. J. Cody and W. Waite,
Software Manual for the Elementary Functions, 1980). The polynomials were computed for
this place: they interpolate at Chebyshev's nodes, in 60 digits, and were then rounded.
"""

import math

from tilejax.lowering.cpu.math.real import Real, Whole
from tilejax.lowering.cpu.types import Elt

# (exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2
EXP = {
    "float32": (
        0.5,
        0.1666657030582428,
        0.04166654497385025,
        0.008364380337297916,
        0.0013927684631198645,
    ),
    "float64": (
        0.5,
        0.1666666666666667,
        0.04166666666666667,
        0.008333333333324906,
        0.001388888888888287,
        0.00019841269879033045,
        2.4801587328555858e-05,
        2.755725016302918e-06,
        2.7557269903215795e-07,
        2.5107353767261877e-08,
        2.0916212837493853e-09,
    ),
}
# log 2: the first part times any exponent is exact.
LOG2 = {
    "float32": (0.693359375, -2.12194440e-4),
    "float64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
# Adding 1.5 * 2^digits rounds to an integer, which the lowest bits then hold.
MAGIC = {"float32": 12582912.0, "float64": 6755399441055744.0}
# Where exp is still finite; where its result is below all normal numbers, about; where
# it rounds to zero.
BOUNDS = {
    "float32": (88.72283172607422, -87.0, -103.97208404541016),
    "float64": (709.782712893384, -708.0, -745.1332191019412),
}
BOUNDS2 = {"float32": (128.0, -125.0, -150.0), "float64": (1024.0, -1021.0, -1075.0)}


def split(x: Real) -> tuple[Real, Whole, Real]:
    """Write x as n log 2 + r.

    **Returns:** n as a float, n in the lowest bits of an integer, and r, of which the
    magnitude is at most log(2) / 2.
    """
    magic = MAGIC[x.dtype]
    shifted = x.times(1 / math.log(2), magic)
    n = shifted - magic
    high, low = LOG2[x.dtype]
    r = n.times(-low, n.times(-high, x))
    return n, shifted.bits(), r


def grown(r: Real) -> Real:
    """Compute exp(r) - 1 for a reduced argument."""
    return r.polynomial(EXP[r.dtype]).times(r * r, r)


def power_of_two(n: Whole, dtype: str, less: int = 0) -> Real:
    """Make 2^(n - less), a normal number, of an integer's lowest bits."""
    one = Real(n.nest, n.nest.constant(2.0**-less, dtype)).bits()
    return ((n << one_shift(dtype)) + one).real(dtype)


def one_shift(dtype: str) -> int:
    """Return how far the exponent is from a float's lowest bit."""
    return 23 if dtype == "float32" else 52


def scaled(p: Real, n: Real, bits: Whole, x: Real, bounds: tuple) -> Real:
    """Multiply p by 2^n.

    **Arguments:**

    - `p`: between 0.7 and 1.42, or NaN.
    - `n`, `bits`: the exponent, as a float and as the lowest bits of an integer.
    - `x`: the function's argument: above `bounds[0]` the result is infinite, below
      `bounds[2]` zero.
    """
    if _scales(p):
        return _scalef(p, n)
    highest, tiny, lowest = bounds
    shift = one_shift(p.dtype)
    # A result that is not a normal number is made 2^64 times larger first.
    low = x < tiny
    lift = low.whole(bits.of(64 << shift), 0)
    value = (p.bits() + (bits << shift) + lift).real(p.dtype)
    value = value * low.pick(x.of(2.0**-64), 1)
    value = (x < lowest).pick(x.of(0), value)
    # The sum is infinite, or NaN.
    return x.compare("ole", highest).pick(value, x + math.inf)


_WIDTHS = {"float32": 16, "float64": 8}


def _scales(x: Real) -> bool:
    """Tell whether the host has an instruction that multiplies by a power of two."""
    host, lanes = x.nest.function.module.host, x.nest.lanes
    return host.has("avx512f") and x.elt.vector and lanes % _WIDTHS[x.dtype] == 0


def _scalef(p: Real, n: Real) -> Real:
    """Let AVX-512 do it: it rounds once, and overflows and underflows as it should."""
    nest, lanes, width = p.nest, p.nest.lanes, _WIDTHS[p.dtype]
    kind, suffix = ("float", "ps") if p.single else ("double", "pd")
    ty, mask = f"<{width} x {kind}>", f"i{width}"
    name = f"@llvm.x86.avx512.mask.scalef.{suffix}.512"
    nest.function.module.declare(f"declare {ty} {name}({ty}, {ty}, {ty}, {mask}, i32)")
    texts = [nest.vector(p.elt), nest.vector(n.elt)]
    parts = []
    for start in range(0, lanes, width):
        a, b = (_part(nest, t, kind, start, width) for t in texts)
        args = f"{ty} {a}, {ty} {b}, {ty} zeroinitializer, {mask} -1, i32 4"
        parts.append(nest.emit(f"call {ty} {name}({args})", a, b))
    return Real(nest, Elt(_joined(nest, parts, ty, lanes), p.dtype, True))


def _part(nest, text: str, kind: str, start: int, width: int) -> str:
    if width == nest.lanes:
        return text
    whole = f"<{nest.lanes} x {kind}>"
    which = ", ".join(f"i32 {i}" for i in range(start, start + width))
    mask = f"<{width} x i32> <{which}>"
    return nest.emit(f"shufflevector {whole} {text}, {whole} poison, {mask}", text)


def _joined(nest, parts: list[str], ty: str, lanes: int) -> str:
    if len(parts) == 1:
        return parts[0]
    which = ", ".join(f"i32 {i}" for i in range(lanes))
    first, second = parts
    mask = f"<{lanes} x i32> <{which}>"
    return nest.emit(f"shufflevector {ty} {first}, {ty} {second}, {mask}", *parts)


def clamped(x: Real, most: float) -> Real:
    """Bring x to between -most and most; NaN stays."""
    x = (x < -most).pick(x.of(-most), x)
    return (x > most).pick(x.of(most), x)


def exp(x: Real) -> Real:
    """Compute e^x; error at most 1.1 ulp."""
    n, bits, r = split(clamped(x, 1000) if _scales(x) else x)
    return scaled(grown(r) + 1, n, bits, x, BOUNDS[x.dtype])


def exp2(x: Real) -> Real:
    """Compute 2^x; error at most 1.1 ulp."""
    if _scales(x):
        x = clamped(x, 1200)
    magic = MAGIC[x.dtype]
    shifted = x + magic
    n = shifted - magic
    r = (x - n) * math.log(2)
    return scaled(grown(r) + 1, n, shifted.bits(), x, BOUNDS2[x.dtype])


def exp_part(x: Real) -> Real:
    """Compute e^x where the result is a normal number; error at most 1.1 ulp."""
    _, bits, r = split(x)
    p = grown(r) + 1
    return (p.bits() + (bits << one_shift(x.dtype))).real(x.dtype)


def expm1_part(x: Real) -> Real:
    """Compute e^x - 1 for x between -80 and 80; error at most 2 ulp, 0 for -0."""
    _, bits, r = split(x)
    power = power_of_two(bits, x.dtype)
    return grown(r).times(power, power - 1)


def expm1(x: Real) -> Real:
    """Compute e^x - 1; error at most 2 ulp."""
    highest = BOUNDS[x.dtype][0]
    _, bits, r = split((x < -80).pick(x.of(-80), x))
    # 2^n itself may be infinite, half of it not.
    half = power_of_two(bits, x.dtype, 1)
    value = grown(r).times(half, half - 0.5) * 2
    tiny = abs(x) < (2.0**-26 if x.single else 2.0**-55)
    value = tiny.pick(x, value)
    return x.compare("ole", highest).pick(value, x + math.inf)


def half_exp(x: Real) -> Real:
    """Compute e^x / 2, finite where e^x just is not; error at most 1.1 ulp."""
    n, bits, r = split(clamped(x, 1000) if _scales(x) else x)
    highest, tiny, lowest = BOUNDS[x.dtype]
    bounds = (highest + math.log(2), tiny, lowest)
    return scaled(grown(r) + 1, n - 1, bits - 1, x, bounds)


def logistic(x: Real) -> Real:
    """Compute 1 / (1 + e^-x); error at most 3 ulp."""
    e = exp(-abs(x))
    r = 1 / (1 + e)
    return (x < 0).pick(e * r, r)


def tanh(x: Real) -> Real:
    """Compute tanh x; error at most 3 ulp."""
    a = abs(x)
    most = 10.0 if x.single else 20.0
    t = expm1_part((a > most).pick(a.of(2 * most), a * 2))
    return (t / (t + 2)).with_sign(x)


def sinh(x: Real) -> Real:
    """Compute sinh x; error at most 4 ulp."""
    a = abs(x)
    t = expm1_part((a > 22).pick(a.of(22), a))
    value = (t + t / (t + 1)) * 0.5
    tiny = a < (2.0**-13 if x.single else 2.0**-28)
    value = tiny.pick(a, value)
    return (a > 22).pick(half_exp(a), value).with_sign(x)


def cosh(x: Real) -> Real:
    """Compute cosh x; error at most 2 ulp."""
    half = half_exp(abs(x))
    return half + 0.25 / half
