"""`debug_print` in compiled kernels: values go to Python, which formats them.

Kernels call `tilejax_print(description, addresses)`. The description is JSON: what to
print, and the dtypes and shapes of the arrays at the addresses.
"""

import ctypes
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tilejax.lowering.cpu.tiles import Tile
from tilejax.lowering.cpu.types import dtype_name, itemsize
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}

SYMBOL = "tilejax_print"


def _print(e: "Emitter", op: Op) -> Sequence[Tile]:
    f, module = e.function, e.function.module
    table = f.alloca(f"[{max(len(op.inputs), 1)} x ptr]")
    values = []
    with e.arena.scope():
        for k, value in enumerate(op.inputs):
            view = e.keep(e.without_dots(e.tile(value)), dense=True).view
            values.append([dtype_name(value.dtype), list(value.shape)])
            place = f.name()
            f.line(f"{place} = getelementptr ptr, ptr {table}, i64 {k}")
            f.line(f"store ptr {view.pointer}, ptr {place}")
    told = {"format": op.params["format"], "names": op.params["names"]}
    text = json.dumps(told | {"values": values})
    description = module.constant(text.encode() + b"\0")
    module.declare(f"declare void @{SYMBOL}(ptr, ptr)")
    f.line(f"call void @{SYMBOL}(ptr {description}, ptr {table})")
    return []


RULES["print"] = _print


def format_values(told: dict, arrays: Sequence[np.ndarray]) -> str:
    """Return the line that JAX prints of a format and values.

    Values without a name fill places by their order. A format without any place is
    followed by the values.

    >>> told = {"format": "x = {}, y = {y}", "names": [None, "y"]}
    >>> format_values(told, [np.float32(1), np.int32(2)])
    'x = 1.0, y = 2'
    """
    pairs = list(zip(told["names"], arrays, strict=True))
    if "{" not in told["format"]:
        return " ".join([told["format"], *(str(x) for _, x in pairs)])
    plain = [x for name, x in pairs if name is None]
    named = {name: x for name, x in pairs if name is not None}
    return told["format"].format(*plain, **named)


def _receive(description: bytes, addresses: int) -> None:
    told = json.loads(description)
    pointers = (ctypes.c_void_p * len(told["values"])).from_address(addresses)
    arrays = []
    for (name, shape), pointer in zip(told["values"], pointers, strict=True):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        size = math.prod(shape) * itemsize(dtype_name(dtype))
        data = ctypes.string_at(pointer, size)
        arrays.append(np.frombuffer(data, dtype).reshape(shape)[()])
    sys.stdout.write(format_values(told, arrays) + "\n")


_RECEIVER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)(_receive)


@cache
def address() -> int:
    """Return the address of the function that kernels call."""
    return ctypes.cast(_RECEIVER, ctypes.c_void_p).value or 0
