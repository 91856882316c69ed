"""Sine, cosine and tangent.

Arguments to about a million are reduced by multiples of pi / 2 in three parts (W. J.
Cody and W. Waite, Software Manual for the Elementary Functions, 1980, with the split
of FreeBSD's msun); larger ones one lane at a time, by the digits of 2 / pi that matter
(M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions, 1983). The
coefficients interpolate at Chebyshev's nodes; they were computed for this place.
"""

import math
from collections.abc import Callable

from tilejax.lowering.cpu.math.exponential import MAGIC
from tilejax.lowering.cpu.math.far import far_reduction
from tilejax.lowering.cpu.math.lanes import each_lane
from tilejax.lowering.cpu.math.real import Real, Whole
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import TYPES, Elt

# (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 in r^2, for |r| <= pi / 4
SIN = {
    "float32": (
        -0.166666641831398,
        0.008332724682986736,
        -0.00019582831009756774,
    ),
    "float64": (
        -0.16666666666666666,
        0.008333333333333331,
        -0.00019841269841264567,
        2.7557319218954762e-06,
        -2.505210610025599e-08,
        1.6058510875319195e-10,
        -7.585486485235938e-13,
    ),
}
COS = {
    "float32": (
        0.0416666641831398,
        -0.0013888279208913445,
        2.4542870960431173e-05,
    ),
    "float64": (
        0.041666666666666664,
        -0.0013888888888887241,
        2.480158729853226e-05,
        -2.7557317151858866e-07,
        2.0876121534608454e-09,
        -1.1380868171449914e-11,
    ),
}
# pi / 2: products of the first two parts with 20 bits are exact.
HALF_PI = (
    1.57079632673412561417e00,
    6.07710050630396597660e-11,
    2.02226624879595063154e-21,
)
FAR = 2.0**20
# Below it sine and tangent are the argument, -0 among them.
TINY = 2.0**-28


def near_reduction(x: Real) -> tuple[Real, Real, Whole]:
    """Write a float64 below 2^20 as n pi/2 + r + rest, and return r, rest and n."""
    shifted = x.times(2 / math.pi, MAGIC["float64"])
    n = shifted - MAGIC["float64"]
    first, second, third = HALF_PI
    r = x - n * first
    step = n * second
    s = r - step
    lost = (r - s) - step
    last = n * third - lost
    high = s - last
    return high, (s - high) - last, shifted.bits()


def sine_near_zero(r: Real, rest: Real) -> Real:
    """Compute sin(r + rest) for |r| up to pi / 4."""
    z = r * r
    cube = z * r
    return r + (z.polynomial(SIN[r.dtype]).times(cube, rest))


def cosine_near_zero(r: Real, rest: Real) -> Real:
    """Compute cos(r + rest) for |r| up to pi / 4."""
    z = r * r
    half = z * 0.5
    top = 1 - half
    lost = (1 - top) - half
    return top + (z.polynomial(COS[r.dtype]).times(z * z, lost) - r * rest)


def _sine(r: Real, rest: Real, n: Whole) -> Real:
    return _turned(sine_near_zero(r, rest), cosine_near_zero(r, rest), n)


def _cosine(r: Real, rest: Real, n: Whole) -> Real:
    return _turned(sine_near_zero(r, rest), cosine_near_zero(r, rest), n + 1)


def _turned(sine: Real, cosine: Real, n: Whole) -> Real:
    """Pick by the quarter of the circle."""
    odd = (n & 1).compare("ne", 0)
    value = odd.pick(cosine, sine)
    return (n & 2).compare("ne", 0).pick(-value, value)


def _tangent(r: Real, rest: Real, n: Whole) -> Real:
    sine, cosine = sine_near_zero(r, rest), cosine_near_zero(r, rest)
    odd = (n & 1).compare("ne", 0)
    return odd.pick(-cosine, sine) / odd.pick(sine, cosine)


_FORMULAS: dict[str, Callable[[Real, Real, Whole], Real]] = {
    "sin": _sine,
    "cos": _cosine,
    "tan": _tangent,
}


def _near(name: str, x: Real) -> Real:
    r, rest, n = near_reduction(x.to("float64"))
    r, rest = r.to(x.dtype), rest.to(x.dtype)
    if x.single:
        n, rest = n.to("int32"), r.of(0)
    value = _FORMULAS[name](r, rest, n)
    if name == "cos":
        return value
    return (abs(x) < TINY).pick(x, value)


def _define_far(name: str) -> Callable[[Module, str, str], None]:
    """Make what adds the scalar function for arguments of any size."""

    def define(module: Module, symbol: str, dtype: str) -> None:
        ty = TYPES[dtype]
        header = f"define internal {ty} {symbol}({ty} %x) nounwind noinline cold"
        function = Function(module, header)
        nest = Nest(function)
        x = Real(nest, Elt("%x", dtype))
        whole = x.to("float64")
        large = abs(whole) > FAR
        far = far_reduction(large.pick(whole, FAR))
        value = _FORMULAS[name](*far).to(dtype)
        result = large.pick(value, _near(name, x))
        nest.flush()
        function.finish(f"ret {ty} {result.elt.text}")

    return define


def _function(name: str, x: Real) -> Real:
    """Call the vector's function, which looks whether any argument is large."""
    nest, dtype = x.nest, x.dtype
    vector, (text,) = nest.operands(x.elt)
    ty = nest.spell(dtype, vector)
    symbol = f"@math.{name}.{f'v{nest.lanes}' if vector else ''}{TYPES[dtype]}"
    module = nest.function.module
    if symbol[1:] not in module.functions:
        _add(module, name, symbol, dtype, vector)
    return Real(
        nest, Elt(nest.emit(f"call {ty} {symbol}({ty} {text})", text), dtype, vector)
    )


def _add(module: Module, name: str, symbol: str, dtype: str, vector: bool) -> None:
    lanes = module.host.lanes
    ty = f"<{lanes} x {TYPES[dtype]}>" if vector else TYPES[dtype]
    function = Function(module, f"define internal {ty} {symbol}({ty} %x) nounwind")
    x = Elt("%x", dtype, vector)
    test = Nest(function)
    real = Real(test, x)
    large = test.operands((abs(real) > FAR).elt)[1][0]
    if vector:
        bits = test.emit(f"bitcast <{lanes} x i1> {large} to i{lanes}", large)
        large = test.emit(f"icmp ne i{lanes} {bits}, 0", bits)
    test.flush()
    near, far, end = function.label(), function.label(), function.label()
    function.lines += [f"br i1 {large}, label %{far}, label %{near}", f"{near}:"]
    results = []
    for label, compute in (
        (near, lambda x: _near(name, x)),
        (far, lambda x: each_lane(f"{name}.far", _define_far(name), x)),
    ):
        if label == far:
            function.lines.append(f"{far}:")
        nest = Nest(function)
        results.append(compute(Real(nest, x)).elt.text)
        nest.flush()
        function.lines.append(f"br label %{end}")
    merged = function.name()
    function.lines += [
        f"{end}:",
        f"{merged} = phi {ty} [ {results[0]}, %{near} ], [ {results[1]}, %{far} ]",
    ]
    function.finish(f"ret {ty} {merged}")


def sin(x: Real) -> Real:
    """Compute sin x for arguments of any size; error at most 1.5 ulp."""
    return _function("sin", x)


def cos(x: Real) -> Real:
    """Compute cos x for arguments of any size; error at most 1.5 ulp."""
    return _function("cos", x)


def tan(x: Real) -> Real:
    """Compute tan x for arguments of any size; error at most 3.5 ulp."""
    return _function("tan", x)
