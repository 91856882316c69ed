"""Convolution in any number of dimensions."""

from collections.abc import Sequence
from typing import Any

import jax

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives import conv_dims, retile
from tilejax.primitives.call import Call
from tilejax.primitives.conv_arguments import (
    LAYOUTS,
    Padding,
    each_dimension,
    layout_of,
    padding_of,
)
from tilejax.primitives.define import define
from tilejax.primitives.sizes import show

ArrayLike = jax.typing.ArrayLike

_PLAIN = Call((True, True))


def conv(
    x: ArrayLike,
    w: ArrayLike,
    *,
    strides: int | Sequence[int] = 1,
    padding: Padding = "SAME",
    lhs_dilation: int | Sequence[int] = 1,
    rhs_dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: str | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """Convolve `x` with the filters `w`, in 1, 2 or 3 dimensions.

    `y[n, s, o] = sum over k, c of x[n, s * strides + k * rhs_dilation - low, c] *
    w[k, c, o]`: `jax.lax.conv_general_dilated`, to the bit.

    **Arguments:**

    - `x`: `[N, *spatial, C]`, or as `layout` says.
    - `w`: `[*window, C / groups, O]`; `[O, C / groups, *window]` where the features of
      `x` come before space.
    - `strides`, `lhs_dilation`, `rhs_dilation`: one number, or one a dimension.
    - `padding`: `"SAME"`, `"SAME_LOWER"`, `"VALID"`, one number, or a number or a pair
      `(low, high)` a dimension; negative crops.
    - `groups`: features go in so many groups; `C` groups are a depthwise convolution.
    - `layout`: of `x` and the result: `NWC`, `NCW`, `NHWC`, `NCHW`, `NDHWC`, `NCDHW`;
      by default the one of the rank of `x` with features last.
    - `precision`, `preferred_element_type`: as `jax.lax.conv_general_dilated` takes
      them.

    **Returns:** the layout of `x`, with `O` features.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> import jax.numpy as jnp
    >>> conv(jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 4)), strides=2).shape
    (1, 4, 4, 4)
    """
    x, w = conv_op.array(0, x), conv_op.array(1, w)
    layout = layout_of("conv", x, w, layout)
    count = x.ndim - 2
    return conv_general_dilated(
        x,
        w,
        each_dimension("conv", "strides", strides, count),
        padding_of("conv", padding, count),
        each_dimension("conv", "lhs_dilation", lhs_dilation, count),
        each_dimension("conv", "rhs_dilation", rhs_dilation, count),
        (layout, LAYOUTS[layout], layout),
        feature_group_count=groups,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated(
    x: ArrayLike,
    w: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> jax.Array:
    """Convolve with every dimension and parameter free.

    The arguments and the result of `jax.lax.conv_general_dilated`, to the bit.

    **Arguments:**

    - `x`, `w`: of one rank and dtype.
    - others: as `jax.lax.conv_general_dilated` takes them.

    **Returns:** the layout that `dimension_numbers` give the result.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> import jax.numpy as jnp
    >>> x, w = jnp.ones((1, 2, 5)), jnp.ones((4, 2, 3))
    >>> conv_general_dilated(x, w, (1,), "VALID").shape
    (1, 4, 3)
    """
    x, w = conv_op.array(0, x), conv_op.array(1, w)
    if x.ndim != w.ndim:
        raise ShapeError(f"conv: x is {show(x)} and w is {show(w)}; give both one rank")
    try:
        numbers = jax.lax.conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"conv: {error}") from error
    conv_dims.check(
        x,
        w,
        dimension_numbers=numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
    )
    params = retile.canonical_params(
        "conv",
        jax.lax.conv_general_dilated,
        jax.lax.conv_general_dilated_p,
        (x, w),
        window_strides=tuple(window_strides),
        padding=padding if isinstance(padding, str) else tuple(map(tuple, padding)),
        lhs_dilation=None if lhs_dilation is None else tuple(lhs_dilation),
        rhs_dilation=None if rhs_dilation is None else tuple(rhs_dilation),
        dimension_numbers=numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )
    return conv_op(x, w, **params)


def _reference(x, w, **params):
    lhs, rhs, _ = params["dimension_numbers"]
    if w.shape[rhs[1]]:
        # as they say anyway, but of a device's share of a depthwise convolution
        groups = x.shape[lhs[1]] // w.shape[rhs[1]]
        params["feature_group_count"] = groups
    return jax.lax.conv_general_dilated_p.bind(x, w, **params)


def _transpose(cotangents, operands, at, aval, call, params):
    return retile.transpose_of(conv_op, cotangents, operands, at, aval, call, params)


def _fold(operands, axes, axis_data, call: Call, params):
    primitive = jax.lax.conv_general_dilated_p
    return retile.fold_as(primitive, operands, axes, axis_data, params, call.target)


def _saveable(avals, params):
    del avals
    return jax.lax.conv_general_dilated_p, params


def from_conv_general_dilated(params, avals=()) -> tuple:
    """Return the operation and parameters that are a `conv_general_dilated` equation.

    **Arguments:**

    - `params`: of the equation.
    - `avals`: its operands' types, not needed.
    """
    del avals
    return conv_op, dict(params)


def _retiled(operands, params, target):
    op, own = from_conv_general_dilated(params)
    return op.bind(operands, Call(_PLAIN.given, target=target), own)


conv_op = define(
    "conv",
    reference=_reference,
    sharding=conv_dims.rule,
    linear=(0, 1),
    transpose=_transpose,
    fold=_fold,
    typed_by_reference=True,
    cost=conv_dims.cost,
    check=conv_dims.check,
    saveable_as=_saveable,
)
retile.retile(jax.lax.conv_general_dilated_p, _retiled)
