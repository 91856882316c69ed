"""Layer and RMS normalisation of rows, forward."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.lowering.kernels.named import named_call
from tilejax.lowering.kernels.tiles import accumulator, fit


@dataclasses.dataclass(frozen=True)
class NormConfig:
    """Tile of whole rows.

    `rows` are normalised in one step. The backward pass adds up the gradients of scale
    and bias over all rows; `splits` groups of blocks do so side by side, each into a
    sum of its own. Only as many splits are used as divide the number of blocks.
    """

    rows: int = 16
    splits: int = 1


def layer_norm(
    x: jax.Array,
    scale: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    eps: float,
    config: NormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute `(x - mean) * rstd * scale + bias` for each row.

    `rstd = 1 / sqrt(mean((x - mean)**2) + eps)`. The variance is taken in a second pass
    over the row, which is in fast memory anyway: `mean(x**2) - mean**2` would lose it
    to cancellation.

    **Arguments:**

    - `x`: `[rows, columns]`, floating.
    - `scale`, `bias`: `[columns]`, or `None`.
    - `eps`: Added to the variance.
    - `config`: The tile.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    `y` as `x`; `mean` and `rstd`, `[rows]`, float32 (float64 for float64).

        >>> x = jnp.array([[1.0, 3.0]])
        >>> y, mean, _ = layer_norm(x, eps=0.0, config=NormConfig(), interpret=True)
        >>> y.tolist(), mean.tolist()
        ([[-1.0, 1.0]], [2.0])
    """
    out = _row_norm(x, scale, bias, True, eps, config, interpret)
    return out.y, out.mean.reshape(x.shape[0]), out.rstd.reshape(x.shape[0])


def rms_norm(
    x: jax.Array,
    scale: jax.Array | None = None,
    *,
    eps: float,
    config: NormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array]:
    """Compute `x * rstd * scale` for each row, `rstd = 1 / sqrt(mean(x**2) + eps)`.

    **Arguments:**

    - `x`: `[rows, columns]`, floating.
    - `scale`: `[columns]`, or `None`.
    - `eps`: Added to the mean square.
    - `config`, `interpret`: As of `layer_norm`.

    **Returns:**

    `y` as `x`; `rstd`, `[rows]`, float32 (float64 for float64).

        >>> x = jnp.array([[2.0, -2.0]])
        >>> y, rstd = rms_norm(x, eps=0.0, config=NormConfig(), interpret=True)
        >>> y.tolist(), rstd.tolist()
        ([[1.0, -1.0]], [0.5])
    """
    out = _row_norm(x, scale, None, False, eps, config, interpret)
    return out.y, out.rstd.reshape(x.shape[0])


def as_row(vector: jax.Array | None) -> jax.Array | None:
    """Return a vector as a matrix of one row, which is what a block wants.

    **Arguments:**

    - `vector`: `[columns]`, or `None`.

    **Returns:**

    `[1, columns]`, or `None`.

        >>> as_row(jnp.zeros(3)).shape
        (1, 3)
    """
    return None if vector is None else vector.reshape(1, vector.shape[0])


def _kernel(ref, *, centre, eps):
    dtype = accumulator(ref.x.dtype)
    x = ref.x[...].astype(dtype)
    if centre:
        mean = jnp.mean(x, axis=1, keepdims=True)
        ref.mean[...] = mean
        x = x - mean
    rstd = jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + eps)
    ref.rstd[...] = rstd
    y = x * rstd
    if ref.scale is not None:
        y = y * ref.scale[...].astype(dtype)
    if ref.bias is not None:
        y = y + ref.bias[...].astype(dtype)
    ref.y[...] = y.astype(ref.y.dtype)


def _row_norm(x, scale, bias, centre, eps, config, interpret):
    rows, columns = x.shape
    dtype = accumulator(x.dtype)
    if x.size == 0:
        # The mean of no columns is NaN, as in NumPy.
        empty = jnp.full(rows, jnp.nan, dtype)
        return _Empty(x, empty, empty)
    height = fit(config.rows, rows)
    block = pl.BlockSpec((height, columns), lambda i: (i, 0))
    vector = pl.BlockSpec((1, columns), lambda i: (0, 0))
    statistic = pl.BlockSpec((height, 1), lambda i: (i, 0))
    column = jax.ShapeDtypeStruct((rows, 1), dtype)
    return named_call(
        functools.partial(_kernel, centre=centre, eps=eps),
        inputs={
            "x": (x, block),
            "scale": (as_row(scale), vector),
            "bias": (as_row(bias), vector),
        },
        outputs={
            "y": (jax.ShapeDtypeStruct(x.shape, x.dtype), block),
            "mean": (column if centre else None, statistic),
            "rstd": (column, statistic),
        },
        grid=(pl.cdiv(rows, height),),
        semantics=("parallel",),
        interpret=interpret,
        name="layer_norm" if centre else "rms_norm",
    )


@dataclasses.dataclass(frozen=True)
class _Empty:
    y: jax.Array
    mean: jax.Array
    rstd: jax.Array
