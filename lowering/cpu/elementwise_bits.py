"""Logic, shifts, counts of bits, and what takes a float by its bits."""

from tilejax.lowering.cpu.elementwise_arithmetic import Rule, zero
from tilejax.lowering.cpu.elementwise_convert import (
    as_integer,
    bitcast,
    bits_of,
    convert,
    narrow,
    wide,
)
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import TYPES, Elt, is_float8, is_unsigned


def logical(name: str) -> Rule:
    """Make the rule of `and`, `or` or `xor`."""
    return lambda nest, args, dtype, params: nest.binary(name, *args)


def invert(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Flip all bits."""
    ones = Elt("true" if dtype == "bool" else "-1", dtype)
    return nest.binary("xor", args[0], ones)


def shift(instruction: str) -> Rule:
    """Make the rule of a shift; one by the width or more leaves zero, or the sign."""

    def rule(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
        a, by = args
        width = bits_of(dtype)
        if not by.text.startswith("%") and not by.vector:
            if 0 <= int(by.text) < width:
                return nest.binary(instruction, a, by)
        last = Elt(str(width - 1), dtype)
        least = nest.intrinsic("umin", by, last)
        moved = nest.binary(instruction, a, least)
        if instruction == "ashr":
            return moved
        return nest.select(nest.compare("ugt", by, last), zero(dtype), moved)

    return rule


def population_count(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Count the ones."""
    return nest.intrinsic("ctpop", args[0])


def leading_zeros(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Count the zeros before the first one."""
    vector, (x,) = nest.operands(args[0])
    ty = nest.spell(dtype, vector)
    name = f"@llvm.ctlz.{f'v{nest.lanes}' if vector else ''}{TYPES[dtype]}"
    nest.function.module.declare(f"declare {ty} {name}({ty}, i1)")
    return Elt(nest.emit(f"call {ty} {name}({ty} {x}, i1 false)", x), dtype, vector)


def mulhi(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Return the upper half of the product of two integers."""
    vector, (x, y) = nest.operands(*args)
    width = bits_of(dtype)
    small, large = nest.spell(dtype, vector), f"i{2 * width}"
    count = f"splat (i{2 * width} {width})" if vector else str(width)
    large = f"<{nest.lanes} x {large}>" if vector else large
    how = "zext" if is_unsigned(dtype) else "sext"
    a = nest.emit(f"{how} {small} {x} to {large}", x)
    b = nest.emit(f"{how} {small} {y} to {large}", y)
    product = nest.emit(f"mul {large} {a}, {b}", a, b)
    upper = nest.emit(f"lshr {large} {product}, {count}", product)
    return Elt(nest.emit(f"trunc {large} {upper} to {small}", upper), dtype, vector)


def is_finite(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Tell whether a float is neither infinite nor NaN."""
    x = wide(nest, args[0])
    return nest.compare(
        "olt", nest.intrinsic("fabs", x), nest.constant(float("inf"), x.dtype)
    )


def convert_element_type(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Convert to another dtype."""
    return convert(nest, args[0], dtype)


def bitcast_convert_type(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Take the same bits as another dtype."""
    return bitcast(nest, args[0], dtype)


def nextafter(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Return the neighbour of a float in the direction of another."""
    a, b = args
    x, y = wide(nest, a), wide(nest, b)
    bits = as_integer(nest, a)
    one = Elt("1", bits.dtype)
    width = bits_of(dtype)
    lowest = Elt(str(-(2 ** (width - 1))), bits.dtype)
    none = nest.constant(0, x.dtype)
    # Away from zero is one more in the bits, whatever the sign.
    positive = nest.compare("ogt", x, none)
    outwards = nest.binary("xor", nest.compare("olt", x, y), _not(nest, positive))
    moved = nest.select(
        outwards, nest.binary("add", bits, one), nest.binary("sub", bits, one)
    )
    side = nest.binary("and", as_integer(nest, b), lowest)
    smallest = nest.binary("or", side, one)
    at_zero = nest.compare(
        "eq", nest.binary("and", bits, _inverse(lowest)), zero(bits.dtype)
    )
    moved = nest.select(at_zero, smallest, moved)
    # Equal: the second, as C has it. NaN: the sum is one.
    moved = nest.select(nest.compare("oeq", x, y), as_integer(nest, b), moved)
    result = bitcast(nest, moved, dtype)
    nan = narrow(nest, nest.binary("fadd", x, y), dtype)
    return nest.select(nest.compare("uno", x, y), nan, result)


def _not(nest: Nest, mask: Elt) -> Elt:
    return nest.binary("xor", mask, Elt("true", "bool"))


def _inverse(lowest: Elt) -> Elt:
    return Elt(str(-1 - int(lowest.text)), lowest.dtype)


def reduce_precision(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Round a float to fewer bits of exponent and mantissa, in its own dtype.

    Numbers too small for the exponent become zeros, too large ones infinities.
    """
    (x,) = args
    if is_float8(dtype):
        return narrow(
            nest, reduce_precision(nest, [wide(nest, x)], "float32", params), dtype
        )
    digits, bias = _LAYOUT[dtype]
    keep, exponent = params["mantissa_bits"], params["exponent_bits"]
    bits = as_integer(nest, x)
    result, kind = bits, bits.dtype

    def whole(value: int) -> Elt:
        return Elt(str(value), kind)

    if keep < digits:
        drop = digits - keep
        odd = nest.binary("and", nest.binary("lshr", bits, whole(drop)), whole(1))
        half = whole((1 << (drop - 1)) - 1)
        result = nest.binary("add", nest.binary("add", bits, half), odd)
        result = nest.binary("and", result, whole(-(1 << drop)))
    if exponent < bias.bit_length() + 1:
        reach = (1 << (exponent - 1)) - 1
        rest = (1 << (bits_of(dtype) - 1)) - 1
        side = nest.binary("and", bits, whole(-rest - 1))
        size = nest.binary("and", result, whole(rest))
        large = nest.compare("uge", size, whole((bias + reach + 1) << digits))
        infinite = nest.binary("or", side, whole((2 * bias + 1) << digits))
        result = nest.select(large, infinite, result)
        small = nest.compare("ult", size, whole((bias - reach + 1) << digits))
        result = nest.select(small, side, result)
    wider = wide(nest, x)
    rounded = bitcast(nest, result, dtype)
    return nest.select(nest.compare("uno", wider, wider), x, rounded)


_LAYOUT = {
    "float64": (52, 1023),
    "float32": (23, 127),
    "float16": (10, 15),
    "bfloat16": (7, 127),
}


def select_n(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Choose among the cases by a boolean or an integer."""
    which, *cases = args
    if which.dtype == "bool":
        return nest.select(which, cases[1], cases[0]) if len(cases) > 1 else cases[0]
    result = cases[-1]
    for number, case in reversed(list(enumerate(cases[:-1]))):
        here = nest.compare("sle", which, Elt(str(number), which.dtype))
        result = nest.select(here, case, result)
    return result


def same(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """Return the element as it is."""
    return args[0]
