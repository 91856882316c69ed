"""Mathematical functions as rules: computed in float32 or float64, rounded after."""

from collections.abc import Callable

from tilejax.lowering.cpu.elementwise_arithmetic import Rule, floating
from tilejax.lowering.cpu.elementwise_convert import convert
from tilejax.lowering.cpu.math import (
    error,
    exponential,
    inverse,
    logarithm,
    power,
    rounding,
    trigonometric,
)
from tilejax.lowering.cpu.math.real import Real
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


def of_reals(function: Callable[..., Real]) -> Rule:
    """Make a rule of a function of real numbers."""

    def apply(nest: Nest, *args: Elt) -> Elt:
        return function(*(Real(nest, a) for a in args)).elt

    return floating(apply)


def _sqrt(x: Real) -> Real:
    return x.call("sqrt")


def _rsqrt(x: Real) -> Real:
    return 1 / x.call("sqrt")


_POWER = of_reals(power.power)


def _pow(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    # The exponent may be an integer, which JAX converts.
    return _POWER(nest, [args[0], convert(nest, args[1], dtype)], dtype, params)


def _round(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    # The method is 0 for away from zero, 1 for to even.
    away = int(params["rounding_method"]) == 0
    return (_AWAY if away else _EVEN)(nest, args, dtype, params)


_AWAY, _EVEN = of_reals(rounding.away), of_reals(rounding.to_even)

RULES: dict[str, tuple[Rule, int]] = {
    "floor": (of_reals(rounding.floor), 1),
    "ceil": (of_reals(rounding.ceil), 1),
    "round": (_round, 3),
    "sqrt": (of_reals(_sqrt), 4),
    "rsqrt": (of_reals(_rsqrt), 8),
    "exp": (of_reals(exponential.exp), 14),
    "exp2": (of_reals(exponential.exp2), 14),
    "expm1": (of_reals(exponential.expm1), 20),
    "logistic": (of_reals(exponential.logistic), 24),
    "tanh": (of_reals(exponential.tanh), 24),
    "sinh": (of_reals(exponential.sinh), 50),
    "cosh": (of_reals(exponential.cosh), 24),
    "sin": (of_reals(trigonometric.sin), 40),
    "cos": (of_reals(trigonometric.cos), 40),
    "tan": (of_reals(trigonometric.tan), 50),
    "asin": (of_reals(inverse.asin), 40),
    "acos": (of_reals(inverse.acos), 40),
    "atan": (of_reals(inverse.atan), 30),
    "atan2": (of_reals(inverse.atan2), 50),
    "cbrt": (of_reals(inverse.cbrt), 60),
    "pow": (_pow, 70),
    "erf": (of_reals(error.erf), 34),
    "erfc": (of_reals(error.erfc), 80),
    "erf_inv": (of_reals(error.erf_inv), 90),
    "log": (of_reals(logarithm.log), 28),
    "log2": (of_reals(logarithm.log2), 30),
    "log1p": (of_reals(logarithm.log1p), 34),
    "asinh": (of_reals(logarithm.asinh), 80),
    "acosh": (of_reals(logarithm.acosh), 80),
    "atanh": (of_reals(logarithm.atanh), 42),
}
"""By a primitive's name: its rule, and about how many instructions that is."""
