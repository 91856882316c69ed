"""The place of a large argument in the circle, by the digits of 2 / pi that matter.

M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions, 1983.
"""

from tilejax.lowering.cpu.math.pair import Pair, ordered_sum, product
from tilejax.lowering.cpu.math.real import Real, Whole
from tilejax.lowering.cpu.types import Elt

# 2 / pi times 2^1216: what the largest float64 times a window of it needs.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab",
    16,
)
_BITS = 1216
# The product of 53 digits and a window keeps 2 bits before the point, 190 after.
_WIDE, _POINT = "i192", 190
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def far_reduction(x: Real) -> tuple[Real, Real, Whole]:
    """Write one float64 of at least 2^20 as n pi/2 + r + rest; NaN for infinity.

    **Returns:** r, rest, and n modulo 4 as an int64.
    """
    nest = x.nest

    def do(text: str, *operands: str) -> str:
        return nest.emit(text, *operands)

    size = x.bits() & (2**63 - 1)
    exponent = (size >> 52) - 1075
    digits = ((size & (2**52 - 1)) + 2**52).elt.text
    # Of window and digits only what is below four quarters matters.
    shift = (exponent.of(_BITS - _POINT) - exponent).elt.text
    wide = do(f"zext i64 {shift} to i{_BITS}", shift)
    window = do(f"lshr i{_BITS} {TWO_OVER_PI}, {wide}", wide)
    window = do(f"trunc i{_BITS} {window} to {_WIDE}", window)
    factor = do(f"zext i64 {digits} to {_WIDE}", digits)
    turned = do(f"mul {_WIDE} {factor}, {window}", factor, window)
    quarter = do(f"lshr {_WIDE} {turned}, {_POINT}", turned)
    fraction = do(f"shl {_WIDE} {turned}, 2", turned)
    # Past the middle of a quarter it is before the next one.
    sign = do(f"ashr {_WIDE} {fraction}, 191", fraction)
    flipped = do(f"xor {_WIDE} {fraction}, {sign}", fraction, sign)
    n = do(f"sub {_WIDE} {quarter}, {sign}", quarter, sign)
    count = do(f"trunc {_WIDE} {n} to i64", n)
    value = _as_pair(x, flipped)
    negative = do(f"trunc {_WIDE} {sign} to i64", sign)
    turn = x.bits() & -(2**63)
    flip = Whole(nest, Elt(negative, "int64")).apply("and", -(2**63)).apply("xor", turn)
    r, rest = (
        part.bits().apply("xor", flip).real("float64")
        for part in (value.high, value.low)
    )
    whole = Whole(nest, Elt(count, "int64"))
    whole = (x < 0).whole(whole.of(0) - whole, whole)
    return r + (x - x), rest, whole


def _as_pair(x: Real, magnitude: str) -> Pair:
    """Convert a fraction of a quarter of the circle, an i192, to radians."""
    nest = x.nest
    nest.function.module.declare(f"declare {_WIDE} @llvm.ctlz.{_WIDE}({_WIDE}, i1)")
    zeros = nest.emit(
        f"call {_WIDE} @llvm.ctlz.{_WIDE}({_WIDE} {magnitude}, i1 true)", magnitude
    )
    lined = nest.emit(f"shl {_WIDE} {magnitude}, {zeros}", magnitude, zeros)
    parts = []
    for place in (139, 86):
        moved = nest.emit(f"lshr {_WIDE} {lined}, {place}", lined)
        part = Whole(
            nest, Elt(nest.emit(f"trunc {_WIDE} {moved} to i64", moved), "int64")
        )
        parts.append((part & (2**53 - 1)).number("float64"))
    high, low = parts[0] * 2.0**-53, parts[1] * 2.0**-106
    whole = product(high, x.of(HALF_PI[0]))
    rest = whole.low + (high * HALF_PI[1] + low * HALF_PI[0])
    value = ordered_sum(whole.high, rest)
    count = nest.emit(f"trunc {_WIDE} {zeros} to i64", zeros)
    scale = (
        (Whole(nest, Elt(count, "int64")).of(1023) - Whole(nest, Elt(count, "int64")))
        << 52
    ).real("float64")
    return Pair(value.high * scale, value.low * scale)
