"""Layer and RMS normalisation over the last axis."""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.define import define
from tilejax.primitives.dtypes import FLOATS, accumulator
from tilejax.primitives.sizes import count, nbytes
from tilejax.targets.cost import Cost


def layer_norm(
    x: jax.typing.ArrayLike,
    scale: jax.typing.ArrayLike | None = None,
    bias: jax.typing.ArrayLike | None = None,
    *,
    eps: float = 1e-5,
) -> jax.Array:
    """Normalise the last axis to mean zero and variance one, then scale and shift.

    `(x - mean(x)) / sqrt(mean((x - mean(x))**2) + eps) * scale + bias`, computed in
    float32 (float64 for float64). The backward pass keeps `x` and two numbers a row.

    **Arguments:**

    - `x`: (..., n), floating.
    - `scale`, `bias`: (n,), floating, or None.
    - `eps`: not negative, added to the variance.

    **Returns:** the shape and dtype of `x`.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`.

    >>> layer_norm(jnp.array([1.0, 3.0]), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    return layer_norm_op(x, scale, bias, eps=checked_eps("layer_norm", eps))[0]


def rms_norm(
    x: jax.typing.ArrayLike,
    scale: jax.typing.ArrayLike | None = None,
    *,
    eps: float = 1e-6,
) -> jax.Array:
    """Divide the last axis by its root mean square, then scale.

    `x / sqrt(mean(x**2) + eps) * scale`, computed in float32 (float64 for float64). The
    backward pass keeps `x` and one number a row.

    **Arguments:**

    - `x`: (..., n), floating.
    - `scale`: (n,), floating, or None. For the `1 + scale` of some models, pass that.
    - `eps`: not negative, added to the mean square.

    **Returns:** the shape and dtype of `x`.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`.

    >>> rms_norm(jnp.array([1.0, -1.0]), jnp.array([2.0, 3.0]), eps=0.0).tolist()
    [2.0, -3.0]
    """
    return rms_norm_op(x, scale, eps=checked_eps("rms_norm", eps))[0]


def checked_eps(name: str, eps: float) -> float:
    """Return `eps` as a number, or raise `ParameterError`."""
    try:
        number = float(eps)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
        raise ParameterError(
            f"{name}: eps={eps!r} is no number; it is static, so not traced"
        ) from error
    if not number >= 0:
        raise ParameterError(f"{name}: eps={number} must not be negative")
    return number


def check_operands(name: str, x: Any, **rows: Any) -> None:
    """Raise unless all are floating and `rows` as long as the last axis of `x`."""
    for label, value in {"x": x, **rows}.items():
        if value is not None and value.dtype.name not in FLOATS:
            raise DTypeError(
                f"{name}: {label} is {value.dtype.name}{list(value.shape)}; it takes "
                f"{', '.join(FLOATS)}. Convert it first (astype)"
            )
    if x.ndim == 0:
        raise ShapeError(f"{name}: x is a single number; it needs an axis to normalise")
    for label, value in rows.items():
        if value is not None and value.shape != x.shape[-1:]:
            raise ShapeError(
                f"{name}: {label} has shape {value.shape}, but x has shape {x.shape}, "
                f"so {label} must have shape {x.shape[-1:]}"
            )


def _cost(x: Any, *rows: Any, sums: int, statistics: int) -> Cost:
    """An element: `sums` operations for the statistics, then subtract and multiply.

    A scale and a bias add one operation each; a group of numbers costs one rsqrt.
    """
    wide = accumulator(x.dtype)
    there = sum(row is not None for row in rows)
    return Cost(
        bytes_read=nbytes(x, *rows),
        bytes_written=nbytes(x) + statistics * wide.itemsize,
        transcendentals=_rows(x),
        elementwise={wide.name: (sums + 1 + there) * count(x)},
    )


def _rows(x: Any) -> int:
    return count(x) // max(1, x.shape[-1])


def _layer_reference(x, scale, bias, *, eps):
    wide = x.astype(accumulator(x.dtype))
    mean = jnp.mean(wide, axis=-1)
    centred = wide - mean[..., None]
    rstd = jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1) + eps)
    y = centred * rstd[..., None]
    return finish(y, scale, bias).astype(x.dtype), mean, rstd


def finish(normal: jax.Array, scale: Any, bias: Any) -> jax.Array:
    """Scale and shift, each where it is given."""
    if scale is not None:
        normal = normal * scale.astype(normal.dtype)
    return normal if bias is None else normal + bias.astype(normal.dtype)


def _layer_backward(operands, saved, cotangents, *, eps):
    """With n = (x - mean) rstd and g = dy scale, over a row of N numbers:

    dx = rstd (g - mean(g) - n mean(g n)) + dmean / N - drstd rstd^2 n / N.
    """
    del eps
    x, scale, bias = operands
    (mean, rstd), (dy, dmean, drstd) = saved, cotangents
    normal = (x.astype(rstd.dtype) - mean[..., None]) * rstd[..., None]
    dy = dy.astype(rstd.dtype)
    dx = _row_gradient(finish(dy, scale, None), normal, rstd, drstd)
    dx = dx - (rstd * jnp.mean(finish(dy, scale, None), -1))[..., None]
    dx = dx + dmean[..., None] / max(1, x.shape[-1])
    return dx, *_row_sums(dy, normal, scale, bias)


def _row_gradient(g, normal, rstd, drstd):
    """Rstd (g - n (mean(g n) + drstd rstd / N)): what both norms have in common."""
    slope = jnp.mean(g * normal, -1) + drstd * rstd / max(1, g.shape[-1])
    return rstd[..., None] * (g - normal * slope[..., None])


def _row_sums(dy, normal, scale, bias) -> tuple:
    """The gradients of scale and bias: sums over all rows."""
    leading = tuple(range(dy.ndim - 1))
    return (
        None if scale is None else jnp.sum(dy * normal, leading),
        None if bias is None else jnp.sum(dy, leading),
    )


def _rms_reference(x, scale, *, eps):
    wide = x.astype(accumulator(x.dtype))
    rstd = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1) + eps)
    return finish(wide * rstd[..., None], scale, None).astype(x.dtype), rstd


def _rms_backward(operands, saved, cotangents, *, eps):
    """With n = x rstd and g = dy scale: dx = rstd (g - n mean(g n)) - ... as above."""
    del eps
    x, scale = operands
    (rstd,), (dy, drstd) = saved, cotangents
    normal = x.astype(rstd.dtype) * rstd[..., None]
    dy = dy.astype(rstd.dtype)
    dx = _row_gradient(finish(dy, scale, None), normal, rstd, drstd)
    return dx, _row_sums(dy, normal, scale, None)[0]


def _layer_rule(avals, params) -> str:
    return _rule(avals, results=3)


def _rms_rule(avals, params) -> str:
    return _rule(avals, results=2)


def _rule(avals, results: int) -> str:
    rest = " ".join(f"b{i}" for i in range(avals[0].ndim - 1))
    ins = [f"{rest} n!", *("n" for a in avals[1:] if a is not None)]
    return f"{', '.join(ins)} -> {rest} n{f', {rest}' * (results - 1)}"


def _layer_check(x, scale, bias, *, eps) -> None:
    checked_eps("layer_norm", eps)
    check_operands("layer_norm", x, scale=scale, bias=bias)


def _rms_check(x, scale, *, eps) -> None:
    checked_eps("rms_norm", eps)
    check_operands("rms_norm", x, scale=scale)


def _layer_cost(x, scale, bias, *, eps) -> Cost:
    del eps
    return _cost(x, scale, bias, sums=4, statistics=2 * _rows(x))


def _rms_cost(x, scale, *, eps) -> Cost:
    del eps
    return _cost(x, scale, sums=2, statistics=_rows(x))


layer_norm_op = define(
    "layer_norm",
    reference=_layer_reference,
    sharding=_layer_rule,
    backward=_layer_backward,
    saves=(1, 2),
    cost=_layer_cost,
    check=_layer_check,
)

rms_norm_op = define(
    "rms_norm",
    reference=_rms_reference,
    sharding=_rms_rule,
    backward=_rms_backward,
    saves=(1,),
    cost=_rms_cost,
    check=_rms_check,
)
