"""Arithmetic of blocks: tile sizes, ragged edges, and the bytes that blocks occupy."""

import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

# A vector register of a TPU holds 8 sublanes of 128 lanes of 32 bits; narrower types
# are packed along the sublanes, so that a whole tile of them has 16 or 32 rows.
LANES = 128
_TILE_BYTES_PER_LANE = 32


def sublanes(dtype) -> int:
    """Return how many rows of `dtype` one hardware tile of a TPU holds.

    **Arguments:**

    - `dtype`: The type of the elements.

    **Returns:**

    8 for 32 bits, 16 for 16 bits, 32 for 8 bits.

        >>> sublanes("float32"), sublanes("int8")
        (8, 32)
    """
    return max(1, _TILE_BYTES_PER_LANE // jnp.dtype(dtype).itemsize)


def ceil_div(size: int, tile: int) -> int:
    """Return how many tiles cover a size.

    **Arguments:**

    - `size`: Zero or more.
    - `tile`: One or more.

    **Returns:**

    The quotient, rounded up.

        >>> ceil_div(9, 4)
        3
    """
    return -(-size // tile)


def round_up(size: int, multiple: int) -> int:
    """Return the smallest multiple that holds a size.

    **Arguments:**

    - `size`: Zero or more.
    - `multiple`: One or more.

    **Returns:**

    A multiple of `multiple`.

        >>> round_up(9, 4)
        12
    """
    return ceil_div(size, multiple) * multiple


def fit(tile: int, size: int) -> int:
    """Return the tile to use along a dimension: never more than the dimension.

    A block as long as its dimension is legal on every target, whatever the alignment.

    **Arguments:**

    - `tile`: The tile that the config asks for.
    - `size`: The dimension, one or more.

    **Returns:**

    The smaller of the two.

        >>> fit(128, 100), fit(128, 200)
        (100, 128)
    """
    return min(tile, size)


def accumulator(*dtypes):
    """Return the type in which products of these types are summed.

    **Arguments:**

    - `dtypes`: The types of the operands.

    **Returns:**

    `int32` for integers, `float64` when any operand is that, else `float32`.

        >>> str(accumulator("bfloat16", "int8"))
        'float32'
    """
    kinds = [jnp.dtype(dtype) for dtype in dtypes]
    if all(jnp.issubdtype(kind, jnp.integer) for kind in kinds):
        return jnp.dtype(jnp.int32)
    wide = any(kind == jnp.float64 for kind in kinds)
    return jnp.dtype(jnp.float64 if wide else jnp.float32)


def keep_first(x: jax.Array, axis: int, count) -> jax.Array:
    """Zero everything past the first `count` entries of an axis, by selection.

    A block that reaches past the end of its array reads garbage there, which may be
    NaN: multiplying by zero would keep it.

    **Arguments:**

    - `x`: A block of rank two or more.
    - `axis`: The axis to cut.
    - `count`: How many entries are real; a traced integer, and may exceed the axis.

    **Returns:**

    A block of the same shape and dtype.

        >>> keep_first(jnp.ones((1, 4)), 1, 2).tolist()
        [[1.0, 1.0, 0.0, 0.0]]
    """
    place = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return jnp.where(place < count, x, jnp.zeros_like(x))


def block_bytes(shape: Sequence[int], dtype) -> int:
    """Return the bytes that a block takes in the vector memory of a TPU.

    **Arguments:**

    - `shape`: The block, squeezed dimensions left out.
    - `dtype`: The type of its elements.

    **Returns:**

    The bytes after padding the last two dimensions to whole tiles.

        >>> block_bytes((5, 100), "float32") == 8 * 128 * 4
        True
    """
    *outer, rows, cols = (1, 1, *shape)[-max(2, len(shape)) :]
    rows, cols = round_up(rows, sublanes(dtype)), round_up(cols, LANES)
    return math.prod(outer) * rows * cols * jnp.dtype(dtype).itemsize


def candidates(size: int, tiles: Iterable[int], align: int) -> list[int]:
    """Return the tiles worth trying along a dimension.

    **Arguments:**

    - `size`: The dimension.
    - `tiles`: Tiles to choose from, each a multiple of `align`.
    - `align`: What a tile that is smaller than the dimension must be a multiple of.

    **Returns:**

    The tiles smaller than the dimension, and the first one that covers it.

        >>> candidates(300, (128, 256, 512, 1024), 128)
        [128, 256, 384]
    """
    whole = round_up(max(size, 1), align)
    return sorted({min(tile, whole) for tile in tiles})


def float_like(dtype) -> bool:
    """Say whether a type is one of the floating-point types that kernels take.

    **Arguments:**

    - `dtype`: The type.

    **Returns:**

    True for f64, f32, f16 and bf16.

        >>> float_like("bfloat16"), float_like("int8")
        (True, False)
    """
    return jnp.dtype(dtype) in (
        np.dtype(np.float64),
        np.dtype(np.float32),
        np.dtype(np.float16),
        jnp.dtype(jnp.bfloat16),
    )
