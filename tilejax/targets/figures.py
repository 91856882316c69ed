"""The figures of a record as paths, and the names that dtypes go by in it."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from tilejax.errors import DTypeError

if TYPE_CHECKING:
    from tilejax.targets.records import Target

LIMITS = ("threads", "registers", "fast_bytes", "launch_seconds", "step_seconds")

# Keys that are not JAX dtypes, with the bits an operand takes in memory.
_SPECIAL = {"tf32": 32, "float8": 8, "transcendental": 32}
# NumPy counts these as a byte each; packed in memory they take half of one.
_FOUR_BITS = {"int4", "uint4", "float4_e2m1fn"}
# Integer products cost the same whatever the sign.
_SAME_RATE = {
    "uint8": "int8",
    "uint4": "int4",
    "uint16": "int16",
    "uint32": "int32",
    "uint64": "int64",
    "bool": "int8",
}


def dtype_key(dtype: Any) -> tuple[str, int]:
    """Name a dtype as rates do, and say how many bits an element takes.

    **Arguments:**

    - `dtype`: Anything JAX takes for a dtype, or "tf32" or "float8".

    **Returns:**

    The key and the bits of one element.

    **Raises:**

    `tilejax.errors.DTypeError` if it is no dtype.

    Example:

    >>> dtype_key("float8_e4m3fn"), dtype_key("uint8")
    (('float8', 8), ('int8', 8))
    """
    try:
        return _dtype_key(dtype)
    except DTypeError:
        raise
    except TypeError:  # what has no hash may be a dtype all the same
        return _dtype_key.__wrapped__(dtype)


@functools.lru_cache(maxsize=256)
def _dtype_key(dtype: Any) -> tuple[str, int]:
    if isinstance(dtype, str) and dtype in _SPECIAL:
        return dtype, _SPECIAL[dtype]
    try:
        name = jnp.dtype(dtype).name
    except TypeError as error:
        raise DTypeError(
            f"{dtype!r} is not a dtype; give one that JAX knows, 'tf32' or 'float8'"
        ) from error
    if name.startswith("float8"):
        return "float8", 8
    bits = 4 if name in _FOUR_BITS else jnp.dtype(name).itemsize * 8
    return _SAME_RATE.get(name, name), bits


def figures(target: "Target") -> dict[str, Any]:
    """Return every figure of a record by its path, unknown ones as `None`."""
    found: dict[str, Any] = {"cores": target.cores}
    for memory in target.memories:
        for part in ("bytes", "align", "bandwidth"):
            found[f"memories.{memory.name}.{part}"] = getattr(memory, part)
    for unit in target.units:
        for dtype, rate in unit.rates.items():
            found[f"units.{unit.name}.{dtype}"] = rate
        found[f"units.{unit.name}.tile"] = unit.tile
    for limit in LIMITS:
        if limit not in target.absent:
            found[f"limits.{limit}"] = getattr(target.limits, limit)
    for path, value in target.code.items():
        found[f"code.{path}"] = value
    return found


def with_figure(target: "Target", path: str, value: Any) -> "Target":
    """Return a copy of a record with the figure at a path (one it has) replaced."""
    head, _, rest = path.partition(".")
    if head == "cores":
        return replace(target, cores=value)
    if head == "limits":
        return replace(target, limits=replace(target.limits, **{rest: value}))
    if head == "code":
        return replace(target, code={**target.code, rest: value})
    name, _, part = rest.rpartition(".")
    if head == "memories":
        return replace(
            target,
            memories=tuple(
                replace(memory, **{part: value}) if memory.name == name else memory
                for memory in target.memories
            ),
        )

    def changed(rates: Mapping[str, Any]) -> dict[str, Any]:
        return {"tile": value} if part == "tile" else {"rates": {**rates, part: value}}

    return replace(
        target,
        units=tuple(
            replace(unit, **changed(unit.rates)) if unit.name == name else unit
            for unit in target.units
        ),
    )


def shown(path: str, value: Any) -> str:
    """Return a figure with its unit, for people.

    **Arguments:**

    - `path`: The figure's path, whose end tells the unit.
    - `value`: The figure, or `None`.

    Example:

    >>> shown("memories.hbm.bandwidth", 819e9), shown("units.mxu.int8", None)
    ('819 GB/s', 'unknown')
    """
    last = path.rpartition(".")[2]
    if value is None:
        return "unknown"
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if last in ("bytes", "fast_bytes"):
        return _bytes(value)
    if last == "align":
        return f"{value} B"
    if last == "bandwidth":
        return (
            f"{value / 1e12:.5g} TB/s" if value >= 1e12 else f"{value / 1e9:.5g} GB/s"
        )
    if path.startswith("code") and last != "call_seconds":
        return f"{value:.0%}"
    if path.startswith("units") or last == "rate":
        return f"{value / 1e12:.5g} Tops/s"
    if last.endswith("seconds"):
        return f"{value * 1e6:g} us"
    return str(value)


def _bytes(value: int) -> str:
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        # vendors count memory in powers of ten as often; show whichever is round
        if value % 10**9 == 0:
            return f"{value // 10**9} GB"
        if value >= size:
            return f"{value / size:g} {name}"
    return f"{value} B"
