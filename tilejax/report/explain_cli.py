"""`tilejax explain module:function --shapes f32[8,16] ...`."""

import argparse
import importlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp

from tilejax.errors import ArgumentError, DTypeError, TileJAXError
from tilejax.report.explain import explain
from tilejax.report.explain_table import render

_TYPE = re.compile(r"^(\w+)\[([\d,\s]*)\]$")
_SHORT = {
    "bf16": "bfloat16",
    "pred": "bool",
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **{f"i{n}": f"int{n}" for n in (4, 8, 16, 32, 64)},
    **{f"s{n}": f"int{n}" for n in (4, 8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (4, 8, 16, 32, 64)},
    **{f"c{n}": f"complex{n}" for n in (64, 128)},
}


def run(arguments: argparse.Namespace) -> int:
    """Print what `explain` finds for a function of a module.

    **Returns:** 0.

    **Raises:** `ArgumentError` for a function that cannot be found or does not take
    such arguments, `DTypeError` for a dtype JAX lacks, `TargetError` for an unknown
    target.
    """
    function = find(arguments.function)
    types = [parse_type(text) for text in arguments.shapes]
    try:
        found = explain(function, *types, target=arguments.target)
    except TileJAXError:
        raise
    except (TypeError, ValueError) as error:
        shown = ", ".join(arguments.shapes) or "no arguments"
        raise ArgumentError(f"{arguments.function} with {shown}: {error}") from error
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        width = shutil.get_terminal_size((150, 24)).columns
        print(render(found, width))
    return 0


def find(path: str) -> Callable:
    """Import `module:function`, the current folder included.

    **Raises:** `ArgumentError` if there is no such module or function.

    >>> find("math:sqrt")(4.0)
    2.0
    """
    module, colon, name = path.partition(":")
    if not module or not colon or not name:
        raise ArgumentError(f"{path!r} is not of the form module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise ArgumentError(
            f"module {module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"module {module} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise ArgumentError(f"{path} is no function but {type(found).__name__}")
    return found


def parse_type(text: str) -> jax.ShapeDtypeStruct:
    """Read a type as jaxprs print it.

    **Raises:** `ArgumentError` for another form, `DTypeError` for an unknown dtype.

    >>> parse_type("bf16[8,16]")
    ShapeDtypeStruct(shape=(8, 16), dtype=bfloat16)
    """
    match = _TYPE.match(text.strip())
    if match is None:
        raise ArgumentError(
            f"{text!r} is no type; write a dtype and sizes, as f32[8,16] or i32[]"
        )
    name, sizes = match.groups()
    try:
        dtype = jnp.dtype(_SHORT.get(name, name))
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in "biufcV" or dtype.itemsize == 0:
        raise DTypeError(f"{text!r}: no dtype {name!r}; there are {', '.join(_SHORT)}")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise DTypeError(
            f"{text!r}: JAX has no {dtype.name} unless 64-bit types are on; set "
            "JAX_ENABLE_X64=1"
        )
    shape = tuple(int(n) for n in sizes.split(",") if n.strip())
    return jax.ShapeDtypeStruct(shape, dtype)
