"""The error function, its complement and its inverse.

The complement is e^(-x^2) times a polynomial in (x - 4) / (x + 4), an arrangement that
M. M. Shepherd and J. G. Laframboise gave (Chebyshev Approximation of
(1 + 2x) exp(x^2) erfc x, 1981). The inverse is a polynomial in -log(1 - x^2), or in its
root (M. Giles, Approximating the erfinv Function, 2011). The coefficients interpolate
at Chebyshev's nodes; they were computed for this place.
"""

import math

from tilejax.lowering.cpu.math.exponential import exp, exp_part
from tilejax.lowering.cpu.math.logarithm import log
from tilejax.lowering.cpu.math.real import Real, outlined

# erf(x) / x - 1 in x^2, for |x| <= 1
ERF = {
    "float32": (
        0.12837916612625122,
        -0.3761262595653534,
        0.11283594369888306,
        -0.02685421146452427,
        0.005189087241888046,
        -0.000801686430349946,
        7.875874871388078e-05,
    ),
    "float64": (
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954879,
        -0.026866170645076792,
        0.0052239776248180145,
        -0.000854832698083379,
        0.0001205533111164271,
        -1.4925595266831182e-05,
        1.6461000484121368e-06,
        -1.6350312701054695e-07,
        1.4659775274047436e-08,
        -1.1372848856791674e-09,
        5.957176147748911e-11,
    ),
}
# log(erfc x) in x, for x from 1 to 4
LOG_ERFC = (
    0.0003201380604878068,
    -1.1302334070205688,
    -0.6318260431289673,
    -0.11008008569478989,
    0.026421135291457176,
    -0.004759596195071936,
    0.0005968056502752006,
    -4.605804133461788e-05,
    1.6371513993362896e-06,
)
# (1 + 2 x) exp(x^2) erfc(x) in (x - 4) / (x + 4), for x from 1/2 to 28
ERFC = {
    "float32": (
        1.232995116105286,
        -0.1396211077971656,
        0.015379962574164357,
        0.06809666957148247,
        -0.10104528926270802,
        0.09373738434044541,
        -0.06628451874146607,
        0.037145174562749766,
        -0.016351571131059697,
        0.005083314870176971,
        -0.0005160391629274581,
        -0.0002539200064868431,
    ),
    "float64": (
        1.2329951186255526,
        -0.1396211168405625,
        0.015379652102619901,
        0.06809705425468844,
        -0.1010390660363143,
        0.09373283499853434,
        -0.06633036581196795,
        0.03716751553379472,
        -0.016197734061059108,
        0.00503197001856426,
        -0.0007577732634973155,
        -0.00019925696553927866,
        0.00015062155590137163,
        -2.4398057333996413e-05,
        -1.1221668942295945e-05,
        5.706494720146254e-06,
        2.9313186423696087e-07,
        -8.195085083459565e-07,
        7.540467350144586e-08,
        1.03256669073015e-07,
        -1.8406671051403966e-08,
        -9.652213521087604e-09,
        1.971765676504979e-09,
    ),
}
# erfinv(x) / x in w - 5/2, w = -log(1 - x^2), for w up to 5
NEAR = {
    "float32": (
        1.5014093517481764,
        0.24664027674858424,
        -0.004177325080457763,
        -0.0012527079573557702,
        0.0002182641252155226,
        -4.996000110143956e-06,
        -3.426266209734268e-06,
        4.786897084558858e-07,
        1.650364404121373e-08,
        -1.0861761271594343e-08,
        4.340626803853993e-10,
        1.2346577114502573e-10,
    ),
    "float64": (
        1.501409351110792,
        0.246640276744167,
        -0.004177317724383624,
        -0.0012527079078110321,
        0.00021825026434406123,
        -4.996079598850206e-06,
        -3.416619596565087e-06,
        4.787252185239e-07,
        1.3416803755242823e-08,
        -1.0861168938287872e-08,
        9.073036495405582e-10,
        1.1960698817209524e-10,
        -3.110278672226475e-11,
        9.115660381671943e-13,
        5.356343166393055e-13,
        -7.612669130138496e-14,
        -2.8811110175240593e-15,
        1.896729354143592e-15,
        -1.3661917890666732e-16,
        -2.6828646429085144e-17,
        4.909393921888345e-18,
        1.700908089393591e-19,
        -6.890747263782666e-20,
    ),
}
# The same in sqrt(w) - 3, for w from 5 to 16
MIDDLE = {
    "float32": (
        2.8329767990604657,
        1.0016749887158993,
        0.00944545034395216,
        -0.0076377741029420914,
        0.005685348036517603,
        -0.003594595006255951,
        0.0014898368981133764,
        -6.295263263725584e-05,
        -0.00031371557214023157,
        0.00012038586342031332,
    ),
    "float64": (
        2.8329767987282706,
        1.001675276693409,
        0.009445522011997158,
        -0.007643805570913372,
        0.005685182418131989,
        -0.003558793992790838,
        0.001483737326356077,
        -0.0001488983849996746,
        -0.0002831241135229576,
        0.00020551840996114058,
        -4.646294460959671e-05,
        -2.2879613175213287e-05,
        2.194599930062603e-05,
        -5.9353032515773036e-06,
        -1.6828375713171478e-06,
        1.991808889088056e-06,
        -5.979458242058571e-07,
        -9.072430310329018e-08,
        1.3229947608063454e-07,
        -4.134322178634206e-08,
        4.48994534301089e-09,
    ),
}
# The same in sqrt(w) - 5, for w from 16 to 37
END = (
    4.849906401408585,
    1.010300464864534,
    -0.00013871931846279347,
    -0.00021503011928692775,
    7.599527970149839e-05,
    -1.9681778211470945e-05,
    4.526041176109241e-06,
    -9.929824362731265e-07,
    2.2908899336184043e-07,
    -6.771217033066743e-08,
    2.896863203807144e-08,
    -1.496052609384343e-08,
    7.827098893355554e-09,
    -3.788651325903228e-09,
    1.3779954356215022e-09,
    -2.559067431030417e-10,
    5.180570547264701e-12,
)


