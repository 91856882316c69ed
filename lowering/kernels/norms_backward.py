"""Layer and RMS normalisation of rows, backward."""

import functools
import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.named import named_call
from tilejax.lowering.kernels.norms import NormConfig, as_row
from tilejax.lowering.kernels.tiles import accumulator, fit


def layer_norm_backward(
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    mean: jax.Array,
    rstd: jax.Array,
    dy: jax.Array,
    dmean: jax.Array | None = None,
    drstd: jax.Array | None = None,
    *,
    config: NormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Compute the cotangents of the operands of `layer_norm`.

    With `n = (x - mean) * rstd` and `g = dy * scale`:
    `dx = rstd * (g - mean(g) - n * mean(g * n))`, and over the rows
    `dscale = sum(dy * n)` and `dbias = sum(dy)`. The statistics are results of
    `layer_norm` too; where they have cotangents,
    `dx += dmean / columns - drstd * rstd**2 * n / columns`.

    **Arguments:**

    - `x`, `scale`, `bias`: The operands of `layer_norm`.
    - `mean`, `rstd`: `[rows]`, from the forward pass.
    - `dy`: As `x`, the cotangent of the first result.
    - `dmean`, `drstd`: `[rows]`, or `None` for zeros.
    - `config`, `interpret`: As of `layer_norm`.

    **Returns:**

    `dx`, `dscale` and `dbias`, each of the shape and dtype of its operand, `None` for
    one that is not there.

        >>> x, dy = jnp.array([[1.0, 3.0]]), jnp.array([[1.0, 0.0]])
        >>> mean, rstd = jnp.array([2.0]), jnp.array([1.0])
        >>> dx, _, dbias = layer_norm_backward(
        ...     *(x, None, jnp.zeros(2), mean, rstd, dy),
        ...     config=NormConfig(), interpret=True,
        ... )
        >>> dx.tolist(), dbias.tolist()
        ([[0.0, 0.0]], [1.0, 0.0])
    """
    statistics = {"mean": mean, "rstd": rstd, "dmean": dmean, "drstd": drstd}
    return _backward(x, scale, bias, statistics, dy, "layer_norm", config, interpret)


def rms_norm_backward(
    x: jax.Array,
    scale: jax.Array | None,
    rstd: jax.Array,
    dy: jax.Array,
    drstd: jax.Array | None = None,
    *,
    config: NormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Compute the cotangents of the operands of `rms_norm`.

    As `layer_norm_backward`, with a mean of zero and without `mean(g)`.

    **Arguments:**

    - `x`, `scale`: The operands of `rms_norm`.
    - `rstd`: `[rows]`, from the forward pass.
    - `dy`: As `x`, the cotangent of the first result.
    - `drstd`: `[rows]`, or `None` for zeros.
    - `config`, `interpret`: As of `layer_norm`.

    **Returns:**

    `dx` and `dscale`, each of the shape and dtype of its operand, `None` for one that
    is not there.

        >>> x, dy, rstd = jnp.array([[2.0, -2.0]]), jnp.ones((1, 2)), jnp.array([0.5])
        >>> dx, _ = rms_norm_backward(
        ...     x, None, rstd, dy, config=NormConfig(), interpret=True
        ... )
        >>> dx.tolist()
        [[0.5, 0.5]]
    """
    statistics = {"mean": None, "rstd": rstd, "dmean": None, "drstd": drstd}
    found = _backward(x, scale, None, statistics, dy, "rms_norm", config, interpret)
    return found[0], found[1]


def _kernel(ref, *, rows, steps):
    dtype = ref.rstd.dtype
    step = pl.program_id(1)
    x, dy, rstd = ref.x[...].astype(dtype), ref.dy[...].astype(dtype), ref.rstd[...]
    normal = (x if ref.mean is None else x - ref.mean[...]) * rstd
    scaled = dy if ref.scale is None else dy * ref.scale[...].astype(dtype)
    slope = jnp.mean(scaled * normal, axis=1, keepdims=True)
    if ref.drstd is not None:
        slope = slope + ref.drstd[...] * rstd / x.shape[1]
    dx = scaled - normal * slope
    if ref.mean is not None:
        dx = dx - jnp.mean(scaled, axis=1, keepdims=True)
    dx = dx * rstd
    if ref.dmean is not None:
        dx = dx + ref.dmean[...] / x.shape[1]
    ref.dx[...] = dx.astype(ref.dx.dtype)

    valid = inside(x.shape, 0, pl.program_id(0) * steps + step, rows)
    for total, summand in ((ref.dscale, dy * normal), (ref.dbias, dy)):
        if total is not None:
            _add(total, jnp.where(valid, summand, 0.0), step == 0)


def _add(total, summand, first):
    @pl.when(first)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.sum(summand, axis=0, keepdims=True)


def _backward(x, scale, bias, statistics, dy, name, config, interpret):
    if x.size == 0:
        return x, _zeros(scale), _zeros(bias)
    rows, columns = x.shape
    dtype = accumulator(x.dtype)
    height = fit(config.rows, rows)
    blocks = pl.cdiv(rows, height)
    splits = math.gcd(config.splits, blocks)
    steps = blocks // splits
    block = pl.BlockSpec((height, columns), lambda s, i: (s * steps + i, 0))
    statistic = pl.BlockSpec((height, 1), lambda s, i: (s * steps + i, 0))
    total = pl.BlockSpec((None, 1, columns), lambda s, i: (s, 0, 0))
    partial = jax.ShapeDtypeStruct((splits, 1, columns), dtype)
    out: SimpleNamespace = named_call(
        functools.partial(_kernel, rows=rows, steps=steps),
        inputs={
            "x": (x, block),
            "dy": (dy, block),
            "scale": (as_row(scale), pl.BlockSpec((1, columns), lambda s, i: (0, 0))),
            **{
                key: (_as_column(value, dtype), statistic)
                for key, value in statistics.items()
            },
        },
        outputs={
            "dx": (jax.ShapeDtypeStruct(x.shape, x.dtype), block),
            "dscale": (None if scale is None else partial, total),
            "dbias": (None if bias is None else partial, total),
        },
        grid=(splits, steps),
        semantics=("parallel", "arbitrary"),
        interpret=interpret,
        name=f"{name}_backward",
    )
    return out.dx, _join(out.dscale, scale), _join(out.dbias, bias)


def _as_column(vector, dtype):
    return None if vector is None else vector.astype(dtype).reshape(-1, 1)


def _join(partial, like):
    return None if like is None else jnp.sum(partial, axis=(0, 1)).astype(like.dtype)


def _zeros(like):
    return None if like is None else jnp.zeros_like(like)
