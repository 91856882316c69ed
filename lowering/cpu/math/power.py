"""Powers with real exponents.

float32 is computed in float64. float64 takes the logarithm as a sum of two float64, as
FreeBSD's msun and SLEEF do (N. Shibata and F. Petrogalli, SLEEF: A Portable Vectorized
Library of C Standard Mathematical Functions, 2020). The coefficients interpolate at
Chebyshev's nodes; they were computed for this place.
"""

import math

from tilejax.lowering.cpu.math.exponential import BOUNDS, LOG2, grown, scaled, split
from tilejax.lowering.cpu.math.logarithm import normal_parts
from tilejax.lowering.cpu.math.pair import Pair, ordered_sum, product
from tilejax.lowering.cpu.math.real import Mask, Real, outlined
from tilejax.lowering.cpu.math.rounding import to_even

# (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2, to 2^-36
LOG_SHORT = (
    0.6666666666738277,
    0.39999998786883284,
    0.28571756668146314,
    0.22191265599171967,
    0.19365278421757223,
)
# (exp(r) - 1 - r) / r^2, to 2^-37
EXP_SHORT = (
    0.5,
    0.1666666671931248,
    0.041666666719295684,
    0.008333298344023092,
    0.001388885390994504,
    0.00019899390183679232,
    2.485969439475207e-05,
)
# (log((1 + s) / (1 - s)) - 2 s - 2/3 s^3) / s^5 in s^2
LOG_PAIR = (
    0.4000000000000003,
    0.2857142857133739,
    0.2222222227161022,
    0.18181808164729227,
    0.15385580823628317,
    0.1328575731452747,
    0.12916088513173332,
)
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def power(x: Real, y: Real) -> Real:
    """Compute x^y with the special cases of C's `pow`; error at most 1.5 ulp."""
    return outlined("pow", _power, x, y)


def _power(x: Real, y: Real) -> Real:
    a = abs(x)
    value = _single(a, y) if x.single else _double(a, y)
    # A negative number has powers with integer exponents only.
    whole = to_even(y).compare("oeq", y)
    half = y * 0.5
    odd = whole & to_even(half).compare("une", half)
    negative = x.bits().compare("slt", 0)
    value = _at_ends(a, y, value)
    value = (negative & odd).pick(-value, value)
    outside = (x < 0) & whole.flipped() & (a < math.inf)
    value = outside.pick(x.of(math.nan), value)
    value = x.compare("uno", y).pick(x + y, value)
    one = x.compare("oeq", 1) | y.compare("oeq", 0)
    one = one | (a.compare("oeq", 1) & abs(y).compare("oeq", math.inf))
    return one.pick(x.of(1), value)


def _at_ends(a: Real, y: Real, value: Real) -> Real:
    """Put in the powers of zero and infinity, and those with infinite exponents."""
    grows: Mask = (a > 1) ^ (y < 0)
    end = grows.pick(a.of(math.inf), 0)
    ends = a.compare("oeq", 0) | a.compare("oeq", math.inf)
    return (ends | abs(y).compare("oeq", math.inf)).pick(end, value)


def _single(a: Real, y: Real) -> Real:
    k, m = normal_parts(a.to("float64"))
    s = (m - 1) / (m + 1)
    z = s * s
    log = s.times(2, z.polynomial(LOG_SHORT) * (z * s))
    log = k.times(math.log(2), log)
    t = log * y.to("float64")
    t = (t > 200).pick(t.of(200), t)
    t = (t < -200).pick(t.of(-200), t)
    _, bits, r = split(t)
    p = r.polynomial(EXP_SHORT).times(r * r, r) + 1
    return (p.bits() + (bits << 52)).real("float64").to("float32")


def _double(a: Real, y: Real) -> Real:
    log = _log_pair(a)
    # More would be infinite or zero anyway, and its halves would overflow.
    y = (abs(y) > 2.0**70).pick(y.of(2.0**70).with_sign(y), y)
    whole = product(log.high, y)
    low = log.low.times(y, whole.low)
    large = abs(whole.high) > 1000
    high = large.pick(whole.high.of(1000).with_sign(whole.high), whole.high)
    low = large.pick(low.of(0), low)
    n, bits, r = split(high)
    # The reduced argument takes the low part without loss of its own.
    p = grown(r)
    return scaled(1 + (p + low.times(p, low)), n, bits, high, BOUNDS["float64"])


def _log_pair(a: Real) -> Pair:
    k, m = normal_parts(a)
    top = m - 1
    bottom = _plus_one(m)
    s = top / bottom.high
    back = product(s, bottom.high)
    error = ((top - back.high) - back.low) - s * bottom.low
    ratio = Pair(s, error / bottom.high)
    square = product(s, s)
    z = Pair(square.high, square.low + 2 * (s * ratio.low))
    tail = z.high.polynomial(LOG_PAIR) * z.high
    cubic = ordered_sum(z.high.of(TWO_THIRDS[0]), tail + TWO_THIRDS[1])
    series = ordered_sum(a.of(2), a.of(0)) + cubic * z
    log = series * ratio
    scaled_log = Pair(k * LOG2["float64"][0], k * LOG2["float64"][1])
    base = ordered_sum(scaled_log.high, scaled_log.low)
    total = base + log
    # Without an exponent the logarithm itself must not lose a digit.
    none = k.compare("oeq", 0)
    return Pair(
        none.pick(log.high, total.high),
        none.pick(log.low, total.low),
    )


def _plus_one(m: Real) -> Pair:
    total = m + 1
    # Exact for m from 1/2 to 2, whichever of the two is larger.
    part = total - m
    return Pair(total, (m - (total - part)) + (1 - part))
