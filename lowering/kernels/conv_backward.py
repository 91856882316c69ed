"""Gradients of the convolution."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.conv import conv
from tilejax.lowering.kernels.conv_plan import (
    ConvConfig,
    ConvPlan,
    conv_out_dtype,
    plan_conv,
)
from tilejax.lowering.kernels.conv_windows import Axis, dilated, make_axes
from tilejax.lowering.kernels.tiles import keep_first


def conv_input_grad(
    ct: jax.Array,
    w: jax.Array,
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    out_dtype: Any = None,
    precision: Any = None,
    config: ConvConfig,
    interpret: Any = False,
) -> jax.Array:
    """Pull a cotangent back to the input of `conv`.

    It is the convolution of the cotangent, dilated by the strides, with the filter
    turned around and its input and output channels exchanged; the input's dilation
    becomes the stride.

    **Arguments:**

    - `ct`: `[N, *out, O]`.
    - `w`: `[*K, C / groups, O]`.
    - `sizes`: Spatial sizes of the input.
    - The others as of `conv`.

    **Returns:**

    `[N, *sizes, C]`.

        >>> ct, w = jnp.ones((1, 6, 4)), jnp.ones((3, 2, 4))
        >>> conv_input_grad(
        ...     *(ct, w), sizes=(8,), strides=(1,), padding=((0, 0),),
        ...     config=ConvConfig(), interpret=True,
        ... ).shape
        (1, 8, 2)
    """
    *taps, channels, features = w.shape
    params = turned_params(
        *(tuple(sizes), tuple(taps), strides, padding, lhs_dilation, rhs_dilation)
    )
    w = w.reshape(*taps, channels, groups, features // groups)
    w = jnp.flip(w, range(len(taps))).swapaxes(-3, -1)
    return conv(
        *(ct, w.reshape(*taps, features // groups, groups * channels)),
        **params,
        groups=groups,
        out_dtype=out_dtype,
        precision=precision,
        config=config,
        interpret=interpret,
    )


def turned_params(
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
) -> dict[str, Any]:
    """Return the parameters of the convolution that is the input's gradient.

    **Arguments:**

    - `sizes`, `taps`: Spatial sizes of the input and of the filter.
    - The others as of `conv`.

    **Returns:**

    Keyword arguments of `conv`.

        >>> turned_params((8,), (3,), (2,), ((0, 0),), None, None)["lhs_dilation"]
        (2,)
    """
    ones = (1,) * len(sizes)
    lhs_dilation, rhs_dilation = lhs_dilation or ones, rhs_dilation or ones
    axes = make_axes(sizes, taps, strides, padding, lhs_dilation, rhs_dilation)
    return {
        "strides": lhs_dilation,
        "padding": [_turned_padding(axis) for axis in axes[3 - len(sizes) :]],
        "lhs_dilation": strides,
        "rhs_dilation": rhs_dilation,
    }


def _turned_padding(axis: Axis) -> tuple[int, int]:
    """Return the padding that lets every input position see the outputs it reached.

    Tap `k` of output `p` read padded position `p * stride + k * rhs`, which is position
    `p * stride + k * rhs - low` of the dilated input. Turned around, input position `q`
    reads outputs at `q + low - k * rhs`, the first of them `low - (taps - 1) * rhs`.
    """
    reach = dilated(axis.taps, axis.rhs_dilation) - 1
    low = reach - axis.low
    whole = dilated(axis.size, axis.lhs_dilation) + reach
    return low, whole - dilated(axis.out, axis.stride) - low


def conv_filter_grad(
    x: jax.Array,
    ct: jax.Array,
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    out_dtype: Any = None,
    precision: Any = None,
    config: ConvConfig,
    interpret: Any = False,
) -> jax.Array:
    """Pull a cotangent back to the filter of `conv`.

    Each tap gathers, over batch and space, the products of what it read with the
    cotangents of what it wrote. The sums of all taps are kept together, so that an
    input window and a cotangent block are read once for all of them.

    **Arguments:**

    - `x`: `[N, *S, C]`.
    - `ct`: `[N, *out, O]`.
    - `sizes`: Spatial sizes of the filter.
    - The others as of `conv`; the tile's `depth`, `height` and `width` are the
      positions that one step contracts.

    **Returns:**

    `[*sizes, C / groups, O]`.

        >>> x, ct = jnp.ones((1, 8, 2)), jnp.ones((1, 6, 4))
        >>> conv_filter_grad(
        ...     *(x, ct), sizes=(3,), strides=(1,), padding=((0, 0),),
        ...     config=ConvConfig(), interpret=True,
        ... ).shape
        (3, 2, 4)
    """
    w = jax.ShapeDtypeStruct((*sizes, x.shape[-1] // groups, ct.shape[-1]), ct.dtype)
    plan = plan_conv(
        *(x, w),
        strides=strides,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        groups=groups,
        precision=precision,
        config=config,
    )
    out_dtype = conv_out_dtype(out_dtype, plan.dtype)
    if plan.empty:
        return jnp.zeros(w.shape, out_dtype)
    taps = (plan.outer_taps, None, plan.axes[2].taps)
    channels = () if plan.depthwise else (plan.tile_channels,)
    block = (*taps, *channels, plan.tile_features)
    sums = [size for size in block if size is not None]
    whole = () if plan.depthwise else (plan.channels,)
    out = pl.pallas_call(
        functools.partial(_filter_kernel, plan=plan),
        grid=(
            *(plan.groups, plan.channel_tiles, plan.feature_tiles),
            *(plan.batch, *plan.space, plan.outer_taps),
        ),
        in_specs=[plan.x_spec(_place), plan.out_spec(_place)],
        out_specs=pl.BlockSpec(
            block,
            lambda g, c, o, *step: (0, g, 0, *(() if plan.depthwise else (c,)), o),
        ),
        out_shape=jax.ShapeDtypeStruct(
            (taps[0], plan.groups, taps[2], *whole, plan.features), out_dtype
        ),
        scratch_shapes=[pltpu.VMEM(tuple(sums), plan.sum_dtype)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",) * 3 + ("arbitrary",) * 5
        ),
        interpret=interpret,
        name="conv_filter_grad",
    )(plan.prepare_x(x), plan.prepare_ct(ct))
    return plan.restore_w(out, len(sizes))


def _place(g, c, o, n, d, h, w, tap):
    return g, n, d, h, w, o, c


def _filter_kernel(x_ref, ct_ref, out_ref, sum_ref, *, plan: ConvPlan):
    steps = [pl.program_id(axis) for axis in range(3, 8)]
    ends = (plan.batch, *plan.space, plan.outer_taps)
    outer_tap = steps[-1]
    left = [
        axis.out - step * axis.tile
        for axis, step in zip(plan.axes, steps[1:4], strict=True)
    ]

    @pl.when(functools.reduce(jnp.logical_and, [step == 0 for step in steps]))
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    ct = _within(ct_ref[...], left, plan)
    for inner_tap in range(plan.axes[2].taps):
        window = _within(plan.window(x_ref, outer_tap, inner_tap), left, plan)
        add = _add_sum if plan.depthwise else _add_product
        add(sum_ref, outer_tap, inner_tap, window, ct, plan)

    lasts = [step == end - 1 for step, end in zip(steps, ends, strict=True)]

    @pl.when(functools.reduce(jnp.logical_and, lasts))
    def _():
        out_ref[...] = sum_ref[...].astype(out_ref.dtype)


def _within(block, left, plan: ConvPlan):
    """Zero the positions past the last output.

    There the cotangent is garbage, and the input may be a real infinity that no output
    reads: a zero on one side alone would make NaN of it.
    """
    for position, axis in enumerate(plan.axes):
        if axis.out % axis.tile:
            block = keep_first(block, position, left[position])
    return block


def _add_sum(sum_ref, outer_tap, inner_tap, window, ct, plan: ConvPlan):
    product = window.astype(plan.sum_dtype) * ct.astype(plan.sum_dtype)
    row = jnp.sum(product.reshape(-1, product.shape[-1]), axis=0, keepdims=True)
    sum_ref[outer_tap, pl.ds(inner_tap, 1), :] += row


def _add_product(sum_ref, outer_tap, inner_tap, window, ct, plan: ConvPlan):
    window, ct = (x.astype(plan.dtype).reshape(-1, x.shape[-1]) for x in (window, ct))
    sum_ref[outer_tap, inner_tap] += jax.lax.dot_general(
        *(window, ct, (((0,), (0,)), ((), ()))),
        precision=plan.precision,
        preferred_element_type=plan.sum_dtype,
    )
