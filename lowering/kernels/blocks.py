"""Blocks of rows: the type that their sums are kept in, and their ragged edges."""

import jax
import jax.numpy as jnp


def accumulator(dtype):
    """Return the type in which a kernel adds up values of a dtype.

    **Arguments:** `dtype`, floating.

    **Returns:** `float64` for itself, else `float32`.
    """
    return jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32


def inside(shape: tuple[int, ...], axis: int, index, size: int) -> jax.Array:
    """Mark which entries of a block lie inside the array.

    A block that reaches past the end of its array holds garbage there, which may be NaN.

    **Arguments:** `shape` of the block; `axis` that is tiled; `index` of the block along
    it; `size` of the array along it.

    **Returns:** booleans of the shape of the block.
    """
    place = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
    return place + index * shape[axis] < size
