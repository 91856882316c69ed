"""Softmax over any axes as softmax of rows."""

import math
from collections.abc import Sequence

from jax import Array

from tilejax.lowering.adapt.record import Adapted, dtype_reason, struct
from tilejax.lowering.kernels import softmax as kernel
from tilejax.lowering.kernels.row_configs import (
    softmax_backward_configs,
    softmax_configs,
)
from tilejax.lowering.kernels.softmax_backward import softmax_backward
from tilejax.primitives.softmax import softmax_op


def _order(rank: int, axes: Sequence[int]) -> list[int]:
    return [i for i in range(rank) if i not in axes] + list(axes)


def _as_rows(x: Array, axes: Sequence[int]) -> Array:
    width = math.prod(x.shape[a] for a in axes)
    return x.transpose(_order(x.ndim, axes)).reshape(-1, width)


def _back(rows: Array, shape: Sequence[int], axes: Sequence[int]) -> Array:
    order = _order(len(shape), axes)
    moved = rows.reshape([shape[i] for i in order])
    return moved.transpose([order.index(i) for i in range(len(shape))])


def _forward(x: Array, *, axes, log: bool, config, interpret=False) -> Array:
    y = kernel.softmax(_as_rows(x, axes), log=log, config=config, interpret=interpret)
    return _back(y, x.shape, axes)


def _backward(operands, saved, cotangents, *, axes, log, config, interpret=False):
    (y,), (dy,) = saved, cotangents
    dx = softmax_backward(
        _as_rows(y, axes), _as_rows(dy, axes), log=log, config=config,
        interpret=interpret,
    )  # fmt: skip
    return (_back(dx, operands[0].shape, axes),)


def _matrix(x, axes: Sequence[int]):
    width = math.prod(x.shape[a] for a in axes)
    return struct((math.prod(x.shape) // max(width, 1), width), x.dtype)


def _configs(target, x, *, axes, log):
    reason = dtype_reason(target, x)
    found = reason or softmax_configs(target, _matrix(x, axes), log=log)
    return found if isinstance(found, str) else _behind_copies(found, x, axes, 2)


def _behind_copies(tilings, x, axes: Sequence[int], arrays: int):
    """Count what turning the axes costs, of so many arrays like `x`."""
    if _order(len(x.shape), axes) == list(range(len(x.shape))):
        return tilings
    each = math.prod(x.shape) * x.dtype.itemsize
    return [tiling.after_copies(arrays * each, arrays) for tiling in tilings]


def _backward_configs(target, x, *, axes, log):
    reason = dtype_reason(target, x)
    found = reason or softmax_backward_configs(target, _matrix(x, axes), log=log)
    return found if isinstance(found, str) else _behind_copies(found, x, axes, 3)


KERNELS = (
    Adapted(softmax_op, "forward", _forward, _configs),
    Adapted(softmax_op, "backward", _backward, _backward_configs),
)
