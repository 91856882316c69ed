"""Tiles of a matrix product that are legal on a target, and what each moves."""

import dataclasses
import itertools
import math
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.matmul import MatmulConfig
from tilejax.lowering.kernels.matmul_operands import Plan, plan_matmul
from tilejax.lowering.kernels.room import (
    alignment,
    room,
    takes,
    worth_packing,
)
from tilejax.lowering.kernels.tiles import block_bytes, candidates
from tilejax.targets import Cost, Target, Tiling, matmul_tiling

_M = (16, 32, 64, 128, 256, 512, 1024)
_N = (16, 32, 64, 128, 256, 512, 1024)
_K = (16, 32, 64, 128, 256, 512, 1024, 2048)

# Of a product with so few rows or columns a CPU reads the other operand once, and
# faster the longer its rows are read in one go.
_FEW = 4
_LONG = 8192

# A CPU packs so much of the second operand at once; the rest of a block stays where it
# is, in the array.
_PACKED_BYTES = 2**19


def matmul_configs(
    target: Target,
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    residual: Any = None,
    **params: Any,
) -> list[Tiling]:
    """Propose tiles for `matmul`.

    **Arguments:**

    - `target`: The machine.
    - `a`, `b`, `bias`, `scale`, `residual`: The operands, or just their shapes and
      dtypes.
    - `params`: The other parameters of `matmul`.

    **Returns:**

    A `Tiling` for each config that fits the target's memory and alignment; none where
    the target cannot compile the dtypes.

        >>> import jax, tilejax.targets
        >>> a = b = jax.ShapeDtypeStruct((1, 4096, 4096), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> tilejax.targets.fastest(v5e, matmul_configs(v5e, a, b)).config.k
        1024
    """
    operands = (a, b, bias, scale, residual)
    plan = plan_matmul(*operands, config=MatmulConfig(), **params)
    dtypes = (a.dtype, b.dtype)
    extras = (bias is not None) + (scale is not None), residual is not None
    configs = _legal(target, plan, dtypes, extras, plan.transpose_a)
    beside = _beside(plan, (bias, scale, residual), params.get("activation"))
    return [
        _tiling(config, target, plan, (plan.m, plan.n, plan.k), dtypes, params, beside)
        for config in configs
    ]


def matmul_backward_configs(
    target: Target,
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    residual: Any = None,
    ct: Any = None,
    **params: Any,
) -> list[Tiling]:
    """Propose tiles for `matmul_backward`.

    **Arguments:**

    - As of `matmul_configs`; `ct` is the cotangent of the result.

    **Returns:**

    A `Tiling` for each config whose every tile suits rows as well as columns, since the
    three products of the backward pass contract different axes.

        >>> import jax, tilejax.targets
        >>> a = b = jax.ShapeDtypeStruct((1, 512, 512), "bfloat16")
        >>> target = tilejax.targets.get("tpu:v5e")
        >>> all(t.config.m % 128 == 0 for t in matmul_backward_configs(target, a, b))
        True
    """
    operands = (a, b, bias, scale, residual)
    plan = plan_matmul(*operands, config=MatmulConfig(), **params)
    # The longest tile may meet the longest axis in any of the three roles.
    longest = max(plan.m, plan.n, plan.k)
    roles = dataclasses.replace(plan, m=longest, n=longest, k=longest)
    dtypes = (a.dtype, b.dtype)
    sizes = (plan.m, plan.n, plan.k), (plan.m, plan.k, plan.n), (plan.k, plan.n, plan.m)
    found = []
    for config in _legal(target, roles, dtypes, (2, True), True):
        three = [
            _tiling(config, target, plan, size, dtypes, params, Cost())
            for size in sizes
        ]
        found.append(
            dataclasses.replace(
                max(three, key=lambda tiling: tiling.steps),
                cost=three[0].cost + three[1].cost + three[2].cost,
                steps=sum(tiling.steps for tiling in three),
                cached=sum(tiling.cached for tiling in three),
                calls=3,
            )
        )
    return found


