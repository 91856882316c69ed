"""Conversions between the dtypes, following XLA's results on CPUs."""

from tilejax.lowering.cpu.elementwise_float8 import from_float8, to_float8
from tilejax.lowering.cpu.elementwise_halves import (
    from_bfloat16,
    from_float16,
    to_bfloat16,
    to_float16,
)
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import (
    TYPES,
    Elt,
    is_float,
    is_float8,
    is_unsigned,
    itemsize,
)


def bits_of(dtype: str) -> int:
    """Return the width of a dtype's register type."""
    return 1 if dtype == "bool" else 8 * itemsize(dtype)


def wide(nest: Nest, e: Elt) -> Elt:
    """Bring a float to the dtype that is computed in: float32, or float64 itself."""
    if e.dtype == "float16":
        return from_float16(nest, e)
    if e.dtype == "bfloat16":
        return from_bfloat16(nest, e)
    return from_float8(nest, e) if is_float8(e.dtype) else e


def narrow(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Round a float32 or float64 to a float dtype; float64 goes through float32."""
    if e.dtype == dtype:
        return e
    if e.dtype == "float64":
        e = nest.cast("fptrunc", e, "float32")
    elif dtype == "float64":
        return nest.cast("fpext", e, "float64")
    if dtype == "float16":
        return to_float16(nest, e)
    if dtype == "bfloat16":
        return to_bfloat16(nest, e)
    return to_float8(nest, e, dtype) if is_float8(dtype) else e


def convert(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Convert an element to another dtype, as `lax.convert_element_type` does."""
    if e.dtype == dtype:
        return e
    if dtype == "bool":
        return _truth(nest, e)
    if is_float(e.dtype):
        e = wide(nest, e)
        return narrow(nest, e, dtype) if is_float(dtype) else _truncate(nest, e, dtype)
    if is_float(dtype):
        how = "uitofp" if is_unsigned(e.dtype) else "sitofp"
        inner = "float64" if dtype == "float64" else "float32"
        return narrow(nest, nest.cast(how, e, inner), dtype)
    return _resize(nest, e, dtype)


def _truth(nest: Nest, e: Elt) -> Elt:
    if is_float(e.dtype):
        e = wide(nest, e)
        return nest.compare("une", e, nest.constant(0, e.dtype))
    return nest.compare("ne", e, Elt("0", e.dtype))


def _resize(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Convert between integers."""
    before, after = bits_of(e.dtype), bits_of(dtype)
    if e.base is not None and e.vector and _keeps_steps(e.dtype, before, after):
        start = _resize(nest, Elt(e.base, e.dtype), dtype)
        return Elt("", dtype, True, start.text)
    if before == after:
        return Elt(e.text, dtype, e.vector, e.base)
    if after < before:
        return nest.cast("trunc", e, dtype)
    return nest.cast("zext" if is_unsigned(e.dtype) else "sext", e, dtype)


def _keeps_steps(dtype: str, before: int, after: int) -> bool:
    """Whether base + lane stays so; an index of 32 bits is taken not to wrap around."""
    return after <= before or before >= 32


def _truncate(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Convert a float to an integer: towards zero, saturating, NaN to zero."""
    bits, unsigned = bits_of(dtype), is_unsigned(dtype)
    if bits < 32:
        return _clamped(nest, e, dtype)
    # LLVM's saturating conversions of vectors go lane by lane on most hosts.
    edge = nest.constant(2.0 ** (bits if unsigned else bits - 1), e.dtype)
    zero = nest.constant(0, e.dtype)
    size = e if unsigned else nest.intrinsic("fabs", e)
    inside = nest.compare("olt", size, edge)
    if unsigned:
        inside = nest.binary("and", inside, nest.compare("ogt", e, zero))
    safe = nest.select(inside, e, zero)
    whole = nest.cast("fptoui" if unsigned else "fptosi", safe, dtype)
    most = Elt("-1" if unsigned else str(2 ** (bits - 1) - 1), dtype)
    whole = nest.select(nest.compare("oge", e, edge), most, whole)
    if unsigned:
        return whole
    below = nest.compare("ole", e, nest.constant(-(2.0 ** (bits - 1)), e.dtype))
    return nest.select(below, Elt(str(-(2 ** (bits - 1))), dtype), whole)


def _clamped(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Convert to an integer whose limits floats have, by way of 32 bits."""
    bits, unsigned = bits_of(dtype), is_unsigned(dtype)
    least = 0 if unsigned else -(2 ** (bits - 1))
    low, high = (nest.constant(v, e.dtype) for v in (least, least + 2**bits - 1))
    held = nest.select(nest.compare("ogt", e, low), e, low)
    held = nest.select(nest.compare("olt", held, high), held, high)
    number = nest.compare("ord", e, e)
    held = nest.select(number, held, nest.constant(0, e.dtype))
    return nest.cast("trunc", nest.cast("fptosi", held, "int32"), dtype)


def bitcast(nest: Nest, e: Elt, dtype: str) -> Elt:
    """Give an element's bits to another dtype of the same width."""
    if TYPES[e.dtype] == TYPES[dtype]:
        return Elt(e.text, dtype, e.vector, e.base)
    return nest.cast("bitcast", e, dtype)


def as_integer(nest: Nest, e: Elt) -> Elt:
    """Take an element's bits as a signed integer of its width."""
    return bitcast(nest, e, f"int{bits_of(e.dtype)}")
