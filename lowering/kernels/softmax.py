"""Softmax and log-softmax of rows, forward."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.online import online_step
from tilejax.lowering.kernels.tiles import accumulator


@dataclasses.dataclass(frozen=True)
class SoftmaxConfig:
    """Tile of rows: `rows` by `columns`.

    A row that fits in `columns` is held whole, and read once. A longer one is read
    twice: for its maximum and sum, and to be normalised.
    """

    rows: int = 16
    columns: int = 2048


def softmax(
    x: jax.Array, *, log: bool = False, config: SoftmaxConfig, interpret: Any = False
) -> jax.Array:
    """Compute the softmax of each row, or its logarithm.

    `exp(x - max(x)) / sum(exp(x - max(x)))`, summed in float32 (float64 for float64). A
    row of nothing but -inf, or with +inf or NaN in it, gives NaN, as `jax.nn.softmax`.

    **Arguments:**

    - `x`: `[rows, columns]`, floating.
    - `log`: Whether the logarithm is wanted.
    - `config`: The tile.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    The shape and dtype of `x`.

        >>> softmax(jnp.zeros((1, 4)), config=SoftmaxConfig(), interpret=True).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    if x.size == 0:
        return x
    if config.columns >= x.shape[1]:
        return _whole(x, log, config, interpret)
    return _tiled(x, log, config, interpret)


def _finish(shifted, total, log):
    return shifted - jnp.log(total) if log else jnp.exp(shifted) / total


def _whole_kernel(x_ref, y_ref, *, log):
    x = x_ref[...].astype(accumulator(x_ref.dtype))
    shifted = x - jnp.max(x, axis=1, keepdims=True)
    total = jnp.sum(jnp.exp(shifted), axis=1, keepdims=True)
    y_ref[...] = _finish(shifted, total, log).astype(y_ref.dtype)


def _whole(x, log, config, interpret):
    height = min(config.rows, x.shape[0])
    block = pl.BlockSpec((height, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_whole_kernel, log=log),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], height),),
        in_specs=[block],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
        name="softmax",
    )(x)


def _statistics_kernel(x_ref, maximum_ref, total_ref, *, size):
    column = pl.program_id(1)

    @pl.when(column == 0)
    def _():
        maximum_ref[...] = jnp.full_like(maximum_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)

    valid = inside(x_ref.shape, 1, column, size)
    x = jnp.where(valid, x_ref[...].astype(maximum_ref.dtype), -jnp.inf)
    _weights, maximum_ref[...], total_ref[...], _shrink = online_step(
        x, maximum_ref[...], total_ref[...]
    )


def _normalise_kernel(x_ref, maximum_ref, total_ref, y_ref, *, log):
    shifted = x_ref[...].astype(maximum_ref.dtype) - maximum_ref[...]
    y_ref[...] = _finish(shifted, total_ref[...], log).astype(y_ref.dtype)


def _tiled(x, log, config, interpret):
    rows, columns = x.shape
    height = min(config.rows, rows)
    grid = (pl.cdiv(rows, height), pl.cdiv(columns, config.columns))
    block = pl.BlockSpec((height, config.columns), lambda i, j: (i, j))
    statistic = pl.BlockSpec((height, 1), lambda i, j: (i, 0))
    column = jax.ShapeDtypeStruct((rows, 1), accumulator(x.dtype))
    maximum, total = pl.pallas_call(
        functools.partial(_statistics_kernel, size=columns),
        out_shape=(column, column),
        grid=grid,
        in_specs=[block],
        out_specs=(statistic, statistic),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary")
        ),
        interpret=interpret,
        name="softmax_statistics",
    )(x)
    return pl.pallas_call(
        functools.partial(_normalise_kernel, log=log),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=grid,
        in_specs=[block, statistic, statistic],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=interpret,
        name="softmax_normalise",
    )(x, maximum, total)
