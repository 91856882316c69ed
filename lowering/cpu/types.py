"""LLVM types and literals for the dtypes of tiles."""

import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np

TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "bfloat16": "bfloat",
    "float8_e4m3fn": "i8",
    "float8_e4m3fnuz": "i8",
    "float8_e4m3b11fnuz": "i8",
    "float8_e5m2": "i8",
    "float8_e5m2fnuz": "i8",
    "int64": "i64",
    "uint64": "i64",
    "int32": "i32",
    "uint32": "i32",
    "int16": "i16",
    "uint16": "i16",
    "int8": "i8",
    "uint8": "i8",
    "bool": "i1",
}
"""The register type of each dtype; LLVM has no 8-bit floats: those are their bits."""

BYTES = {
    "double": 8,
    "float": 4,
    "half": 2,
    "bfloat": 2,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
}

SUFFIX = {"double": "f64", "float": "f32", "half": "f16", "bfloat": "bf16"}
"""How the names of intrinsics spell a type, where that is not the type itself."""


def dtype_name(dtype) -> str:
    """Return the canonical name of a dtype; raise KeyError for one without a type."""
    name = np.dtype(dtype).name
    if name not in TYPES:
        raise KeyError(name)
    return name


def memory_type(dtype: str) -> str:
    """Return the type that a dtype has in memory: booleans take a byte."""
    ty = TYPES[dtype]
    return "i8" if ty == "i1" else ty


def itemsize(dtype: str) -> int:
    """Return the bytes of an element in memory."""
    return BYTES[memory_type(dtype)]


def is_float(dtype: str) -> bool:
    """Tell whether a dtype is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def is_float8(dtype: str) -> bool:
    """Tell whether a dtype is an 8-bit float, of which registers hold the bits."""
    return dtype.startswith("float8")


def is_unsigned(dtype: str) -> bool:
    """Tell whether integers of a dtype widen with zeros."""
    return dtype.startswith("uint") or dtype == "bool"


def literal(value, dtype: str) -> str:
    """Spell a Python number as an LLVM constant of a dtype, rounded to it.

    >>> literal(1, "float32"), literal(-1, "int8"), literal(True, "bool")
    ('0x3FF0000000000000', '-1', 'true')
    >>> literal(1, "bfloat16")
    '0xR3F80'
    """
    if dtype == "float32":
        return _bits64(float(np.float32(value)))
    if dtype == "float64":
        return _bits64(float(value))
    if dtype == "bfloat16":
        return f"0xR{int(np.array(value, ml_dtypes.bfloat16).view(np.uint16)):04X}"
    if dtype == "float16":
        return f"0xH{int(np.array(value, np.float16).view(np.uint16)):04X}"
    if dtype == "bool":
        return "true" if value else "false"
    if is_float8(dtype):
        exact = np.array(value, getattr(ml_dtypes, dtype))
        return str(int(exact.view(np.uint8)))
    return str(int(value))


def _bits64(value: float) -> str:
    """LLVM reads a float's constant, too, as the 16 digits of the equal double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@dataclass(frozen=True)
class Elt:
    """One element of a tile, or a vector of neighbouring ones, in registers.

    **Arguments:**

    - `text`: the operand's name or constant; for a vector with a `base`, unused.
    - `dtype`: a key of `TYPES`.
    - `vector`: whether it has the nest's number of lanes.
    - `base`: of an integer vector that is base + lane: the base. It keeps
      `ref[start + iota]` a plain load instead of a gather.
    """

    text: str
    dtype: str
    vector: bool = False
    base: str | None = None

    @property
    def type(self) -> str:
        """The register type of one lane."""
        return TYPES[self.dtype]


def constant(value, dtype: str) -> Elt:
    """Make an element of a Python number."""
    return Elt(literal(value, dtype), dtype)
