"""Normalising to mean zero and variance one, or to sum one."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax import primitives
from tilejax.errors import ShapeError
from tilejax.ops.checks import all_of, axes_of, kinds, ranks, typed
from tilejax.ops.registry import Sample, declare as _declare
from tilejax.primitives.sizes import show

declare = partial(_declare, family="normalisation")


def _over_channels(row, ndim: int, axis: int):
    """Give a row of one number a channel as many axes behind as the channels have."""
    return jnp.reshape(row, (-1, *(1,) * (ndim - 1 - axis % ndim)))


def _batch_norm(x, mean, variance, scale=None, bias=None, *, eps=1e-5, axis=-1):
    place = partial(_over_channels, ndim=jnp.ndim(x), axis=axis)
    slope = jax.lax.rsqrt(variance + eps)
    if scale is not None:
        slope = slope * scale
    y = (x - place(mean)) * place(slope)
    y = y if bias is None else y + place(bias)
    return y.astype(jnp.result_type(x))


def _batch_oracle(x, mean, variance, scale=1, bias=0, axis=-1):
    moved = np.moveaxis(x, axis, -1)
    y = (moved - mean) / np.sqrt(variance + 1e-5) * scale + bias
    return np.moveaxis(y, -1, axis)


def _statistics(x, *, axis=-1):
    rest = tuple(d for d in range(jnp.ndim(x)) if d != axis % jnp.ndim(x))
    wide = x.astype(jnp.promote_types(jnp.result_type(x), jnp.float32))
    return jnp.mean(wide, rest), jnp.var(wide, rest)


def _per_channel(name: str, given: Mapping[str, Any]) -> None:
    x = typed(given["x"])
    (axis,) = axes_of(name, "axis", given.get("axis", -1), x)
    for label in ("mean", "variance", "scale", "bias"):
        if given.get(label) is None:
            continue
        row = typed(given[label])
        if row.shape != (x.shape[axis],):
            raise ShapeError(
                f"{name}: {label} is {show(row)}, but x, {show(x)}, has "
                f"{x.shape[axis]} channels along axis {axis}; give one number each"
            )


def _softmax_oracle(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _l2(x, *, axis=-1, eps=1e-12):
    total = jnp.sum(jnp.square(x), axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(total, eps))


def _layer_oracle(x, scale=1, bias=0):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


layer_norm = declare(
    "layer_norm",
    primitives.layer_norm,
    "Normalise the last axis to mean zero and variance one, then scale and shift.",
    operands="x, scale, bias",
    oracle=_layer_oracle,
    samples=["f32[2,3,8] f32[8] f32[8]", "f32[2,8]"],
)
rms_norm = declare(
    "rms_norm",
    primitives.rms_norm,
    "Divide the last axis by its root mean square, then scale.",
    operands="x, scale",
    oracle=lambda x, s: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * s,
    samples=["f32[2,3,8] f32[8]"],
)
group_norm = declare(
    "group_norm",
    primitives.group_norm,
    "Normalise each sample's groups of channels over all positions.",
    operands="x, scale, bias",
    samples=[Sample("f32[2,5,8] f32[8] f32[8]", {"groups": 4})],
)
batch_norm = declare(
    "batch_norm",
    _batch_norm,
    "Normalise each channel by a mean and a variance, then scale and shift.",
    operands="x, mean, variance, scale, bias",
    check=all_of(
        ranks("x", 2), kinds("floating", "x", "mean", "variance"), _per_channel
    ),
    oracle=_batch_oracle,
    samples=[
        "f32[2,5,3] f32[3] f32+[3] f32[3] f32[3]",
        Sample("f32[2,3,5] f32[3] f32+[3]", {"axis": 1}),
    ],
)
batch_statistics = declare(
    "batch_statistics",
    _statistics,
    "Take each channel's mean and variance over all other axes, in f32 at least.",
    check=all_of(ranks("x", 2), kinds("floating", "x")),
    oracle=lambda x: (x.mean((0, 1)), x.var((0, 1))),
    samples=["f32[2,5,3]"],
)
l2_normalise = declare(
    "l2_normalise",
    _l2,
    "Divide an axis by its length.",
    check=kinds("floating", "x"),
    oracle=lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    samples=["f32[2,3]"],
)
softmax = declare(
    "softmax",
    primitives.softmax,
    "Divide exponentials by their sum over an axis.",
    operands="x, axis=",
    oracle=_softmax_oracle,
    samples=["f32[2,5]", Sample("f32[2,5]", {"axis": 0})],
)
log_softmax = declare(
    "log_softmax",
    primitives.log_softmax,
    "Subtract the logarithm of the sum of exponentials over an axis.",
    operands="x, axis=",
    oracle=lambda x: np.log(_softmax_oracle(x)),
    samples=["f32[2,5]"],
)
