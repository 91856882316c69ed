"""Bytes that a tiled matrix product moves between two levels of memory.

The product of `a[m, k]` and `b[k, n]` is computed by a grid of steps, the last index
fastest, as Pallas runs it:

    for i in range(ceil(m / tile_m)):
        for j in range(ceil(n / tile_n)):
            for l in range(ceil(k / tile_k)):
                out[i, j] += a[i, l] @ b[l, j]

Each step needs a block of `a` and one of `b`; the block of `out` stays put over `l` and
is written once. How often a block is fetched depends on what stays in fast memory:

- Nothing but the current blocks (`fast_memory=None`, a scratchpad such as VMEM, whose
  pipeline skips a fetch only when the block is the one of the step before). `a[i, l]`
  changes at every step unless there is one `l`, so `a` is read once for each `j`:
  ceil(n / tile_n) times. `b` is read for each `i`: ceil(m / tile_m) times. This is the
  blocked product of Hong and Kung, "I/O complexity: the red-blue pebble game" (1981).
- A cache of `fast_memory` bytes with least-recently-used replacement. A block is still
  there if all blocks touched since, itself included, fit (the stack distance of Mattson
  et al., "Evaluation techniques for storage hierarchies", 1970). With A and B the bytes
  of a block and L, J the counts over l and j:
    a[i, l], next used one j later: L blocks of each lie between:    L (A + B) <= fast
    b[l, j], next used one i later: all of b (L J B), and of a between L and 2L blocks,
      as counted in `_b_hits`.
  Output is taken as streamed past the cache.
"""

import math
from dataclasses import dataclass

from tilejax.errors import ParameterError


@dataclass(frozen=True)
class Traffic:
    """Count bytes moved for each operand of a matrix product.

    **Arguments:**

    - `a`, `b`: Bytes read of each operand.
    - `out_read`, `out`: Bytes of output read back and written.
    - `steps`: Grid steps.

    Example:

    >>> Traffic(a=2, b=3, out_read=0, out=1, steps=1).total
    6
    """

    a: int
    b: int
    out_read: int
    out: int
    steps: int

    @property
    def read(self) -> int:
        """Return the bytes that go to fast memory."""
        return self.a + self.b + self.out_read

    @property
    def written(self) -> int:
        """Return the bytes that come back."""
        return self.out

    @property
    def total(self) -> int:
        """Return all bytes moved."""
        return self.read + self.written


def matmul_traffic(
    m: int,
    n: int,
    k: int,
    tile_m: int,
    tile_n: int,
    tile_k: int,
    itemsizes: tuple[float, float, float] = (2, 2, 2),
    fast_memory: int | None = None,
) -> Traffic:
    """Count the bytes that a tiled product moves through fast memory.

    **Arguments:**

    - `m`, `n`, `k`: Sizes, zero or more.
    - `tile_m`, `tile_n`, `tile_k`: Sizes of a tile, positive; past the array's end a
      tile is cut, not padded.
    - `itemsizes`: Bytes of an element of a, b and the output; 0.5 for four bits.
    - `fast_memory`: Bytes of a cache that keeps the blocks used last, shared by both
      operands; `None` for a scratchpad that holds the current blocks alone.

    **Returns:**

    A `Traffic`. With a cache and tiles that do not divide the sizes, hits are counted
    as if all blocks were whole, which never says too few bytes by more than one block
    row.

    **Raises:**

    `tilejax.errors.ParameterError` for a negative size, a tile below one, or a cache
    too small for one block of each operand.

    Example:

    >>> matmul_traffic(256, 256, 256, 128, 128, 256, itemsizes=(2, 2, 4)).b
    262144
    """
    sizes, tiles = (m, n, k), (tile_m, tile_n, tile_k)
    if min(sizes) < 0 or min(tiles) < 1:
        raise ParameterError(
            f"matmul_traffic: sizes {sizes} must not be negative and tiles {tiles} "
            "must be at least one"
        )
    tile_m, tile_n, tile_k = (
        max(1, min(pair)) for pair in zip(tiles, sizes, strict=True)
    )
    rows, cols, depth = (
        math.ceil(size / tile)
        for size, tile in zip(sizes, (tile_m, tile_n, tile_k), strict=True)
    )
    whole_a, whole_b = math.ceil(m * k * itemsizes[0]), math.ceil(k * n * itemsizes[1])
    out = math.ceil(m * n * itemsizes[2])
    if not rows * cols * depth:
        # with k = 0 the zeros are still written
        return Traffic(0, 0, 0, out, 0)
    block_a = math.ceil(tile_m * tile_k * itemsizes[0])
    block_b = math.ceil(tile_k * tile_n * itemsizes[1])
    if fast_memory is not None and fast_memory < block_a + block_b:
        raise ParameterError(
            f"matmul_traffic: blocks of {block_a} and {block_b} bytes do not both fit "
            f"in {fast_memory} bytes of fast memory; take smaller tiles"
        )
    stays_a = depth == 1 or (
        fast_memory is not None and depth * (block_a + block_b) <= fast_memory
    )
    fetches_b = rows * cols * depth - _b_hits(
        rows, cols, depth, block_a, block_b, fast_memory
    )
    return Traffic(
        a=whole_a if stays_a else whole_a * cols,
        # every pass over b has cols x depth blocks
        b=round(whole_b * fetches_b / (cols * depth)),
        out_read=0,
        out=out,
        steps=rows * cols * depth,
    )


