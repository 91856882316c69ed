"""Inverse sine, cosine and tangent, and the cube root.

The reductions are those of S. Moshier's Cephes. The coefficients interpolate at
Chebyshev's nodes; they were computed for this place.
"""

import math

from tilejax.lowering.cpu.math.pair import product
from tilejax.lowering.cpu.math.real import Real, outlined

# (atan(t) - t) / t^3 in t^2, for |t| <= tan(pi / 8)
ATAN = {
    "float32": (
        -0.3333333134651184,
        0.19999538362026215,
        -0.14263896644115448,
        0.10743099451065063,
        -0.06449835002422333,
    ),
    "float64": (
        -0.3333333333333333,
        0.199999999999998,
        -0.14285714285659326,
        0.11111111105106705,
        -0.09090908751076636,
        0.0769229630497447,
        -0.06666423628069258,
        0.058789145444006215,
        -0.052303478730160745,
        0.04551108126325172,
        -0.034558092551413795,
        0.01627194475162406,
    ),
}
# (asin(t) - t) / t^3 in t^2, for |t| <= 1/2
ASIN = {
    "float32": (
        0.1666666567325592,
        0.07500094175338745,
        0.04459940269589424,
        0.031100662425160408,
        0.017149237915873528,
        0.03369084745645523,
    ),
    "float64": (
        0.16666666666666666,
        0.07500000000000118,
        0.044642857142551895,
        0.03038194447553234,
        0.02237215744350722,
        0.017352816540325496,
        0.01396378001220357,
        0.011566459612121669,
        0.009621842970100282,
        0.009319560794767446,
        0.0030448799094556773,
        0.019554513336123378,
        -0.01924167174674304,
        0.02961201126495512,
    ),
}
# What pi / 4 is more than its nearest float, and pi / 2 twice that.
REST = {"float32": -2.1855694e-08, "float64": 3.061616997868383e-17}
HALF_PI = {"float32": 1.5707963705062866, "float64": math.pi / 2}


def _angle(y: Real, x: Real) -> Real:
    """Compute atan(y / x) for y and x of at least 0, finite and not both 0."""
    # With one division: y/x, -x/y, or (y - x) / (y + x).
    steep = y > x * 2.414213562373095
    middle = y > x * 0.41421356237309503
    top = steep.pick(-x, middle.pick(y - x, y))
    bottom = steep.pick(y, middle.pick(y + x, x))
    t = top / bottom
    z = t * t
    quarter = HALF_PI[x.dtype] / 2
    start = steep.pick(x.of(2 * quarter), middle.pick(x.of(quarter), 0))
    rest = REST[x.dtype]
    extra = steep.pick(x.of(2 * rest), middle.pick(x.of(rest), 0))
    return start + (t + (z.polynomial(ATAN[x.dtype]).times(z * t, extra)))


def atan(x: Real) -> Real:
    """Compute atan x; error at most 2 ulp."""
    return outlined("atan", _atan, x)


def _atan(x: Real) -> Real:
    a = abs(x)
    large = 2.0**60
    a = (a > large).pick(a.of(large), a)
    value = _angle(a, a.of(1))
    return (a < 2.0**-30).pick(a, value).with_sign(x)


def atan2(y: Real, x: Real) -> Real:
    """Compute the angle of the point (x, y); error at most 3 ulp."""
    return outlined("atan2", _atan2, y, x)


