"""What the files of this folder list."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax

from tilejax.primitives.op import Op


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


def rows(x):
    """Return an array, or the type of one, as a matrix with its last axis kept."""
    shape = (math.prod(x.shape[:-1]), x.shape[-1])
    return struct(shape, x.dtype) if _is_type(x) else x.reshape(shape)


def flat(x):
    """Return an array, or the type of one, with one axis."""
    shape = (math.prod(x.shape),)
    return struct(shape, x.dtype) if _is_type(x) else x.reshape(shape)


def _is_type(x) -> bool:
    return isinstance(x, jax.ShapeDtypeStruct)
