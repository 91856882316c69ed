"""Operations that compute each element by itself, of one array or of several."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.ops.checks import all_of, broadcasting, kinds
from tilejax.ops.registry import Operation, Sample, declare as _declare

declare = partial(_declare, family="elementwise")


def _unary(
    name: str, function: Callable, doc: str, oracle: Callable, sample: str = "f32[2,3]"
) -> Operation:
    return declare(name, function, doc, oracle=oracle, samples=[sample])


def _binary(
    name: str,
    function: Callable,
    doc: str,
    oracle: Callable,
    kind: str = "number",
    sample: str = "f32[2,3] f32[3]",
) -> Operation:
    return declare(
        name,
        function,
        doc,
        operands="x, y",
        check=all_of(kinds(kind, "x", "y"), broadcasting("x", "y")),
        oracle=oracle,
        samples=[sample],
    )


def _cast(x, dtype):
    return jax.lax.convert_element_type(x, jnp.dtype(dtype))


def _clip(x, *, low=None, high=None):
    return jnp.clip(x, low, high)


abs = _unary("abs", jnp.abs, "Take the absolute value.", np.abs)
negative = _unary("negative", jnp.negative, "Change the sign.", np.negative)
sign = _unary("sign", jnp.sign, "Give -1, 0 or 1 by the sign.", np.sign)
square = _unary("square", jnp.square, "Multiply by itself.", np.square)
reciprocal = _unary("reciprocal", jnp.reciprocal, "Divide 1 by it.", np.reciprocal)
sqrt = _unary("sqrt", jnp.sqrt, "Take the square root.", np.sqrt, "f32+[2,3]")
rsqrt = _unary(
    "rsqrt",
    jax.lax.rsqrt,
    "Divide 1 by the square root.",
    lambda x: 1 / np.sqrt(x),
    "f32+[2,3]",
)
cbrt = _unary("cbrt", jnp.cbrt, "Take the cube root.", np.cbrt)
exp = _unary("exp", jnp.exp, "Raise e to its power.", np.exp)
exp2 = _unary("exp2", jnp.exp2, "Raise 2 to its power.", np.exp2)
expm1 = _unary("expm1", jnp.expm1, "Raise e to its power, less 1.", np.expm1)
log = _unary("log", jnp.log, "Take the natural logarithm.", np.log, "f32+[2,3]")
log2 = _unary("log2", jnp.log2, "Take the logarithm to base 2.", np.log2, "f32+[2,3]")
log10 = _unary(
    "log10", jnp.log10, "Take the logarithm to base 10.", np.log10, "f32+[2,3]"
)
log1p = _unary("log1p", jnp.log1p, "Take the logarithm of 1 more.", np.log1p, "f32+[3]")
sin = _unary("sin", jnp.sin, "Take the sine.", np.sin)
cos = _unary("cos", jnp.cos, "Take the cosine.", np.cos)
tan = _unary("tan", jnp.tan, "Take the tangent.", np.tan)
arctan = _unary("arctan", jnp.arctan, "Take the inverse tangent.", np.arctan)
sinh = _unary("sinh", jnp.sinh, "Take the hyperbolic sine.", np.sinh)
cosh = _unary("cosh", jnp.cosh, "Take the hyperbolic cosine.", np.cosh)
tanh = _unary("tanh", jnp.tanh, "Take the hyperbolic tangent.", np.tanh)
floor = _unary("floor", jnp.floor, "Round down.", np.floor)
ceil = _unary("ceil", jnp.ceil, "Round up.", np.ceil)
round = _unary("round", jnp.round, "Round to the nearest, ties to even.", np.round)
isnan = _unary("isnan", jnp.isnan, "Say which are NaN.", np.isnan)
isfinite = _unary("isfinite", jnp.isfinite, "Say which are finite.", np.isfinite)
logical_not = _unary(
    "logical_not", jnp.logical_not, "Negate truth.", np.logical_not, "bool[2,3]"
)
stop_gradient = _unary(
    "stop_gradient", jax.lax.stop_gradient, "Let no gradient through.", lambda x: x
)
cast = declare(
    "cast",
    _cast,
    "Convert to another dtype.",
    operands="x, dtype=",
    oracle=lambda x, dtype: x.astype(dtype),
    samples=[Sample("f32[2,3]", {"dtype": "int32"})],
)
clip = declare(
    "clip",
    _clip,
    "Limit to a range; None leaves a side open.",
    oracle=lambda x, low=None, high=None: np.clip(x, low, high),
    samples=[Sample("f32[2,3]", {"low": -0.5, "high": 0.5})],
)

add = _binary("add", jnp.add, "Add.", np.add)
subtract = _binary("subtract", jnp.subtract, "Subtract y from x.", np.subtract)
multiply = _binary("multiply", jnp.multiply, "Multiply.", np.multiply)
divide = _binary("divide", jnp.divide, "Divide x by y.", np.divide)
floor_divide = _binary(
    "floor_divide", jnp.floor_divide, "Divide x by y and round down.", np.floor_divide
)
remainder = _binary(
    "remainder", jnp.remainder, "Give what is left of x / y, of y's sign.", np.remainder
)
power = _binary(
    "power",
    jnp.power,
    "Raise x to the power y.",
    np.power,
    sample="f32+[2,3] f32[3]",
)
maximum = _binary("maximum", jnp.maximum, "Take the larger of two.", np.maximum)
minimum = _binary("minimum", jnp.minimum, "Take the smaller of two.", np.minimum)
arctan2 = _binary("arctan2", jnp.arctan2, "Take the angle of (y, x).", np.arctan2)
equal = _binary("equal", jnp.equal, "Say where x = y.", np.equal)
not_equal = _binary("not_equal", jnp.not_equal, "Say where x differs.", np.not_equal)
less = _binary("less", jnp.less, "Say where x < y.", np.less)
less_equal = _binary("less_equal", jnp.less_equal, "Say where x <= y.", np.less_equal)
greater = _binary("greater", jnp.greater, "Say where x > y.", np.greater)
greater_equal = _binary(
    "greater_equal", jnp.greater_equal, "Say where x >= y.", np.greater_equal
)
logical_and = _binary(
    "logical_and",
    jnp.logical_and,
    "Say where both are true.",
    np.logical_and,
    sample="bool[2,3] bool[3]",
)
logical_or = _binary(
    "logical_or",
    jnp.logical_or,
    "Say where one is true.",
    np.logical_or,
    sample="bool[2,3] bool[3]",
)
logical_xor = _binary(
    "logical_xor",
    jnp.logical_xor,
    "Say where just one is true.",
    np.logical_xor,
    sample="bool[2,3] bool[3]",
)
bitwise_and = _binary(
    "bitwise_and",
    jnp.bitwise_and,
    "And bits.",
    np.bitwise_and,
    "bits",
    "i32[2,3] i32[3]",
)
bitwise_or = _binary(
    "bitwise_or", jnp.bitwise_or, "Or bits.", np.bitwise_or, "bits", "i32[2,3] i32[3]"
)
bitwise_xor = _binary(
    "bitwise_xor",
    jnp.bitwise_xor,
    "Give the bits that differ.",
    np.bitwise_xor,
    "bits",
    "i32[2,3] i32[3]",
)
where = declare(
    "where",
    jnp.where,
    "Take x where the condition is true, and y elsewhere.",
    operands="condition, x, y",
    check=broadcasting("condition", "x", "y"),
    oracle=np.where,
    samples=["bool[2,3] f32[3] f32[2,3]"],
)
