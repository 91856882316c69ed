"""Masks for blocks that reach past the end of their array."""

import jax
import jax.numpy as jnp


def inside(
    shape: tuple[int, ...], axis: int, block: jax.Array | int, size: int
) -> jax.Array:
    """Return which elements of block number `block` lie before `size` along `axis`.

    What lies behind is garbage, NaN included, so a kernel selects with this mask before
    any sum, maximum or contraction along the axis.

    **Arguments:**

    - `shape`: Of the block.
    - `axis`: The axis that is tiled.
    - `block`: The number of the block along it.
    - `size`: Of the array along it.

    **Returns:**

    Booleans of the shape of the block.

        >>> inside((2, 3), 1, 1, 5).tolist()
        [[True, True, False], [True, True, False]]
    """
    position = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
    return position + block * shape[axis] < size
