"""Softmax and log-softmax of rows, backward."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.softmax import SoftmaxConfig
from tilejax.lowering.kernels.tiles import accumulator


def softmax_backward(
    y: jax.Array,
    dy: jax.Array,
    *,
    log: bool = False,
    config: SoftmaxConfig,
    interpret: Any = False,
) -> jax.Array:
    """Compute the cotangent of the input of `softmax` from its output.

    `y * (dy - sum(y * dy))`, or with `log` `dy - exp(y) * sum(dy)`: neither needs the
    input again. Sums are kept in float32 (float64 for float64).

    **Arguments:**

    - `y`: `[rows, columns]`, what `softmax` gave.
    - `dy`: Its cotangent, of the same shape and dtype.
    - `log`, `config`, `interpret`: As of `softmax`.

    **Returns:**

    The shape and dtype of `y`.

        >>> y = jnp.array([[0.5, 0.5]])
        >>> dy = jnp.array([[1.0, 0.0]])
        >>> softmax_backward(y, dy, config=SoftmaxConfig(), interpret=True).tolist()
        [[0.25, -0.25]]
    """
    if y.size == 0:
        return y
    if config.columns >= y.shape[1]:
        return _whole(y, dy, log, config, interpret)
    return _tiled(y, dy, log, config, interpret)


def _summand(y, dy, log):
    return dy if log else y * dy


def _finish(y, dy, total, log):
    return dy - jnp.exp(y) * total if log else y * (dy - total)


def _read(y_ref, dy_ref):
    dtype = accumulator(y_ref.dtype)
    return y_ref[...].astype(dtype), dy_ref[...].astype(dtype)


def _whole_kernel(y_ref, dy_ref, dx_ref, *, log):
    y, dy = _read(y_ref, dy_ref)
    total = jnp.sum(_summand(y, dy, log), axis=1, keepdims=True)
    dx_ref[...] = _finish(y, dy, total, log).astype(dx_ref.dtype)


def _whole(y, dy, log, config, interpret):
    height = min(config.rows, y.shape[0])
    block = pl.BlockSpec((height, y.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        functools.partial(_whole_kernel, log=log),
        out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype),
        grid=(pl.cdiv(y.shape[0], height),),
        in_specs=[block, block],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
        name="softmax_backward",
    )(y, dy)


def _sum_kernel(y_ref, dy_ref, total_ref, *, size, log):
    column = pl.program_id(1)

    @pl.when(column == 0)
    def _():
        total_ref[...] = jnp.zeros_like(total_ref)

    valid = inside(y_ref.shape, 1, column, size)
    summand = jnp.where(valid, _summand(*_read(y_ref, dy_ref), log), 0.0)
    total_ref[...] += jnp.sum(summand, axis=1, keepdims=True)


def _finish_kernel(y_ref, dy_ref, total_ref, dx_ref, *, log):
    y, dy = _read(y_ref, dy_ref)
    dx_ref[...] = _finish(y, dy, total_ref[...], log).astype(dx_ref.dtype)


def _tiled(y, dy, log, config, interpret):
    rows, columns = y.shape
    height = min(config.rows, rows)
    grid = (pl.cdiv(rows, height), pl.cdiv(columns, config.columns))
    block = pl.BlockSpec((height, config.columns), lambda i, j: (i, j))
    statistic = pl.BlockSpec((height, 1), lambda i, j: (i, 0))
    total = pl.pallas_call(
        functools.partial(_sum_kernel, size=columns, log=log),
        out_shape=jax.ShapeDtypeStruct((rows, 1), accumulator(y.dtype)),
        grid=grid,
        in_specs=[block, block],
        out_specs=statistic,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary")
        ),
        interpret=interpret,
        name="softmax_backward_sum",
    )(y, dy)
    return pl.pallas_call(
        functools.partial(_finish_kernel, log=log),
        out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype),
        grid=grid,
        in_specs=[block, block, statistic],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=interpret,
        name="softmax_backward_finish",
    )(y, dy, total)
