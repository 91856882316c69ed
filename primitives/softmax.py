"""Softmax and its logarithm, over one axis or several."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives.define import define
from tilejax.primitives.dtypes import FLOATS
from tilejax.primitives.sizes import count, nbytes
from tilejax.targets.cost import Cost


def softmax(
    x: jax.typing.ArrayLike, axis: int | Sequence[int] | None = -1
) -> jax.Array:
    """Divide exponentials by their sum over an axis.

    `exp(x - max(x)) / sum(exp(x - max(x)))`, in the dtype of `x`, the very equations of
    `jax.nn.softmax`. A slice of nothing but -inf, or with +inf or NaN in it, gives NaN.

    **Arguments:**

    - `x`: floating, any shape.
    - `axis`: the axis or axes that sum to one; None for all.

    **Returns:** the shape and dtype of `x`.

    **Raises:** `DTypeError` for integers, `ParameterError` for an axis `x` lacks.

    >>> softmax(jnp.array([0.0, 0.0, -jnp.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    return _bind(x, axis, log=False)


def log_softmax(
    x: jax.typing.ArrayLike, axis: int | Sequence[int] | None = -1
) -> jax.Array:
    """Subtract the logarithm of the sum of exponentials over an axis.

    `x - max(x) - log(sum(exp(x - max(x))))`, in the dtype of `x`, the very equations of
    `jax.nn.log_softmax`.

    **Arguments:**

    - `x`: floating, any shape.
    - `axis`: the axis or axes over which the exponentials of the result sum to one;
      None for all.

    **Returns:** the shape and dtype of `x`.

    **Raises:** `DTypeError` for integers, `ParameterError` for an axis `x` lacks.

    >>> jnp.exp(log_softmax(jnp.zeros((2, 4)), axis=0)).tolist()[0]
    [0.5, 0.5, 0.5, 0.5]
    """
    return _bind(x, axis, log=True)


def _bind(x, axis, log: bool) -> Any:
    x = softmax_op.array(0, x)
    shape = x.shape
    if axis is None:
        axis = range(len(shape))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in axes:
        if not -len(shape) <= a < len(shape):
            raise ParameterError(
                f"softmax: axis {a} is out of range for x of shape {shape}; give axes "
                "that x has, or None for all"
            )
    axes = tuple(a % len(shape) for a in axes)
    if len(set(axes)) != len(axes):
        raise ParameterError(f"softmax: axis={axis} names an axis of {shape} twice")
    return softmax_op(x, axes=tuple(sorted(axes)), log=log)


def _reference(x: jax.Array, *, axes: tuple[int, ...], log: bool) -> jax.Array:
    maximum = jnp.max(x, axes, initial=-jnp.inf, keepdims=True)
    shifted = x - jax.lax.stop_gradient(maximum)
    exponentials = jnp.exp(shifted)
    total = jnp.sum(exponentials, axes, keepdims=True)
    return shifted - jnp.log(total) if log else exponentials / total


def _backward(operands, saved, cotangents, *, axes, log):
    """With y the result: dx = y (dy - sum(y dy)); for the log, dy - exp(y) sum(dy)."""
    del operands
    (y,), (dy,) = saved, cotangents
    if log:
        return (dy - jnp.exp(y) * jnp.sum(dy, axes, keepdims=True),)
    return (y * (dy - jnp.sum(y * dy, axes, keepdims=True)),)


def _rule(avals, params) -> str:
    dims = [f"d{i}" + "!" * (i in params["axes"]) for i in range(avals[0].ndim)]
    return f"{' '.join(dims)} -> {' '.join(dims)}"


def _check(x: Any, *, axes: tuple[int, ...], log: bool) -> None:
    del log
    if axes and x.ndim <= max(axes):
        raise ShapeError(f"softmax: axes {axes} are out of range for shape {x.shape}")


def _cost(x: Any, *, axes: tuple[int, ...], log: bool) -> Cost:
    """An element: one exp, and max, subtract, add, and divide (or subtract again)."""
    sums = count(x) // max(1, _length(x, axes))
    return Cost(
        bytes_read=nbytes(x),
        bytes_written=nbytes(x),
        transcendentals=count(x) + (sums if log else 0),
        elementwise={x.dtype.name: 4 * count(x)},
    )


def _length(x: Any, axes: tuple[int, ...]) -> int:
    length = 1
    for a in axes:
        length *= x.shape[a]
    return length


softmax_op = define(
    "softmax",
    reference=_reference,
    sharding=_rule,
    backward=_backward,
    saves=(0,),
    cost=_cost,
    check=_check,
    dtypes=FLOATS,
)
