"""Group normalisation, forward."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.named import named_call
from tilejax.lowering.kernels.norms import as_row
from tilejax.lowering.kernels.tiles import accumulator, fit


@dataclasses.dataclass(frozen=True)
class GroupNormConfig:
    """Tile of `positions`, with all their channels."""

    positions: int = 64


def group_norm(
    x: jax.Array,
    scale: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    groups: int,
    eps: float,
    config: GroupNormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalise each group of channels over all positions of a sample.

    `(x - mean) * rstd * scale + bias`, mean and variance over the positions and the
    channels of a group. One kernel finds the mean and the squared deviations of each
    channel, tile by tile; the channels of a group, a handful of numbers, are joined
    outside; another kernel normalises.

    **Arguments:**

    - `x`: `[batch, positions, channels]`, floating.
    - `scale`, `bias`: `[channels]`, or `None`.
    - `groups`: A divisor of the channels.
    - `eps`: Added to the variance.
    - `config`: The tile.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    `y` as `x`; `mean` and `rstd`, `[batch, groups]`, float32 (float64 for float64).

        >>> x = jnp.array([[[1.0, 0.0], [3.0, 8.0]]])
        >>> _, mean, _ = group_norm(
        ...     x, groups=2, eps=1e-5, config=GroupNormConfig(), interpret=True
        ... )
        >>> mean.tolist()
        [[2.0, 4.0]]
    """
    dtype = accumulator(x.dtype)
    batch, positions, channels = x.shape
    if x.size == 0:
        empty = jnp.full((batch, groups), jnp.nan, dtype)
        return x, empty, empty
    mean, rstd = _group_statistics(
        *_channel_statistics(x, config, interpret), positions, groups, eps
    )
    grid, block, row, vector = layout(x, config)
    out = named_call(
        _normalise_kernel,
        inputs={
            "x": (x, block),
            "mean": (each_channel(mean, channels), row),
            "rstd": (each_channel(rstd, channels), row),
            "scale": (as_row(scale), vector),
            "bias": (as_row(bias), vector),
        },
        outputs={"y": (jax.ShapeDtypeStruct(x.shape, x.dtype), block)},
        grid=grid,
        semantics=("parallel", "parallel"),
        interpret=interpret,
        name="group_norm_normalise",
    )
    return out.y, mean, rstd


def layout(x: jax.Array, config: GroupNormConfig) -> tuple:
    """Return the grid and the block specs of tiles, rows of a sample, and vectors.

    **Arguments:**

    - `x`: `[batch, positions, channels]`.
    - `config`: The tile.

    **Returns:**

    The grid, and three block specs: for an array like `x`, for one of
    `[batch, 1, channels]` and for one of `[1, channels]`.

        >>> layout(jnp.zeros((2, 9, 4)), GroupNormConfig(4))[0]
        (2, 3)
    """
    batch, positions, channels = x.shape
    height = fit(config.positions, positions)
    grid = (batch, pl.cdiv(positions, height))
    block = pl.BlockSpec((None, height, channels), lambda b, i: (b, i, 0))
    row = pl.BlockSpec((None, 1, channels), lambda b, i: (b, 0, 0))
    vector = pl.BlockSpec((1, channels), lambda b, i: (0, 0))
    return grid, block, row, vector


def each_channel(statistic: jax.Array, channels: int) -> jax.Array:
    """Spread what is known of each group over its channels.

    **Arguments:**

    - `statistic`: `[batch, groups]`.
    - `channels`: A multiple of the groups.

    **Returns:**

    `[batch, 1, channels]`.

        >>> each_channel(jnp.array([[1, 2]]), 4).tolist()
        [[[1, 1, 2, 2]]]
    """
    batch, groups = statistic.shape
    spread = jnp.broadcast_to(
        statistic.reshape(batch, groups, 1), (batch, groups, channels // groups)
    )
    return spread.reshape(batch, 1, channels)


def _normalise_kernel(ref):
    dtype = ref.mean.dtype
    y = (ref.x[...].astype(dtype) - ref.mean[...]) * ref.rstd[...]
    if ref.scale is not None:
        y = y * ref.scale[...].astype(dtype)
    if ref.bias is not None:
        y = y + ref.bias[...].astype(dtype)
    ref.y[...] = y.astype(ref.y.dtype)


def _statistics_kernel(ref, *, positions):
    """Join each tile's mean and squared deviations to those of the tiles before it.

    For two sets of sizes p and q, means a and b and squared deviations A and B, the
    union has the mean `a + (b - a) * q / (p + q)` and the squared deviations
    `A + B + (b - a)**2 * p * q / (p + q)`. Nothing large cancels.
    """
    dtype = ref.mean.dtype
    tile = pl.program_id(1)

    @pl.when(tile == 0)
    def _():
        ref.mean[...] = jnp.zeros_like(ref.mean)
        ref.squares[...] = jnp.zeros_like(ref.squares)

    height = ref.x.shape[0]
    seen = tile * height
    here = jnp.minimum(height, positions - seen)
    share = here.astype(dtype) / (seen + here).astype(dtype)
    x = ref.x[...].astype(dtype)
    valid = inside(x.shape, 0, tile, positions)
    mean = jnp.sum(jnp.where(valid, x, 0.0), axis=0, keepdims=True) / here.astype(dtype)
    off = jnp.where(valid, x - mean, 0.0)
    gap = mean - ref.mean[...]
    ref.squares[...] += jnp.sum(off * off, axis=0, keepdims=True) + (
        gap * gap * (share * seen.astype(dtype))
    )
    ref.mean[...] += gap * share


def _channel_statistics(x, config, interpret):
    grid, block, row, _ = layout(x, config)
    statistic = jax.ShapeDtypeStruct((x.shape[0], 1, x.shape[2]), accumulator(x.dtype))
    out = named_call(
        functools.partial(_statistics_kernel, positions=x.shape[1]),
        inputs={"x": (x, block)},
        outputs={"mean": (statistic, row), "squares": (statistic, row)},
        grid=grid,
        semantics=("parallel", "arbitrary"),
        interpret=interpret,
        name="group_norm_statistics",
    )
    return out.mean, out.squares


def _group_statistics(mean, squares, positions, groups, eps):
    batch, _, channels = mean.shape
    split = (batch, groups, channels // groups)
    mean, squares = mean.reshape(split), squares.reshape(split)
    joint = jnp.mean(mean, axis=2, keepdims=True)
    deviations = squares + positions * (mean - joint) ** 2
    variance = jnp.mean(deviations, axis=2) / positions
    return joint.reshape(batch, groups), jax.lax.rsqrt(variance + eps)
