"""The convolution that undoes another's strides."""

from collections.abc import Sequence
from typing import Any

import jax

from tilejax.errors import ShapeError
from tilejax.primitives import retile
from tilejax.primitives.conv import conv_op
from tilejax.primitives.conv_arguments import (
    LAYOUTS,
    Padding,
    each_dimension,
    layout_of,
    padding_of,
)
from tilejax.primitives.sizes import show

ArrayLike = jax.typing.ArrayLike


def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    *,
    strides: int | Sequence[int] = 1,
    padding: Padding = "SAME",
    rhs_dilation: int | Sequence[int] = 1,
    layout: str | None = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """Convolve with fractional strides, which enlarges `x`.

    `jax.lax.conv_transpose`, to the bit: with `transpose_kernel` it is the gradient of
    `conv` with respect to its input.

    **Arguments:**

    - `x`: `[N, *spatial, C]`, or as `layout` says.
    - `w`: `[*window, C, O]`; `[O, C, *window]` where the features of `x` come before
      space; with `transpose_kernel` `C` and `O` change places.
    - `strides`: how many times larger the result is, one number or one a dimension.
    - `padding`: of the convolution that this transposes: `"SAME"` or `"VALID"`; or what
      is put around the enlarged `x`: a number or pairs.
    - `rhs_dilation`, `layout`, `precision`, `preferred_element_type`: as for `conv`.
    - `transpose_kernel`: whether the window is reversed and its features swapped.

    **Returns:** the layout of `x`, with `O` features.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> import jax.numpy as jnp
    >>> conv_transpose(jnp.ones((1, 4, 4, 3)), jnp.ones((3, 3, 3, 2)), strides=2).shape
    (1, 8, 8, 2)
    """
    x, w = conv_op.array(0, x), conv_op.array(1, w)
    layout = layout_of("conv_transpose", x, w, layout)
    count = x.ndim - 2
    filters = LAYOUTS[layout]
    strides = each_dimension("conv_transpose", "strides", strides, count)
    pads = padding_of("conv_transpose", padding, count)
    rhs_dilation = each_dimension("conv_transpose", "rhs_dilation", rhs_dilation, count)
    takes = w.shape[filters.index("O" if transpose_kernel else "I")]
    features = x.shape[layout.index("C")]
    if features != takes:
        raise ShapeError(
            f"conv_transpose: x, {show(x)}, has {features} features, but w, {show(w)}, "
            f"takes {takes} ({filters}, transpose_kernel={transpose_kernel})"
        )
    (out,) = retile.evaluate(
        lambda x, w: [
            jax.lax.conv_transpose(
                x,
                w,
                strides,
                pads,
                rhs_dilation,
                (layout, filters, layout),
                transpose_kernel,
                precision,
                preferred_element_type,
            )
        ],
        x,
        w,
    )
    return out
