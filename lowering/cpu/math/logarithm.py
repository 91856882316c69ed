"""Logarithms.

A number is 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). In float32 log(1 + f)
is a polynomial in f (the arrangement of S. Moshier's Cephes); in float64 it is one in
s = f / (2 + f) (that of FreeBSD's msun). The coefficients were computed for this place:
they interpolate at Chebyshev's nodes, in 60 digits, and were then rounded.
"""

import math

from tilejax.lowering.cpu.math.exponential import LOG2, one_shift
from tilejax.lowering.cpu.math.real import Real, Whole

# (log(1 + f) - f + f^2 / 2) / f^3 in f
LOG_SINGLE = (
    0.3333333134651184,
    -0.2499999701976776,
    0.20000715553760529,
    -0.1666780263185501,
    0.14249058067798615,
    -0.12425687164068222,
    0.11685419827699661,
    -0.11479733884334564,
    0.06971611827611923,
)
# (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2
LOG_DOUBLE = (
    0.6666666666666666,
    0.4000000000000089,
    0.2857142857079543,
    0.2222222239356661,
    0.18181795442371984,
    0.1538625044794019,
    0.13268485680654427,
    0.13089629160674623,
)


def parts(x: Real) -> tuple[Whole, Real]:
    """Write a positive normal number as 2^k m, with m from sqrt(1/2) to sqrt(2)."""
    shift, least = one_shift(x.dtype), x.of(math.sqrt(0.5)).bits()
    bits = x.bits()
    k = (bits - least) >> shift
    return k, (bits - (k << shift)).real(x.dtype)


def normal_parts(x: Real) -> tuple[Real, Real]:
    """Write a positive number, denormal too, as 2^k m with k as a float."""
    digits = x.format.digits
    denormal = x < 2.0 ** (1 - x.format.bias)
    k, m = parts(denormal.pick(x * 2.0**digits, x))
    number = _float(k, x.dtype)
    return denormal.pick(number - digits, number), m


def _float(k: Whole, dtype: str) -> Real:
    """Convert an exponent; 32 bits suffice and convert faster."""
    return k.to("int32").number(dtype)


def near_one(f: Real) -> tuple[Real, Real]:
    """Compute log(1 + f) in two parts, of which the first is exact."""
    square = f * f * 0.5
    if f.single:
        rest = f.polynomial(LOG_SINGLE) * (f * f * f)
        return f, rest - square
    s = f / (f + 2)
    z = s * s
    rest = z.polynomial(LOG_DOUBLE) * z
    return f, s * (square + rest) - square


def finished(value: Real, x: Real, pole: float) -> Real:
    """Put in what a logarithm is outside its domain; it is -inf at the pole."""
    value = x.compare("une", math.inf).pick(value, x)
    value = (x > pole).pick(value, x.of(math.nan))
    return x.compare("oeq", pole).pick(x.of(-math.inf), value)


def log(x: Real) -> Real:
    """Compute log x; error at most 1.5 ulp."""
    k, m = normal_parts(x)
    return finished(_joined(k, m - 1), x, 0)


def _joined(k: Real, f: Real) -> Real:
    high, low = LOG2[f.dtype]
    first, rest = near_one(f)
    return k.times(high, k.times(low, rest) + first)


def log2(x: Real) -> Real:
    """Compute the logarithm to base 2; error at most 2.5 ulp, exact for powers of 2."""
    k, m = normal_parts(x)
    first, rest = near_one(m - 1)
    base = 1 / math.log(2)
    # 1.4375 has few digits.
    high, low = 1.4375, base - 1.4375
    whole = (first + rest) * low
    return finished(first.times(high, k) + rest.times(high, whole), x, 0)


def log1p(x: Real) -> Real:
    """Compute log(1 + x); error at most 2.5 ulp."""
    u = x + 1
    # What the sum lost.
    lost = (x > 1).pick(1 - (u - x), x - (u - 1))
    k, m = parts(u)
    bias, shift = x.format.bias, one_shift(x.dtype)
    under = m.bits().of(bias) - k
    under = under.compare("slt", 0).whole(under.of(0), under) << shift
    f = (m - 1) + lost * under.real(x.dtype)
    value = _joined(_float(k, x.dtype), f)
    tiny = abs(x) < (2.0**-26 if x.single else 2.0**-55)
    return tiny.pick(x, finished(value, x, -1))


def asinh(x: Real) -> Real:
    """Compute asinh x; error at most 4 ulp."""
    a = abs(x)
    square = a * a
    small = log1p(a + square / (1 + (1 + square).call("sqrt")))
    large = log(a) + math.log(2)
    return (a > LARGE[x.dtype]).pick(large, small).with_sign(x)


def acosh(x: Real) -> Real:
    """Compute acosh x; error at most 4 ulp."""
    t = x - 1
    small = log1p(t + (t * 2 + t * t).call("sqrt"))
    large = log(x) + math.log(2)
    value = (x > LARGE[x.dtype]).pick(large, small)
    return (x < 1).pick(x.of(math.nan), value)


def atanh(x: Real) -> Real:
    """Compute atanh x; error at most 4 ulp."""
    a = abs(x)
    return (log1p(a * 2 / (1 - a)) * 0.5).with_sign(x)


# From where on the square root of x^2 + 1 is x.
LARGE = {"float32": 2.0**14, "float64": 2.0**28}
