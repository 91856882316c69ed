"""Sums, products, quotients, extremes and comparisons of elements."""

from collections.abc import Callable

from tilejax.lowering.cpu.elementwise_convert import (
    as_integer,
    bits_of,
    convert,
    narrow,
    wide,
)
from tilejax.lowering.cpu.math.real import Real
from tilejax.lowering.cpu.math.rounding import remainder
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt, is_float, is_unsigned

Rule = Callable[[Nest, list[Elt], str, dict], Elt]


def zero(dtype: str) -> Elt:
    """Make the integer zero."""
    return Elt("false" if dtype == "bool" else "0", dtype)


def floating(function: Callable[..., Elt]) -> Rule:
    """Make a rule of a function on float32 or float64 elements.

    Narrower floats are widened to float32, and the result rounded once.
    """

    def rule(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
        return narrow(nest, function(nest, *(wide(nest, a) for a in args)), dtype)

    return rule


def add(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Add; a vector that is base + lane stays one when a uniform number is added."""
    a, b = args
    if is_float(dtype):
        return narrow(nest, nest.add(wide(nest, a), wide(nest, b)), dtype)
    if dtype == "bool":
        return nest.binary("or", a, b)
    if b.base is not None and not a.vector:
        a, b = b, a
    if a.base is not None and not b.vector:
        start = nest.binary("add", Elt(a.base, dtype), b)
        return Elt("", dtype, True, start.text)
    return nest.binary("add", a, b)


def sub(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Subtract; a vector that is base + lane stays one less a uniform number."""
    a, b = args
    if is_float(dtype):
        return narrow(nest, nest.sub(wide(nest, a), wide(nest, b)), dtype)
    if a.base is not None and not b.vector:
        start = nest.binary("sub", Elt(a.base, dtype), b)
        return Elt("", dtype, True, start.text)
    if a.base is not None and b.base is not None:
        return nest.binary("sub", Elt(a.base, dtype), Elt(b.base, dtype))
    return nest.binary("sub", a, b)


def mul(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Multiply."""
    a, b = args
    if is_float(dtype):
        return narrow(nest, nest.mul(wide(nest, a), wide(nest, b)), dtype)
    return nest.binary("and" if dtype == "bool" else "mul", a, b)


def div(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Divide; an integer by zero is -1, the smallest one by -1 itself."""
    a, b = args
    if is_float(dtype):
        return narrow(nest, nest.binary("fdiv", wide(nest, a), wide(nest, b)), dtype)
    by_zero, whole = _divide(nest, a, b)
    return nest.select(by_zero, Elt("-1", dtype), whole)


def rem(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Take the remainder, of the dividend's sign; an integer by zero leaves itself."""
    a, b = args
    if is_float(dtype):
        x, y = Real(nest, wide(nest, a)), Real(nest, wide(nest, b))
        return narrow(nest, remainder(x, y).elt, dtype)
    by_zero, whole = _divide(nest, a, b)
    left = nest.binary("sub", a, nest.binary("mul", whole, b))
    return nest.select(by_zero, a, left)


def _divide(nest: Nest, a: Elt, b: Elt) -> tuple[Elt, Elt]:
    """Tell where b is zero, and divide where it is not."""
    dtype, unsigned = a.dtype, is_unsigned(a.dtype)
    if not b.text.startswith("%") and not b.vector and int(b.text) not in (0, -1):
        # LLVM multiplies by the inverse of a constant.
        return zero("bool"), nest.binary("udiv" if unsigned else "sdiv", a, b)
    by_zero = trap = nest.compare("eq", b, zero(dtype))
    if not unsigned:
        # The smallest number by -1 overflows, which traps too; by 1 it is the answer.
        lowest = Elt(str(-(2 ** (bits_of(dtype) - 1))), dtype)
        overflow = nest.binary(
            "and",
            nest.compare("eq", a, lowest),
            nest.compare("eq", b, Elt("-1", dtype)),
        )
        trap = nest.binary("or", trap, overflow)
    safe = nest.select(trap, Elt("1", dtype), b)
    if bits_of(dtype) == 64 or not (a.vector or b.vector):
        return by_zero, nest.binary("udiv" if unsigned else "sdiv", a, safe)
    # Vectors have no integer division. A quotient of floats never rounds up to the
    # next integer: it is at least 1/b away, and the digits suffice to tell.
    real = "float64" if bits_of(dtype) == 32 else "float32"
    quotient = nest.binary("fdiv", convert(nest, a, real), convert(nest, safe, real))
    return by_zero, nest.cast("fptoui" if unsigned else "fptosi", quotient, dtype)


def extreme(name: str) -> Rule:
    """Make the rule of `max` or `min`: NaN wins, and -0 is less than 0."""

    def rule(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
        a, b = args
        if is_float(dtype):
            return narrow(
                nest, _extreme(nest, name, wide(nest, a), wide(nest, b)), dtype
            )
        if dtype == "bool":
            return nest.binary("or" if name == "max" else "and", a, b)
        return nest.intrinsic(f"{'u' if is_unsigned(dtype) else 's'}{name}", a, b)

    return rule


def _extreme(nest: Nest, name: str, a: Elt, b: Elt) -> Elt:
    width, suffix = {"float": (16, "ps"), "double": (8, "pd")}[a.type]
    vector, (x, y) = nest.operands(a, b)
    has = nest.function.module.host.has("avx512dq")
    if not (has and vector and nest.lanes == width):
        return nest.intrinsic(f"{name}imum", a, b)
    # This instruction orders zeros, but prefers a number to NaN.
    ty, mask = f"<{width} x {a.type}>", f"i{width}"
    symbol = f"@llvm.x86.avx512.mask.range.{suffix}.512"
    nest.function.module.declare(
        f"declare {ty} {symbol}({ty}, {ty}, i32, {ty}, {mask}, i32)"
    )
    kind = 5 if name == "max" else 4
    args = f"{ty} {x}, {ty} {y}, i32 {kind}, {ty} zeroinitializer, {mask} -1, i32 4"
    best = Elt(nest.emit(f"call {ty} {symbol}({args})", x, y), a.dtype, True)
    return nest.select(nest.compare("uno", a, b), nest.binary("fadd", a, b), best)


maximum, minimum = extreme("max"), extreme("min")

_PREDICATES = {
    "lt": ("olt", "lt"),
    "le": ("ole", "le"),
    "gt": ("ogt", "gt"),
    "ge": ("oge", "ge"),
    "eq": ("oeq", "eq"),
    "ne": ("une", "ne"),
}


def comparison(name: str) -> Rule:
    """Make the rule of a comparison."""
    ordered, whole = _PREDICATES[name]

    def rule(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
        a, b = args
        if is_float(a.dtype):
            return nest.compare(ordered, wide(nest, a), wide(nest, b))
        if whole in ("eq", "ne"):
            return nest.compare(whole, a, b)
        return nest.compare(f"{'u' if is_unsigned(a.dtype) else 's'}{whole}", a, b)

    return rule


def total_order(name: str) -> Rule:
    """Make the rule of a comparison that orders -NaN, -0, 0 and NaN, too."""
    plain = comparison(name)

    def key(nest: Nest, e: Elt) -> Elt:
        if not is_float(e.dtype):
            return e
        if e.dtype.endswith("fnuz"):
            # The only NaN has the sign bit, and no other NaN or zero is there.
            e = wide(nest, e)
        bits = as_integer(nest, e)
        width = bits_of(e.dtype)
        spread = nest.binary("ashr", bits, Elt(str(width - 1), bits.dtype))
        flip = nest.binary("and", spread, Elt(str(2 ** (width - 1) - 1), bits.dtype))
        return nest.binary("xor", bits, flip)

    def rule(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
        return plain(nest, [key(nest, a) for a in args], dtype, params)

    return rule


def neg(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Change the sign, of a NaN too."""
    (a,) = args
    if not is_float(dtype):
        return nest.binary("sub", zero(dtype), a)
    if dtype.endswith("fnuz"):
        # There is no -0: its bits are NaN's.
        return narrow(nest, nest.unary("fneg", wide(nest, a)), dtype)
    bits = as_integer(nest, a)
    flipped = nest.binary("xor", bits, Elt(_sign_bit(dtype), bits.dtype))
    return _back(nest, flipped, dtype)


def absolute(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Drop the sign; the smallest integer stays itself."""
    (a,) = args
    if is_unsigned(dtype):
        return a
    if not is_float(dtype):
        negative = nest.compare("slt", a, zero(dtype))
        return nest.select(negative, nest.binary("sub", zero(dtype), a), a)
    if dtype.endswith("fnuz"):
        return narrow(nest, nest.intrinsic("fabs", wide(nest, a)), dtype)
    bits = as_integer(nest, a)
    rest = str(2 ** (bits_of(dtype) - 1) - 1)
    return _back(nest, nest.binary("and", bits, Elt(rest, bits.dtype)), dtype)


def sign(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Return -1, 0 or 1; zeros and NaN as they are."""
    (a,) = args
    if is_unsigned(dtype):
        return convert(nest, nest.compare("ne", a, zero(dtype)), dtype)
    if not is_float(dtype):
        up = convert(nest, nest.compare("sgt", a, zero(dtype)), dtype)
        down = convert(nest, nest.compare("slt", a, zero(dtype)), dtype)
        return nest.binary("sub", up, down)
    x = wide(nest, a)
    one = nest.intrinsic("copysign", nest.constant(1, x.dtype), x)
    same = nest.compare("ueq", x, nest.constant(0, x.dtype))
    return narrow(nest, nest.select(same, x, one), dtype)


def clamp(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Bring the second operand between the first and the third."""
    least, a, most = args
    above = maximum(nest, [least, a], dtype, params)
    return minimum(nest, [above, most], dtype, params)


def square(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Multiply by itself."""
    return mul(nest, [args[0], args[0]], dtype, params)


def one_minus_square(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Compute 1 - x^2 as (1 - x) (1 + x)."""
    one = nest.constant(1, dtype)
    factors = [f(nest, [one, args[0]], dtype, {}) for f in (sub, add)]
    return mul(nest, factors, dtype, {})


def integer_pow(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Raise to a constant integer power, by squaring; rounded after each product."""
    (x,), power = args, params["y"]
    one = nest.constant(1, dtype)
    if power == 0:
        return one
    result, left = None, abs(power)
    while left:
        if left & 1:
            result = x if result is None else mul(nest, [result, x], dtype, {})
        left >>= 1
        if left:
            x = mul(nest, [x, x], dtype, {})
    assert result is not None
    return div(nest, [one, result], dtype, {}) if power < 0 else result


def _sign_bit(dtype: str) -> str:
    return str(-(2 ** (bits_of(dtype) - 1)))


def _back(nest: Nest, bits: Elt, dtype: str) -> Elt:
    if bits.type == "i8":
        return Elt(bits.text, dtype, bits.vector)
    return nest.cast("bitcast", bits, dtype)