def erf(x: Real) -> Real:
    """Compute erf x; error at most 2 ulp."""
    return _erf_single(x) if x.single else outlined("erf", _erf_double, x)


def _erf_single(x: Real) -> Real:
    a = abs(x)
    a = (a > 4).pick(a.of(4), a)
    z = a * a
    near = z.polynomial(ERF["float32"]).times(a, a)
    far = 1 - exp_part(a.polynomial(LOG_ERFC))
    return (a > 1).pick(far, near).with_sign(x)


def _erf_double(x: Real) -> Real:
    a = abs(x)
    a = (a > 6).pick(a.of(6), a)
    z = a * a
    near = z.polynomial(ERF["float64"]).times(a, a)
    return (a > 1).pick(1 - _erfc_far(a), near).with_sign(x)


def erfc(x: Real) -> Real:
    """Compute 1 - erf x; error at most 1 ulp in float32, 4 ulp in float64."""
    return outlined("erfc", _erfc, x)


def _erfc(x: Real) -> Real:
    single = x.single
    wide = x.to("float64")
    a = abs(wide)
    a = (a > 28).pick(a.of(28), a)
    far = _erfc_far(a, single)
    z = a * a
    # Half is subtracted first, which is exact, so that 1 - erf loses nothing.
    small = z.polynomial(ERF["float32" if single else "float64"]) * wide
    near = 0.5 - (wide - 0.5 + small)
    value = (wide < 0).pick(2 - far, far)
    value = (a < 0.65).pick(near, value)
    return value.to(x.dtype)


def _erfc_far(a: Real, single: bool = False) -> Real:
    """Compute erfc of a float64 from 1/2 to 28."""
    q = (a - 4) / (a + 4)
    scaled = q.polynomial(ERFC["float32" if single else "float64"])
    if single:
        return exp(-(a * a)) * (scaled / (a * 2 + 1))
    # The square to twice the digits: a short one, and what is left.
    short = (a.bits() & -(1 << 32)).real("float64")
    lost = (short - a) * (short + a)
    return exp(-(short * short)) * (exp_part(lost) * (scaled / (a * 2 + 1)))


def erf_inv(x: Real) -> Real:
    """Compute the inverse of erf; error at most 1 ulp in float32, 8 ulp in float64."""
    return outlined("erf_inv", _erf_inv, x)


def _erf_inv(x: Real) -> Real:
    dtype = x.dtype
    a = x.to("float64")
    w = -log((1 - a) * (1 + a))
    root = w.call("sqrt")
    near = (w - 2.5).polynomial(NEAR[dtype])
    value = (root - 3).polynomial(MIDDLE[dtype])
    if not x.single:
        value = (w > 16).pick((root - 5).polynomial(END), value)
    value = (w < 5).pick(near, value) * a
    return abs(x).compare("oeq", 1).pick(x * math.inf, value.to(dtype))
