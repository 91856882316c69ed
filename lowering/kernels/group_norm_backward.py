"""Group normalisation, backward."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.group_norm import GroupNormConfig, each_channel, layout
from tilejax.lowering.kernels.named import named_call
from tilejax.lowering.kernels.norms import as_row
from tilejax.lowering.kernels.tiles import accumulator


def group_norm_backward(
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    mean: jax.Array,
    rstd: jax.Array,
    dy: jax.Array,
    dmean: jax.Array | None = None,
    drstd: jax.Array | None = None,
    *,
    groups: int,
    config: GroupNormConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Compute the cotangents of the operands of `group_norm`.

    The rule is that of `layer_norm_backward` with a group in the place of a row. One
    kernel sums `dy` and `dy * n` over the positions for each sample and channel; all
    else that reaches across positions or channels follows from those two.

    **Arguments:**

    - `x`, `scale`, `bias`: The operands of `group_norm`.
    - `mean`, `rstd`: `[batch, groups]`, from the forward pass.
    - `dy`: As `x`, the cotangent of the first result.
    - `dmean`, `drstd`: `[batch, groups]`, or `None` for zeros.
    - `groups`, `config`, `interpret`: As of `group_norm`.

    **Returns:**

    `dx`, `dscale` and `dbias`, each of the shape and dtype of its operand, `None` for
    one that is not there.

        >>> x, dy = jnp.array([[[1.0], [3.0]]]), jnp.array([[[1.0], [0.0]]])
        >>> mean, rstd = jnp.array([[2.0]]), jnp.array([[1.0]])
        >>> config = GroupNormConfig()
        >>> _, _, dbias = group_norm_backward(
        ...     *(x, None, jnp.zeros(1), mean, rstd, dy),
        ...     groups=1, config=config, interpret=True,
        ... )
        >>> dbias.tolist()
        [1.0]
    """
    if x.size == 0:
        return x, _zeros(scale), _zeros(bias)
    channels = x.shape[2]
    grid, block, row, vector = layout(x, config)
    rows = {
        "mean": (each_channel(mean, channels), row),
        "rstd": (each_channel(rstd, channels), row),
    }
    total, total_normal = _sums(x, dy, rows, config, interpret)
    shift, slope = _coefficients(
        x, scale, rstd, total, total_normal, dmean, drstd, groups
    )
    out = named_call(
        _finish_kernel,
        inputs={
            "x": (x, block),
            "dy": (dy, block),
            **rows,
            "shift": (each_channel(shift, channels), row),
            "slope": (each_channel(slope, channels), row),
            "scale": (as_row(scale), vector),
        },
        outputs={"dx": (jax.ShapeDtypeStruct(x.shape, x.dtype), block)},
        grid=grid,
        semantics=("parallel", "parallel"),
        interpret=interpret,
        name="group_norm_backward_finish",
    )
    return out.dx, _join(total_normal, scale), _join(total, bias)


def _normal(ref):
    return (ref.x[...].astype(ref.mean.dtype) - ref.mean[...]) * ref.rstd[...]


def _sum_kernel(ref, *, positions):
    tile = pl.program_id(1)

    @pl.when(tile == 0)
    def _():
        ref.total[...] = jnp.zeros_like(ref.total)
        ref.total_normal[...] = jnp.zeros_like(ref.total_normal)

    valid = inside(ref.x.shape, 0, tile, positions)
    dy = ref.dy[...].astype(ref.mean.dtype)
    for total, summand in ((ref.total, dy), (ref.total_normal, dy * _normal(ref))):
        total[...] += jnp.sum(jnp.where(valid, summand, 0.0), axis=0, keepdims=True)


def _sums(x, dy, rows, config, interpret):
    grid, block, row, _ = layout(x, config)
    total = jax.ShapeDtypeStruct((x.shape[0], 1, x.shape[2]), accumulator(x.dtype))
    out = named_call(
        functools.partial(_sum_kernel, positions=x.shape[1]),
        inputs={"x": (x, block), "dy": (dy, block), **rows},
        outputs={"total": (total, row), "total_normal": (total, row)},
        grid=grid,
        semantics=("parallel", "arbitrary"),
        interpret=interpret,
        name="group_norm_backward_sums",
    )
    return out.total, out.total_normal


def _coefficients(x, scale, rstd, total, total_normal, dmean, drstd, groups):
    """Return what `dx = rstd * scale * dy - shift - n * slope` needs of each group."""
    batch, positions, channels = x.shape
    count = positions * channels // groups
    weight = jnp.ones(channels) if scale is None else scale
    weight = weight.astype(rstd.dtype).reshape(1, channels)

    def mean_over_group(sums):
        weighted = sums.reshape(batch, channels) * weight
        return jnp.sum(weighted.reshape(batch, groups, -1), axis=2) / count

    shift = rstd * mean_over_group(total)
    slope = rstd * mean_over_group(total_normal)
    if dmean is not None:
        shift = shift - dmean / count
    if drstd is not None:
        slope = slope + drstd * rstd * rstd / count
    return shift, slope


def _finish_kernel(ref):
    dtype = ref.mean.dtype
    dy = ref.dy[...].astype(dtype)
    if ref.scale is not None:
        dy = dy * ref.scale[...].astype(dtype)
    dx = ref.rstd[...] * dy - ref.shift[...] - _normal(ref) * ref.slope[...]
    ref.dx[...] = dx.astype(ref.dx.dtype)


def _join(total, like):
    return None if like is None else jnp.sum(total, axis=(0, 1)).astype(like.dtype)


def _zeros(like):
    return None if like is None else jnp.zeros_like(like)
