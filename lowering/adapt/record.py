"""What the files of this folder list."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.lowering.kernels.room import takes
from tilejax.primitives.op import Op
from tilejax.targets import Target


@dataclass(frozen=True)
class Adapted:
    """A kernel as `lowering.rules.register_kernel` takes it; see there.

    `run` also takes `interpret=`, for the interpreters of Pallas.
    """

    op: Op
    part: str
    run: Callable
    configs: Callable


def struct(shape, dtype) -> jax.ShapeDtypeStruct:
    """Return the type of an array, for a function that proposes configs."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def rows(x: Any) -> Any:
    """Return an array, or the type of one, as a matrix with its last axis kept."""
    shape = (math.prod(x.shape[:-1]), x.shape[-1])
    return struct(shape, x.dtype) if _is_type(x) else x.reshape(shape)


def flat(x: Any) -> Any:
    """Return an array, or the type of one, with one axis."""
    shape = (math.prod(x.shape),)
    return struct(shape, x.dtype) if _is_type(x) else x.reshape(shape)


def dtype_reason(target: Target, *operands: Any) -> str | None:
    """Say which operand's dtype no kernel on a target takes; None if all are fine.

    **Arguments:**

    - `operands`: arrays or types of arrays; None for one that is not given.
    """
    for x in operands:
        if x is not None and not takes(target, [x.dtype]):
            return f"kernels on {target.name} take no {jnp.dtype(x.dtype).name}"
    return None


def precision_reason(precision: Any) -> str | None:
    """Say that kernels have no products of a precision; None if they have.

    **Arguments:**

    - `precision`: as `jax.lax.dot_general` takes it; None for JAX's default.

    >>> precision_reason("highest") is None
    True
    >>> precision_reason(jax.lax.Precision.HIGH)
    'no kernel has products of precision HIGH'
    """
    if precision is None:
        precision = jax.config.jax_default_matmul_precision  # pyright: ignore
    for one in precision if isinstance(precision, tuple) else (precision,):
        if _precision_name(one) not in ("DEFAULT", "HIGHEST"):
            return f"no kernel has products of precision {_precision_name(one)}"
    return None


def _precision_name(precision: Any) -> str:
    try:
        return jax.lax.Precision(precision).name  # it knows None and names
    except ValueError:
        return str(precision)


def _is_type(x) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)
