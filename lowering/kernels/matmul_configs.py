"""Tiles of a matrix product that are legal on a target, the most promising first."""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.matmul import MatmulConfig
from tilejax.lowering.kernels.matmul_operands import Plan, plan_matmul
from tilejax.lowering.kernels.room import alignment, room, step_bytes, takes
from tilejax.lowering.kernels.tiles import block_bytes, candidates, ceil_div
from tilejax.targets import Target

_M = (16, 32, 64, 128, 256, 512, 1024)
_N = (16, 32, 64, 128, 256, 512, 1024)
_K = (16, 32, 64, 128, 256, 512, 1024, 2048)
_MOST = 32


def matmul_configs(
    target: Target,
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    residual: Any = None,
    **params: Any,
) -> list[MatmulConfig]:
    """Propose tiles for `matmul`.

    **Arguments:**

    - `target`: The machine.
    - `a`, `b`, `bias`, `scale`, `residual`: The operands, or just their shapes and
      dtypes.
    - `params`: The other parameters of `matmul`.

    **Returns:**

    Up to 32 configs that fit the target's memory and alignment, by bytes moved plus
    steps; none where the target cannot compile the dtypes.

        >>> import jax, tilejax.targets
        >>> a = b = jax.ShapeDtypeStruct((1, 4096, 4096), "bfloat16")
        >>> matmul_configs(tilejax.targets.get("tpu:v5e"), a, b)[0].k >= 128
        True
    """
    plan = plan_matmul(*(a, b, bias, scale, residual), config=MatmulConfig(), **params)
    return _propose(
        *(target, plan, (a.dtype, b.dtype)),
        has_residual=residual is not None,
        m_is_lane=plan.transpose_a,
    )


def matmul_backward_configs(
    target: Target,
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    residual: Any = None,
    ct: Any = None,
    **params: Any,
) -> list[MatmulConfig]:
    """Propose tiles for `matmul_backward`.

    **Arguments:**

    - As of `matmul_configs`; `ct` is the cotangent of the result.

    **Returns:**

    Configs whose every tile suits rows as well as columns, since the three products of
    the backward pass contract different axes.

        >>> import jax, tilejax.targets
        >>> a = b = jax.ShapeDtypeStruct((1, 512, 512), "bfloat16")
        >>> target = tilejax.targets.get("tpu:v5e")
        >>> all(c.m % 128 == 0 for c in matmul_backward_configs(target, a, b))
        True
    """
    plan = plan_matmul(*(a, b, bias, scale, residual), config=MatmulConfig(), **params)
    # The longest tile may meet the longest axis in any of the three roles.
    longest = max(plan.m, plan.n, plan.k)
    roles = dataclasses.replace(plan, m=longest, n=longest, k=longest)
    return _propose(
        target, roles, (a.dtype, b.dtype), has_residual=True, m_is_lane=True
    )


def _propose(target, plan: Plan, dtypes, *, has_residual, m_is_lane):
    if not takes(target, (*dtypes, plan.out_dtype)):
        return []
    aligns = [alignment(target, dtype) for dtype in (*dtypes, plan.out_dtype)]
    rows, columns = (max(sizes) for sizes in zip(*aligns, strict=True))
    sizes = (
        _aligned(plan.m, _M, columns if m_is_lane else rows),
        _aligned(plan.n, _N, columns),
        _aligned(plan.k, _K, columns),
    )
    legal = [
        MatmulConfig(*tile)
        for tile in itertools.product(*sizes)
        if matmul_bytes(MatmulConfig(*tile), plan, dtypes, has_residual) <= room(target)
    ]
    step = step_bytes(target)
    legal.sort(key=lambda config: _cost(config, plan, dtypes, step))
    return legal[:_MOST]


def _aligned(size, tiles, align):
    return candidates(size, [tile for tile in tiles if tile % align == 0], align)


def matmul_bytes(config: MatmulConfig, plan: Plan, dtypes, has_residual: bool) -> int:
    """Return the bytes that the blocks of a config occupy.

    **Arguments:**

    - `config`: The tile.
    - `plan`: The product that is tiled.
    - `dtypes`: Of the two operands.
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
    moved += 2 * block_bytes((1, n), jnp.float32)
    return 2 * moved + 2 * block_bytes((m, n), plan.sum_dtype)


def _cost(config, plan: Plan, dtypes, step):
    """Count the bytes moved, with steps turned into bytes.

    The left operand is read once for each tile of columns and the right one once for
    each tile of rows; padding to whole tiles is paid for.
    """
    m, n = ceil_div(plan.m, config.m), ceil_div(plan.n, config.n)
    k = ceil_div(plan.k, config.k)
    sizes = [jnp.dtype(dtype).itemsize for dtype in dtypes]
    length = k * config.k
    left = n * m * config.m * length * sizes[0]
    right = m * n * config.n * length * sizes[1]
    return plan.batch * (left + right + m * n * k * step)