def _legal(
    target: Target, plan: Plan, dtypes, extras: tuple[int, bool], m_is_lane: bool
) -> Iterable[MatmulConfig]:
    if plan.empty or not takes(target, (*dtypes, plan.out_dtype)):
        return
    aligns = [alignment(target, dtype) for dtype in (*dtypes, plan.out_dtype)]
    rows, columns = (max(sizes) for sizes in zip(*aligns, strict=True))
    sizes = (
        _aligned(plan.m, worth_packing(target, _M, 32), columns if m_is_lane else rows),
        _aligned(plan.n, worth_packing(target, _N, 64), columns),
        _aligned(plan.k, _lengths(target, plan), columns),
    )
    for tile in itertools.product(*sizes):
        config = MatmulConfig(*tile)
        if _fits(config, target, plan, dtypes, extras):
            yield config


def _lengths(target: Target, plan: Plan) -> list[int]:
    is_thin = (plan.n <= _FEW and not plan.transpose_a) or (
        plan.m <= _FEW and plan.transpose_b
    )
    return (
        [_LONG] if target.kind == "cpu" and is_thin else worth_packing(target, _K, 128)
    )


def _fits(config: MatmulConfig, target: Target, plan: Plan, dtypes, extras) -> bool:
    if target.kind != "cpu":
        return matmul_bytes(config, plan, dtypes, *extras) <= room(target)
    packed = block_bytes((config.k, config.n), dtypes[1])
    sums = block_bytes((config.m, config.n), plan.sum_dtype)
    return sums + min(packed, _PACKED_BYTES) <= (target.block_bytes or room(target))


def _tiling(config, target, plan: Plan, sizes, dtypes, params, beside: Cost) -> Tiling:
    items = [jnp.dtype(x).itemsize for x in (*dtypes, plan.out_dtype)]
    return matmul_tiling(
        sizes,
        (config.m, config.n, config.k),
        target,
        jnp.promote_types(*dtypes),
        (items[0], items[1], items[2]),
        batch=plan.batch,
        extra=beside,
        precision=params.get("precision"),
        config=config,
    )


def _beside(plan: Plan, extras, activation: str | None) -> Cost:
    """Count what is read and computed for the epilogue."""
    whole = float(plan.batch * plan.m * plan.n)
    steps = sum(x is not None for x in extras)
    exps = whole if activation not in (None, "relu", "maximum") else 0.0
    steps += activation is not None and not exps
    moved = sum(math.prod(x.shape) * x.dtype.itemsize for x in extras if x is not None)
    work = {"float32": whole * steps} if steps else {}
    return Cost({}, moved, transcendentals=exps, elementwise=work)


def _aligned(size, tiles, align):
    return candidates(size, [tile for tile in tiles if tile % align == 0], align)


def matmul_bytes(
    config: MatmulConfig, plan: Plan, dtypes, vectors: int, has_residual: bool
) -> int:
    """Return the bytes that the blocks of a config occupy.

    **Arguments:**

    - `config`: The tile.
    - `plan`: The product that is tiled.
    - `dtypes`: Of the two operands.
    - `vectors`: How many of bias and scale are read.
    - `has_residual`: Whether a residual is read.

    **Returns:**

    Two buffers of each block that is moved, the sum, and the product of one step before
    it is added.
    """
    m, n, k = config.m, config.n, config.k
    a_shape = (k, m) if plan.transpose_a else (m, k)
    b_shape = (n, k) if plan.transpose_b else (k, n)
    moved = block_bytes(a_shape, dtypes[0]) + block_bytes(b_shape, dtypes[1])
    moved += block_bytes((m, n), plan.out_dtype) * (2 if has_residual else 1)
    moved += vectors * block_bytes((1, n), jnp.float32)
    return 2 * moved + 2 * block_bytes((m, n), plan.sum_dtype)
