"""The modelled time of a tiled matrix product: traffic, padding, waves and steps."""

import math
from typing import Any

from tilejax.targets.cost import Cost
from tilejax.targets.figures import dtype_key
from tilejax.targets.padding import tiled_efficiency
from tilejax.targets.records import Target
from tilejax.targets.roofline import Estimate, seconds
from tilejax.targets.tiling import Tiling
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


def product_work(
    count: float, dtype: Any, target: Target, precision: Any = None
) -> dict[str, float]:
    """Return what a target makes of the operations of a product, by dtype.

    A TPU takes float32 operands as bfloat16 unless a higher precision is asked for,
    which it makes of three or six products of bfloat16.

    **Arguments:**

    - `count`: Operations.
    - `dtype`: Of the operands.
    - `target`: Where.
    - `precision`: As `jax.lax.dot_general` takes it; None for JAX's default.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> product_work(8.0, "float32", v5e), product_work(8.0, "float32", v5e, "highest")
    ({'bfloat16': 8.0}, {'bfloat16': 48.0})
    """
    key, as_run = dtype_key(dtype)[0], target.details.get("float32_product")
    if key != "float32" or as_run is None:
        return {key: count}
    return {as_run: count * _PASSES.get(str(precision).rpartition(".")[2].upper(), 1)}


# Products of bfloat16 that make one of float32, by the names of `jax.lax.Precision`.
_PASSES = {"HIGH": 3, "HIGHEST": 6, "FLOAT32": 6, "TENSORFLOAT32": 3}


def matmul_tiling(
    sizes: tuple[int, int, int],
    tile: tuple[int, int, int],
    target: Target,
    dtype: Any = "bfloat16",
    itemsizes: tuple[float, float, float] = (2, 2, 2),
    *,
    batch: int = 1,
    extra: Cost | None = None,
    precision: Any = None,
    config: Any = None,
) -> Tiling:
    """State the work of a product that is tiled as `tile`, through a scratchpad.

    **Arguments:**

    - `sizes`: `(m, n, k)`, all at least one.
    - `tile`: `(tile_m, tile_n, tile_k)`.
    - `target`, `dtype`, `precision`: As `product_work` takes them.
    - `itemsizes`: Bytes of an element of both operands and the result in memory.
    - `batch`: How many products.
    - `extra`: What is done beside the product of all of them.
    - `config`: The tiling's; `tile` if not given.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> matmul_tiling((256, 256, 256), (128, 256, 256), v5e).steps
    2
    """
    m, n, k = sizes
    moved = matmul_traffic(*sizes, *tile, itemsizes=itemsizes)
    cost = Cost(
        product_work(2.0 * batch * m * n * k, dtype, target, precision),
        bytes_read=batch * moved.read,
        bytes_written=batch * moved.written,
    )
    return Tiling(
        tile if config is None else config,
        cost if extra is None else cost + extra,
        steps=batch * moved.steps,
        blocks=batch * math.ceil(m / tile[0]) * math.ceil(n / tile[1]),
        efficiency=tiled_efficiency(sizes, tile, target, dtype),
        cached=batch * moved.steps * _repacked(tile, itemsizes),
    )


def _repacked(tile: tuple[int, int, int], itemsizes: tuple[float, float, float]):
    """Bytes of a step: operands copied to another order, sums loaded and stored."""
    m, n, k = tile
    return 2 * (m * k * itemsizes[0] + k * n * itemsizes[1] + m * n * _SUM_BYTES)


_SUM_BYTES = 4


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
