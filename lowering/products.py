"""How long XLA takes for a product, a convolution or a loop, by the model.

XLA cuts its products into tiles as our kernels do, so the best of some tiles that fit
is taken, by the same traffic, padding and steps.
"""

import functools
import itertools
import math
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.room import alignment, room
from tilejax.lowering.kernels.tiles import accumulator, block_bytes, candidates
from tilejax.targets import (
    Cost,
    Target,
    dtype_key,
    matmul_tiling,
    padding_efficiency,
    product_work,
    seconds,
)

_ROWS = (128, 256, 512, 1024)
_DEPTH = (128, 256, 512, 1024, 2048)


def dot_seconds(eqn: Any, moved: tuple[float, float], target: Target) -> float:
    """Model a `dot_general`.

    **Arguments:**

    - `eqn`: The equation.
    - `moved`: Bytes in memory of an element of either operand.
    - `target`: A record without unknown figures.
    """
    (contract, _), (batch, _) = eqn.params["dimension_numbers"]
    a, b, out = (v.aval for v in (*eqn.invars, eqn.outvars[0]))
    stack = math.prod(a.shape[i] for i in batch)
    k = math.prod(a.shape[i] for i in contract)
    m = math.prod(a.shape) // max(1, stack * k)
    n = math.prod(b.shape) // max(1, stack * k)
    items = (*moved, jnp.dtype(out.dtype).itemsize)
    found = product_seconds(
        (m, n, k), items, target, _dtype(a, b), stack, str(_precision(eqn))
    )
    what = "product" if min(m, n) > 1 else "matvec"
    return found / _reached(target, what, _dtype(a, b), out.dtype)


@functools.lru_cache(maxsize=4096)
def product_seconds(
    sizes: tuple[int, int, int],
    itemsizes: tuple[float, float, float],
    target: Target,
    dtype: Any,
    batch: int = 1,
    precision: str = "None",
) -> float:
    """Model a stack of products with the best of some tiles.

    **Arguments:**

    - `sizes`: `(m, n, k)`.
    - `itemsizes`: Bytes in memory of an element of both operands and of the result.
    - `target`: A record without unknown figures.
    - `dtype`, `batch`, `precision`: As `matmul_tiling` takes them.
    """
    if not batch * math.prod(sizes):
        return seconds(Cost(), target).seconds or 0.0
    m, n, k = sizes
    lanes = alignment(target, dtype)[1]
    tiles = itertools.product(
        candidates(m, _ROWS, 16),
        candidates(n, _ROWS, lanes),
        candidates(k, _DEPTH, lanes),
    )
    legal = [tile for tile in tiles if _held(tile, itemsizes, dtype) <= room(target)]
    times = [
        matmul_tiling(
            sizes, tile, target, dtype, itemsizes, batch=batch, precision=precision
        ).seconds(target)
        for tile in legal or [(128, 128, 128)]
    ]
    return min(times)


def _held(tile: tuple[int, int, int], itemsizes, dtype) -> float:
    m, n, k = tile
    moved = m * k * itemsizes[0] + k * n * itemsizes[1] + m * n * itemsizes[2]
    return 2 * moved + 2 * block_bytes((m, n), accumulator(dtype))


def conv_seconds(eqn: Any, moved: tuple[float, float], target: Target) -> float:
    """Model a `conv_general_dilated`, which runs where products do.

    **Arguments:** as `dot_seconds` takes them.
    """
    x, w, out = (v.aval for v in (*eqn.invars, eqn.outvars[0]))
    spec = eqn.params["dimension_numbers"]
    groups = eqn.params["feature_group_count"] * eqn.params["batch_group_count"]
    taps = math.prod(w.shape[i] for i in spec.rhs_spec[2:])
    features, k = w.shape[spec.rhs_spec[0]], w.shape[spec.rhs_spec[1]]
    m, n = out.size // max(1, features), features // max(1, groups)
    dtype, out_item = _dtype(x, w), jnp.dtype(out.dtype).itemsize
    count = 2.0 * m * n * k * taps * groups
    share = _share((m, n, k), taps, groups, target, dtype)
    cost = Cost(
        product_work(count / share, dtype, target, str(_precision(eqn))),
        x.size * moved[0] + w.size * moved[1],
        out.size * out_item,
    )
    what = "depthwise" if groups > 1 and 1 in (n, k) else "conv"
    return loop_seconds(cost, target) / _reached(target, what, dtype, out.dtype)


def _reached(target: Target, what: str, dtype: Any, out_dtype: Any) -> float:
    """Return the share of the model's speed that XLA reaches."""
    of, to = dtype_key(dtype)[0], dtype_key(out_dtype)[0]
    return target.reached(f"xla.{what}.{of}.{to}")


def _share(
    sizes: tuple[int, int, int], taps: int, groups: int, target: Target, dtype: Any
) -> float:
    """Return how much of what a convolution makes a matrix unit compute is wanted.

    It contracts the channels, tap by tap, or the taps, channel by channel: the gradient
    of a filter has a window as large as an image. Groups are taken one by one, or all
    at once with zeros for what does not belong together.
    """
    m, n, k = sizes
    ways = [
        padding_efficiency(m, n, k, target, dtype),
        padding_efficiency(m, n, taps, target, dtype),
    ]
    if groups > 1:
        whole = padding_efficiency(m, n * groups, k * groups, target, dtype)
        ways.append(whole / groups)
    return max(ways)


def loop_seconds(cost: Cost, target: Target) -> float:
    """Model a loop that is cut into steps as suits it, as a kernel's grid is.

    **Arguments:**

    - `cost`: All it does.
    - `target`: A record without unknown figures.

    **Returns:**

    Seconds: of n steps the first one's loads are exposed, or the last one's arithmetic,
    a part of 1/n, and each costs something, so that the best n is a square root. What a
    step moves is held twice, and as much again of what it computes.
    """
    lanes = max(1, (target.cores or 1) // target.devices)
    whole = seconds(cost, target)
    exposed = min(whole.compute_seconds or 0.0, whole.memory_seconds or 0.0)
    best = math.sqrt(exposed / (target.limits.step_seconds or 1e-9))
    least = math.ceil(4 * cost.bytes / (room(target) * lanes))
    rounds = max(1, least, round(best))
    found = seconds(cost, target, steps=rounds * lanes).seconds
    assert found is not None
    return found


def _dtype(a: Any, b: Any) -> Any:
    return jnp.promote_types(a.dtype, b.dtype)


def _precision(eqn: Any) -> Any:
    precision = eqn.params["precision"]
    return precision[0] if isinstance(precision, tuple) else precision
