"""Group normalisation: over positions and the channels of a group."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives.define import define
from tilejax.primitives.dtypes import accumulator
from tilejax.primitives.norms import check_operands, checked_eps, finish
from tilejax.primitives.sizes import count, nbytes
from tilejax.targets.cost import Cost


def group_norm(
    x: jax.typing.ArrayLike,
    scale: jax.typing.ArrayLike | None = None,
    bias: jax.typing.ArrayLike | None = None,
    *,
    groups: int,
    eps: float = 1e-5,
    channel_axis: int = -1,
) -> jax.Array:
    """Normalise each sample's groups of channels over all positions.

    `(x - mean) / sqrt(variance + eps) * scale + bias`, mean and variance over the
    positions and the channels of a group, computed in float32 (float64 for float64).
    The backward pass keeps `x` and two numbers a group.

    **Arguments:**

    - `x`: (batch, ..., channels), floating, any number of axes of positions.
    - `scale`, `bias`: (channels,), floating, or None.
    - `groups`: divides channels; 1 normalises all, channels each alone.
    - `eps`: not negative, added to the variance.
    - `channel_axis`: where the channels are, if not last: 1 for (batch, channels, ...).

    **Returns:** the shape and dtype of `x`.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`.

    >>> x = jnp.array([[1.0, 3.0, 5.0, 9.0]])
    >>> group_norm(x, groups=2).round(3).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    x = group_norm_op.array(0, x)
    if x.ndim < 2 or not -x.ndim <= channel_axis < x.ndim or channel_axis % x.ndim == 0:
        raise ShapeError(
            f"group_norm: x has shape {x.shape} and channel_axis={channel_axis}; it "
            "needs a batch axis in front and a channel axis after it"
        )
    last = jnp.moveaxis(x, channel_axis, -1)
    positions = math.prod(last.shape[1:-1])
    rows = last.reshape(last.shape[0], positions, last.shape[-1])
    eps = checked_eps("group_norm", eps)
    y = group_norm_op(rows, scale, bias, groups=groups, eps=eps)[0]
    return jnp.moveaxis(y.reshape(last.shape), -1, channel_axis)


def _reference(x, scale, bias, *, groups, eps):
    wide = x.astype(accumulator(x.dtype))
    parts = _parts(wide, groups)
    mean = jnp.mean(parts, axis=(1, 3))
    centred = parts - _spread(mean)
    rstd = jax.lax.rsqrt(jnp.mean(centred * centred, axis=(1, 3)) + eps)
    y = (centred * _spread(rstd)).reshape(x.shape)
    return finish(y, scale, bias).astype(x.dtype), mean, rstd


def _parts(x: jax.Array, groups: int) -> jax.Array:
    """(batch, positions, channels) as (batch, positions, groups, channels of one)."""
    return x.reshape(*x.shape[:2], groups, x.shape[2] // groups)


def _spread(statistic: jax.Array) -> jax.Array:
    return statistic[:, None, :, None]


def _backward(operands, saved, cotangents, *, groups, eps):
    """As layer norm's, a row being the positions and channels of a group."""
    del eps
    x, scale, bias = operands
    (mean, rstd), (dy, dmean, drstd) = saved, cotangents
    dy = dy.astype(rstd.dtype)
    parts = _parts(x.astype(rstd.dtype), groups)
    normal = (parts - _spread(mean)) * _spread(rstd)
    g = _parts(finish(dy, scale, None), groups)
    size = max(1, x.shape[1] * (x.shape[2] // groups))
    slope = jnp.mean(g * normal, (1, 3)) + drstd * rstd / size
    flat = jnp.mean(g, (1, 3)) - dmean / (rstd * size)
    dx = _spread(rstd) * (g - _spread(flat) - normal * _spread(slope))
    return (
        dx.reshape(x.shape),
        None if scale is None else jnp.sum(dy * normal.reshape(x.shape), (0, 1)),
        None if bias is None else jnp.sum(dy, (0, 1)),
    )


def _rule(avals, params) -> str:
    del params
    rows = ["c"] * sum(a is not None for a in avals[1:])
    return f"{', '.join(['b s! c!', *rows])} -> b s c, b 1, b 1"


def _check(x: Any, scale: Any, bias: Any, *, groups: int, eps: float) -> None:
    checked_eps("group_norm", eps)
    if x.ndim != 3:
        raise ShapeError(
            f"group_norm: x has shape {x.shape}, not (batch, positions, c)"
        )
    check_operands("group_norm", x, scale=scale, bias=bias)
    if not isinstance(groups, int) or groups < 1 or x.shape[2] % groups:
        raise ParameterError(
            f"group_norm: groups={groups!r} must divide the {x.shape[2]} channels"
        )


def _cost(x: Any, scale: Any, bias: Any, *, groups: int, eps: float) -> Cost:
    """An element: as layer norm's; a group costs one rsqrt."""
    del eps
    wide = accumulator(x.dtype)
    statistics = x.shape[0] * groups
    there = sum(row is not None for row in (scale, bias))
    return Cost(
        bytes_read=nbytes(x, scale, bias),
        bytes_written=nbytes(x) + 2 * statistics * wide.itemsize,
        transcendentals=statistics,
        elementwise={wide.name: (5 + there) * count(x)},
    )


group_norm_op = define(
    "group_norm",
    reference=_reference,
    sharding=_rule,
    backward=_backward,
    saves=(1, 2),
    cost=_cost,
    check=_check,
)
