"""float16 and bfloat16 to float32 and back, in instructions that every host has.

LLVM turns `fpext` and `fptrunc` into calls of compiler-rt where the host cannot convert
in hardware, and code that is compiled in process has no compiler-rt to call.
"""

from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


def _int(value: int, dtype: str = "uint32") -> Elt:
    return Elt(str(value), dtype)


def _has_half(nest: Nest) -> bool:
    host = nest.function.module.host
    return host.has("f16c") or host.has("avx512f") or not host.is_x86


def from_float16(nest: Nest, e: Elt) -> Elt:
    """Widen a float16; exact."""
    if _has_half(nest) or not e.text.startswith("%"):
        return nest.cast("fpext", e, "float32")
    bits = nest.cast("zext", nest.cast("bitcast", e, "uint16"), "uint32")
    magnitude = nest.binary("shl", nest.binary("and", bits, _int(0x7FFF)), _int(13))
    sign = nest.binary("shl", nest.binary("and", bits, _int(0x8000)), _int(16))
    # Normal numbers need another bias, infinity and NaN twice that.
    special = nest.compare("uge", magnitude, _int(0x7C00 << 13))
    bias = nest.select(special, _int(224 << 23), _int(112 << 23))
    normal = nest.binary("add", magnitude, bias)
    # A denormal is its digits as an integer, times 2^-24.
    units = nest.cast("uitofp", nest.binary("lshr", magnitude, _int(13)), "float32")
    tiny = nest.binary("fmul", units, nest.constant(2.0**-24))
    denormal = nest.compare("ult", magnitude, _int(0x0400 << 13))
    value = nest.select(denormal, nest.cast("bitcast", tiny, "uint32"), normal)
    return nest.cast("bitcast", nest.binary("or", value, sign), "float32")


def to_float16(nest: Nest, e: Elt) -> Elt:
    """Round a float32 to the nearest float16, ties to even; NaN stays NaN."""
    if _has_half(nest):
        return nest.cast("fptrunc", e, "float16")
    bits = nest.cast("bitcast", e, "uint32")
    sign = nest.binary("and", bits, _int(0x80000000))
    magnitude = nest.binary("xor", bits, sign)
    odd = nest.binary("and", nest.binary("lshr", magnitude, _int(13)), _int(1))
    # Half a unit less one, plus the last digit kept: ties go to even.
    rebiased = nest.binary("add", magnitude, _int((0xFFF - (112 << 23)) % 2**32))
    normal = nest.binary("lshr", nest.binary("add", rebiased, odd), _int(13))
    # Adding 0.5 lines a small number up so that the addition rounds it to 2^-24.
    half = nest.constant(0.5)
    small = nest.cast("bitcast", magnitude, "float32")
    lined = nest.cast("bitcast", nest.binary("fadd", small, half), "uint32")
    denormal = nest.binary("sub", lined, _int(0x3F000000))
    is_small = nest.compare("ult", magnitude, _int(113 << 23))
    value = nest.select(is_small, denormal, normal)
    large = nest.compare("uge", magnitude, _int(0x477FF000))
    value = nest.select(large, _int(0x7C00), value)
    nan = nest.compare("ugt", magnitude, _int(0x7F800000))
    value = nest.select(nan, _int(0x7E00), value)
    value = nest.binary("or", value, nest.binary("lshr", sign, _int(16)))
    return nest.cast("bitcast", nest.cast("trunc", value, "uint16"), "float16")


def from_bfloat16(nest: Nest, e: Elt) -> Elt:
    """Widen a bfloat16; exact."""
    if not e.text.startswith("%") and not e.vector:
        return nest.cast("fpext", e, "float32")
    bits = nest.cast("zext", nest.cast("bitcast", e, "uint16"), "uint32")
    return nest.cast("bitcast", nest.binary("shl", bits, _int(16)), "float32")


def to_bfloat16(nest: Nest, e: Elt) -> Elt:
    """Round a float32 to the nearest bfloat16, ties to even; NaN stays NaN.

    AVX-512's instruction takes denormals for zeros; all other hosts keep them.
    """
    if nest.function.module.host.has("avx512bf16", "avx512vl") and e.vector:
        return nest.cast("fptrunc", e, "bfloat16")
    bits = nest.cast("bitcast", e, "uint32")
    odd = nest.binary("and", nest.binary("lshr", bits, _int(16)), _int(1))
    rounded = nest.binary("add", nest.binary("add", bits, _int(0x7FFF)), odd)
    nan = nest.compare("uno", e, e)
    quiet = nest.binary("or", bits, _int(0x400000))
    value = nest.binary("lshr", nest.select(nan, quiet, rounded), _int(16))
    return nest.cast("bitcast", nest.cast("trunc", value, "uint16"), "bfloat16")
