"""The modelled time of a tiled matrix product: traffic, padding, waves and steps."""

import math
from typing import Any

from tilejax.targets.cost import Cost
from tilejax.targets.figures import dtype_key
from tilejax.targets.padding import tiled_efficiency
from tilejax.targets.records import Target
from tilejax.targets.roofline import Estimate, seconds
from tilejax.targets.traffic import matmul_traffic


def matmul_cost(
    m: int, n: int, k: int, dtype: Any, out_dtype: Any = None, *, batch: int = 1
) -> Cost:
    """Return the work of a product with each array moved once.

    **Arguments:**

    - `m`, `n`, `k`: Sizes of `[batch, m, k] @ [batch, k, n]`.
    - `dtype`: Of the operands.
    - `out_dtype`: Of the result; that of the operands if not given.
    - `batch`: How many products.

    Example:

    >>> matmul_cost(2, 3, 4, "float32").bytes_read
    80.0
    """
    item, out_item = _bytes(dtype), _bytes(dtype if out_dtype is None else out_dtype)
    return Cost(
        {dtype_key(dtype)[0]: 2.0 * batch * m * n * k},
        bytes_read=batch * (m * k + k * n) * item,
        bytes_written=batch * m * n * out_item,
    )


def matmul_seconds(
    m: int,
    n: int,
    k: int,
    tile: tuple[int, int, int],
    target: Target,
    dtype: Any = "bfloat16",
    out_dtype: Any = None,
    *,
    batch: int = 1,
    fast_memory: int | None = None,
    overlap: bool = True,
) -> Estimate:
    """Model a product that is tiled as `tile`, for choosing between tiles.

    Each tile of the output is a block for one core; its steps along k are sequential.
    Tiles are padded to the matrix unit's granularity, edges included.

    **Arguments:**

    - `m`, `n`, `k`, `batch`: Sizes, all at least one.
    - `tile`: `(tile_m, tile_n, tile_k)`.
    - `target`: Where.
    - `dtype`, `out_dtype`: Of operands and result.
    - `fast_memory`: Bytes of a cache that blocks are shared through, as
      `matmul_traffic` takes it.
    - `overlap`: Whether loads run beside arithmetic.

    **Returns:**

    An `Estimate`.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> small = matmul_seconds(4096, 4096, 4096, (128, 128, 128), v5e)
    >>> large = matmul_seconds(4096, 4096, 4096, (1024, 512, 512), v5e)
    >>> small.bound, large.bound
    ('memory', 'compute')
    """
    item = _bytes(dtype)
    out_item = _bytes(dtype if out_dtype is None else out_dtype)
    moved = matmul_traffic(
        *(m, n, k, *tile),
        itemsizes=(item, item, out_item),
        fast_memory=fast_memory,
    )
    cost = Cost(
        {dtype_key(dtype)[0]: 2.0 * batch * m * n * k},
        bytes_read=batch * moved.read,
        bytes_written=batch * moved.written,
    )
    return seconds(
        cost,
        target,
        blocks=batch * math.ceil(m / tile[0]) * math.ceil(n / tile[1]),
        steps=batch * moved.steps,
        efficiency=tiled_efficiency((m, n, k), tile, target, dtype),
        overlap=overlap,
    )


def _bytes(dtype: Any) -> float:
    return dtype_key(dtype)[1] / 8
