"""What a matrix unit computes in vain because sizes are not multiples of its own."""

import math
from typing import Any

from tilejax.targets.records import Target


def padding_efficiency(
    m: int, n: int, k: int, target: Target, dtype: Any = "bfloat16"
) -> float:
    """Return the fraction of a matrix unit's work that is not padding.

    A unit that computes `(M, N, K)` at a time does ceil(m/M) M x ceil(n/N) N x
    ceil(k/K) K multiply-adds for m n k wanted ones.

    **Arguments:**

    - `m`, `n`, `k`: Sizes of the product; 1.0 if one is zero.
    - `target`: Whose unit.
    - `dtype`: Of the operands; a dtype that no matrix unit has is not padded.

    **Returns:**

    A number in (0, 1].

    Example:

    >>> import tilejax.targets
    >>> padding_efficiency(8, 64, 128, tilejax.targets.get("tpu:v5e"))
    0.5
    """
    if not m * n * k:
        return 1.0
    return tiled_efficiency((m, n, k), (m, n, k), target, dtype)


def tiled_efficiency(
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    target: Target,
    dtype: Any = "bfloat16",
) -> float:
    """Return the same for a product that is cut into tiles, each padded on its own.

    **Arguments:**

    - `sizes`: `(m, n, k)`, at least one each.
    - `tile`: `(tile_m, tile_n, tile_k)`; the tiles at the end are cut.
    - `target`, `dtype`: As `padding_efficiency` takes them.

    Example:

    >>> import tilejax.targets
    >>> tiled_efficiency((8, 192, 128), (8, 64, 128), tilejax.targets.get("tpu:v5e"))
    0.5
    """
    unit = target.unit_for(dtype)
    grains = None if unit is None else unit.granularity(dtype)
    if grains is None or len(grains) != 3:
        return 1.0
    share = 1.0
    for size, step, grain in zip(sizes, tile, grains, strict=True):
        whole, rest = divmod(size, step)
        padded = whole * math.ceil(step / grain) + math.ceil(rest / grain)
        share *= size / (padded * grain)
    return share
