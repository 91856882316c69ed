"""Pooling: one number for each window, or for all of space."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.errors import ParameterError, ShapeError
from tilejax.ops.checks import all_of, kinds, ranks, typed
from tilejax.ops.registry import Sample, declare as _declare
from tilejax.primitives.conv_arguments import each_dimension, padding_of
from tilejax.primitives.sizes import show

declare = partial(_declare, family="pooling")

Sizes = int | Sequence[int]


def _windows(x, window: Sizes, stride: Sizes | None, padding, channels_last: bool):
    """Window, strides and padding of all axes."""
    count = x.ndim - 2
    inner = each_dimension("pool", "window", window, count)
    steps = each_dimension("pool", "stride", inner if stride is None else stride, count)
    pads = padding_of("pool", padding, count)
    if not isinstance(pads, str):
        none = ((0, 0),)
        pads = (*none, *pads, *none) if channels_last else (*none * 2, *pads)
    if channels_last:
        return (1, *inner, 1), (1, *steps, 1), pads
    return (1, 1, *inner), (1, 1, *steps), pads


def _largest(x, *, window, stride=None, padding="VALID", channels_last=True):
    x = jnp.asarray(x)
    least = (
        -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    )
    return jax.lax.reduce_window(
        x,
        np.array(least, x.dtype),
        jax.lax.max,
        *_windows(x, window, stride, padding, channels_last),
    )


def _average(
    x,
    *,
    window,
    stride=None,
    padding="VALID",
    count_padding=False,
    channels_last=True,
):
    x = jnp.asarray(x)
    sizes = _windows(x, window, stride, padding, channels_last)
    zero = np.array(0, x.dtype)
    total = jax.lax.reduce_window(x, zero, jax.lax.add, *sizes)
    if padding == "VALID" or count_padding:
        return total / np.array(np.prod(sizes[0]), x.dtype)
    return total / jax.lax.reduce_window(jnp.ones_like(x), zero, jax.lax.add, *sizes)


def _everywhere(function):
    def run(x, *, channels_last: bool = True):
        first = 1 if channels_last else 2
        return function(x, tuple(range(first, first + jnp.ndim(x) - 2)))

    return run


def _fits(name: str, given: Mapping[str, Any]) -> None:
    x = typed(given["x"])
    if "window" not in given:
        raise ParameterError(f"{name}: give window=, one number or one an axis")
    window = each_dimension(name, "window", given["window"], x.ndim - 2)
    if given.get("stride") is not None:
        each_dimension(name, "stride", given["stride"], x.ndim - 2)
    pads = padding_of(name, given.get("padding", "VALID"), x.ndim - 2)
    first = 1 if given.get("channels_last", True) else 2
    space = x.shape[first : first + x.ndim - 2]
    small = [
        s for s, w in zip(space, window, strict=True) if isinstance(s, int) and s < w
    ]
    if pads == "VALID" and small:
        raise ShapeError(
            f"{name}: window {window} is larger than the space {space} of x, {show(x)};"
            " take a smaller window, or padding='SAME'"
        )


_CHECK = all_of(ranks("x", 3), kinds("number", "x"), _fits)
_SAMPLES = [
    Sample("f32[2,6,7,3]", {"window": 2}),
    Sample("f32[2,6,7,3]", {"window": (3, 2), "stride": 1, "padding": "SAME"}),
    Sample("f32[2,3,7]", {"window": 3, "stride": 2, "channels_last": False}),
]
max_pool = declare(
    "max_pool",
    _largest,
    "Take the largest of each window; windows touch unless a stride is given.",
    check=_CHECK,
    samples=_SAMPLES,
)
average_pool = declare(
    "average_pool",
    _average,
    "Average each window, what is padded not counted unless count_padding.",
    check=_CHECK,
    samples=_SAMPLES,
)
global_max_pool = declare(
    "global_max_pool",
    _everywhere(jnp.max),
    "Take the largest over space.",
    check=ranks("x", 3),
    oracle=lambda x: x.max((1, 2)),
    samples=["f32[2,6,7,3]"],
)
global_average_pool = declare(
    "global_average_pool",
    _everywhere(jnp.mean),
    "Average over space.",
    check=ranks("x", 3),
    oracle=lambda x: x.mean((1, 2)),
    samples=["f32[2,6,7,3]"],
)
