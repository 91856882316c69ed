"""Convolutions, and the windows that pooling goes over."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp

from tilejax import primitives
from tilejax.errors import ShapeError
from tilejax.ops.checks import all_of, kinds, ranks, typed
from tilejax.ops.registry import Operation, Sample, declare as _declare
from tilejax.primitives.conv_arguments import LAYOUTS, layout_of
from tilejax.primitives.sizes import show

declare = partial(_declare, family="convolution")


def with_bias(y, bias, layout: str | None):
    """Add one number a feature, wherever the layout has the features."""
    if bias is None:
        return y
    behind = 0 if layout is None else len(layout) - 1 - layout.index("C")
    return y + jnp.reshape(bias, (*jnp.shape(bias), *(1,) * behind))


def _conv(
    x,
    kernel,
    bias=None,
    *,
    stride=1,
    padding="SAME",
    dilation=1,
    groups=1,
    layout=None,
    precision=None,
):
    y = primitives.conv(
        x,
        kernel,
        strides=stride,
        padding=padding,
        rhs_dilation=dilation,
        groups=groups,
        layout=layout,
        precision=precision,
    )
    return with_bias(y, bias, layout)


def _transposed(
    x,
    kernel,
    bias=None,
    *,
    stride=1,
    padding="SAME",
    dilation=1,
    layout=None,
    precision=None,
):
    y = primitives.conv_transpose(
        x,
        kernel,
        strides=stride,
        padding=padding,
        rhs_dilation=dilation,
        layout=layout,
        precision=precision,
    )
    return with_bias(y, bias, layout)


def _fits_bias(name: str, given: Mapping[str, Any]) -> None:
    if given.get("bias") is None:
        return
    x, kernel, bias = (typed(given[label]) for label in ("x", "kernel", "bias"))
    filters = LAYOUTS[layout_of(name, x, kernel, given.get("layout"))]
    outs = kernel.shape[filters.index("O")]
    if bias.shape != (outs,):
        raise ShapeError(
            f"{name}: bias is {show(bias)}, but the kernel, {show(kernel)}, makes "
            f"{outs} features; the bias must have shape ({outs},)"
        )


def _declared(function: Callable, name: str, rank: int, doc: str) -> Operation:
    space = "8,7,6"[: 2 * rank - 1]
    window = ",".join("323"[:rank])
    return declare(
        name,
        function,
        f"{doc}; `x` is [batch, *space, features], or as `layout` says.",
        operands="x, kernel, bias",
        check=all_of(
            kinds("inexact", "x", "kernel", "bias"),
            ranks("x", rank + 2, rank + 2),
            ranks("kernel", rank + 2, rank + 2),
            _fits_bias,
        ),
        samples=[
            Sample(f"f32[2,{space},4] f32[{window},4,3] f32[3]", {"stride": 2}),
            Sample(f"f32[2,{space},4] f32[{window},4,3]", {"padding": "VALID"}),
        ],
    )


conv1d = _declared(_conv, "conv1d", 1, "Convolve over one axis")
conv2d = _declared(_conv, "conv2d", 2, "Convolve over two axes")
conv3d = _declared(_conv, "conv3d", 3, "Convolve over three axes")
conv1d_transpose = _declared(_transposed, "conv1d_transpose", 1, "Enlarge one axis")
conv2d_transpose = _declared(_transposed, "conv2d_transpose", 2, "Enlarge two axes")
conv3d_transpose = _declared(_transposed, "conv3d_transpose", 3, "Enlarge three axes")
conv_general_dilated = declare(
    "conv_general_dilated",
    primitives.conv_general_dilated,
    "Convolve with every dimension and parameter free.",
    operands="x, w",
    samples=[
        Sample("f32[1,2,5] f32[4,2,3]", {"window_strides": (1,), "padding": "VALID"})
    ],
)