def _b_hits(
    rows: int, cols: int, depth: int, block_a: int, block_b: int, fast: int | None
) -> int:
    """Count the uses of blocks of b that find the block where they left it."""
    if cols == depth == 1:
        return rows - 1  # the same block at every step
    if fast is None:
        return 0
    # Between b[l, j] at row i and at row i + 1 every block of b is touched, and of a:
    # the rest of row i's, then row i + 1's up to l if j is the first.
    free = (fast - cols * depth * block_b) // block_a
    if cols == 1:
        # depth - 1 - l blocks after it, l + 1 before it
        hits = depth if depth <= free else 0
    else:
        first = min(max(free - depth, 0), depth)  # j = 0: depth + l + 1 blocks
        last = min(max(free - depth + 1, 0), depth)  # j at the end: 2 depth - 1 - l
        hits = first + last + (cols - 2) * (depth if 2 * depth <= free else 0)
    return hits * (rows - 1)


def matmul_levels(
    m: int,
    n: int,
    k: int,
    tiles: tuple[tuple[int, int, int], ...],
    itemsizes: tuple[float, float, float] = (2, 2, 2),
    accumulator: int = 4,
    fast_memories: tuple[int | None, ...] | None = None,
) -> tuple[Traffic, ...]:
    """Count the bytes that a product tiled at several levels moves at each.

    **Arguments:**

    - `m`, `n`, `k`: Sizes.
    - `tiles`: `(tile_m, tile_n, tile_k)` from the outermost level in, e.g. the blocks
      in VMEM and, within one, the shape that the matrix unit takes.
    - `itemsizes`: Bytes of an element of a, b and the output in main memory.
    - `accumulator`: Bytes of an element of the output inside the outermost level.
    - `fast_memories`: For each level, as `matmul_traffic` takes it.

    **Returns:**

    A `Traffic` a level: the first between main memory and the outermost tiles. From the
    second on, each outer step along k but the first reads the accumulator back.

    Example:

    >>> outer, inner = matmul_levels(512, 512, 512, ((256, 256, 256), (8, 128, 128)))
    >>> inner.a // outer.a
    2
    """
    caches = fast_memories or (None,) * len(tiles)
    found: list[Traffic] = []
    times, restarts = 1, 1
    sizes = (m, n, k)
    for level, (tile, cache) in enumerate(zip(tiles, caches, strict=True)):
        items = itemsizes if level == 0 else (*itemsizes[:2], accumulator)
        one = matmul_traffic(*sizes, *tile, itemsizes=items, fast_memory=cache)
        found.append(
            Traffic(
                a=one.a * times,
                b=one.b * times,
                out_read=one.out * (times - restarts),
                out=one.out * times,
                steps=one.steps * times,
            )
        )
        depth = math.ceil(sizes[2] / tile[2]) if sizes[2] else 1
        times, restarts = one.steps * times, restarts * (one.steps // depth)
        sizes = (
            min(sizes[0], tile[0]),
            min(sizes[1], tile[1]),
            min(sizes[2], tile[2]),
        )
    return tuple(found)
