"""The 8-bit floats to float32 and back, in integer arithmetic."""

from dataclasses import dataclass

from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


@dataclass(frozen=True)
class Format:
    """How an 8-bit float is laid out.

    **Arguments:**

    - `digits`: bits after the point.
    - `bias`: of the exponent.
    - `largest`: the largest finite magnitude's bits.
    - `overflow`: the magnitude's bits that larger numbers become.
    - `nan`: the bits of the NaN that is written.
    - `signed_zero`: whether there is a -0; where not, its bits are the only NaN.
    """

    digits: int
    bias: int
    largest: int
    overflow: int
    nan: int
    signed_zero: bool


FORMATS = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7F, 0x7F, True),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E, True),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, 0x80, 0x80, False),
    "float8_e4m3b11fnuz": Format(3, 11, 0x7F, 0x80, 0x80, False),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, 0x80, 0x80, False),
}


def _int(value: int) -> Elt:
    return Elt(str(value), "uint32")


def from_float8(nest: Nest, e: Elt) -> Elt:
    """Widen an 8-bit float to float32; exact."""
    form = FORMATS[e.dtype]
    bits = nest.cast("zext", e, "uint32")
    magnitude = nest.binary("and", bits, _int(0x7F))
    sign = nest.binary("shl", nest.binary("and", bits, _int(0x80)), _int(24))
    shifted = nest.binary("shl", magnitude, _int(23 - form.digits))
    normal = nest.binary("add", shifted, _int((127 - form.bias) << 23))
    # A denormal is its digits as an integer, times the smallest number.
    digits = nest.cast("uitofp", magnitude, "float32")
    smallest = nest.constant(2.0 ** (1 - form.bias - form.digits))
    tiny = nest.cast("bitcast", nest.binary("fmul", digits, smallest), "uint32")
    denormal = nest.compare("ult", magnitude, _int(1 << form.digits))
    value = nest.select(denormal, tiny, normal)
    if form.signed_zero:
        beyond = nest.compare("ugt", magnitude, _int(form.largest))
        special = _int(0x7FC00000)
        if form.overflow < 0x7D and form.digits == 2:  # it has infinities
            infinite = nest.compare("eq", magnitude, _int(form.overflow))
            special = nest.select(infinite, _int(0x7F800000), special)
        value = nest.select(beyond, special, value)
        value = nest.binary("or", value, sign)
    else:
        value = nest.binary("or", value, sign)
        nan = nest.compare("eq", bits, _int(form.nan))
        value = nest.select(nan, _int(0xFFC00000), value)
    return nest.cast("bitcast", value, "float32")


def to_float8(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Round a float32 to the nearest 8-bit float, ties to even.

    What is too large becomes infinity, or NaN in a format without infinities.
    """
    form = FORMATS[dtype]
    drop = 23 - form.digits
    bits = nest.cast("bitcast", e, "uint32")
    sign = nest.binary("and", bits, _int(0x80000000))
    magnitude = nest.binary("xor", bits, sign)
    odd = nest.binary("and", nest.binary("lshr", magnitude, _int(drop)), _int(1))
    rebias = (1 << (drop - 1)) - 1 - ((127 - form.bias) << 23)
    rebiased = nest.binary("add", magnitude, _int(rebias % 2**32))
    normal = nest.binary("lshr", nest.binary("add", rebiased, odd), _int(drop))
    # Adding a power of two lines a small number up, so that the addition rounds it.
    one = 1 - form.bias - form.digits + 23
    lined = nest.binary(
        "fadd", nest.cast("bitcast", magnitude, "float32"), nest.constant(2.0**one)
    )
    denormal = nest.binary(
        "sub", nest.cast("bitcast", lined, "uint32"), _int((one + 127) << 23)
    )
    least = (1 - form.bias + 127) << 23
    value = nest.select(nest.compare("ult", magnitude, _int(least)), denormal, normal)
    # The first float32 whose rounding, ties to even, passes the largest number.
    top = ((form.largest << 1 | 1) << (drop - 1)) + ((127 - form.bias) << 23)
    beyond = "ugt" if form.largest % 2 == 0 else "uge"
    value = nest.select(
        nest.compare(beyond, magnitude, _int(top)), _int(form.overflow), value
    )
    nan = nest.compare("ugt", magnitude, _int(0x7F800000))
    value = nest.select(nan, _int(form.nan), value)
    narrow = nest.binary("lshr", sign, _int(24))
    if not form.signed_zero:
        zero = nest.compare("eq", value, _int(0))
        narrow = nest.select(zero, _int(0), narrow)
    value = nest.binary("or", value, narrow)
    return nest.cast("trunc", value, dtype)