def _atan2(y: Real, x: Real) -> Real:
    up, along = abs(y), abs(x)
    nan = y.compare("uno", x)
    # Both infinite count as equal; both zero as an angle of zero.
    infinite = up.compare("oeq", math.inf) & along.compare("oeq", math.inf)
    none = up.compare("oeq", 0) & along.compare("oeq", 0)
    # Sums of the largest numbers would overflow; quotients of denormals lose digits.
    large = (up > 2.0 ** (x.format.bias - 2)) | (along > 2.0 ** (x.format.bias - 2))
    small = (up < 2.0 ** (-x.format.bias // 2)) & (along < 2.0 ** (-x.format.bias // 2))
    factor = large.pick(x.of(0.25), small.pick(x.of(2.0 ** (x.format.digits + 2)), 1))
    above = infinite.pick(x.of(1), up * factor)
    beside = infinite.pick(x.of(1), none.pick(x.of(1), along * factor))
    # An angle near zero is the quotient itself, which may be denormal.
    flat = up / none.pick(x.of(1), along)
    angle = _angle(above, beside)
    tiny = flat < 2.0**-30
    angle = (tiny & infinite.flipped()).pick(flat, angle)
    angle = (up.compare("oeq", math.inf) & infinite.flipped()).pick(
        x.of(HALF_PI[x.dtype]), angle
    )
    # The sign of zero counts.
    left = x.bits().compare("slt", 0)
    half, rest = 2 * HALF_PI[x.dtype], 4 * REST[x.dtype]
    value = left.pick((half - (angle - rest)), angle).with_sign(y)
    return nan.pick(x + y, value)


def _asin_part(t: Real, z: Real) -> Real:
    """Compute asin(t) - t for t up to 1/2, z being its square."""
    return z.polynomial(ASIN[t.dtype]) * (z * t)


def _arc(a: Real) -> tuple[Real, Real, Real]:
    """Prepare asin of a: t, asin(t) - t, and sqrt's lost digits, where a > 1/2."""
    far = a > 0.5
    z = far.pick((1 - a) * 0.5, a * a)
    root = z.call("sqrt")
    t = far.pick(root, a)
    lost = product(root, root)
    gap = ((z - lost.high) - lost.low) / (root * 2)
    gap = (far & (root > 0)).pick(gap, 0)
    return t, _asin_part(t, z), gap


def asin(x: Real) -> Real:
    """Compute asin x; error at most 2 ulp."""
    return outlined("asin", _asin, x)


def _asin(x: Real) -> Real:
    a = abs(x)
    t, rest, gap = _arc(a)
    near = t + rest
    extra = 2 * REST[x.dtype]
    far = HALF_PI[x.dtype] - (2 * t - (extra - 2 * (rest + gap)))
    value = (a > 0.5).pick(far, near)
    return (a < 2.0**-30).pick(a, value).with_sign(x)


def acos(x: Real) -> Real:
    """Compute acos x; error at most 2 ulp."""
    return outlined("acos", _acos, x)


def _acos(x: Real) -> Real:
    a = abs(x)
    t, rest, gap = _arc(a)
    half, extra = HALF_PI[x.dtype], 2 * REST[x.dtype]
    near = half - (t.with_sign(x) - (extra - rest.with_sign(x)))
    right = 2 * (t + (rest + gap))
    left = 2 * half - (2 * t - 2 * (extra - (rest + gap)))
    far = (x > 0).pick(right, left)
    return (a > 0.5).pick(far, near)


def cbrt(x: Real) -> Real:
    """Compute the cube root; error at most 1 ulp."""
    return outlined("cbrt", _cbrt, x)


def _cbrt(x: Real) -> Real:
    a = abs(x)
    if x.single:
        wide, least = a.to("float64"), 2.0**-160
        t = _halley(_halley(_third(wide), wide), wide)
        value = t.to("float32").with_sign(x)
    else:
        small, large = a < 2.0**-900, a > 2.0**900
        factor = small.pick(a.of(2.0**600), large.pick(a.of(2.0**-600), 1))
        wide, least = a * factor, 2.0**-910
        t = _halley(_halley(_third(wide), wide), wide)
        # Cut short, so that its square is exact, for the last step.
        t = (t.bits() & -(1 << 30)).real("float64")
        ratio = wide / (t * t)
        t = t + t * ((ratio - t) / (t + t + ratio))
        back = small.pick(a.of(2.0**-200), large.pick(a.of(2.0**200), 1))
        value = (t * back).with_sign(x)
    # A denormal counts as zero where the process has it so.
    same = wide.compare("ult", least) | a.compare("oeq", math.inf)
    return same.pick(x, value)


def _third(a: Real) -> Real:
    """Guess a cube root of a normal float64 by a third of its bits; off by 5 %."""
    high = (a.bits() >> 32).to("int32")
    guess = (high.apply("udiv", 3) + 715094163).to("int64") << 32
    return guess.real("float64")


def _halley(t: Real, a: Real) -> Real:
    """Improve a cube root of a; the error is cubed."""
    cube = t * t * t
    return t * ((cube + a * 2) / (cube * 2 + a))
