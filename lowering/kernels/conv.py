"""Convolution as products of windows and taps."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.conv_plan import (
    ConvConfig as ConvConfig,
    ConvPlan,
    conv_out_dtype,
    plan_conv,
)
from tilejax.lowering.kernels.conv_residues import split_residues, weave
from tilejax.lowering.kernels.conv_windows import Axis
from tilejax.lowering.kernels.tiles import keep_first


def conv(
    x: jax.Array,
    w: jax.Array,
    *,
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
    """Convolve a channels-last input with a filter (correlate, as deep learning does).

    `jax.lax.conv_general_dilated` with the layouts `NHWC`, `HWIO`, `NHWC`, and their
    likes for 1 and 3 spatial axes. The sum is kept in f32 (f64 for f64, int32 for
    int8).

    **Arguments:**

    - `x`: `[N, *S, C]` with 1 to 3 spatial axes. A float or int8.
    - `w`: `[*K, C / groups, O]`. A float or int8.
    - `strides`, `padding`, `lhs_dilation`, `rhs_dilation`: One entry for each spatial
      axis; padding is (low, high) and crops where it is negative.
    - `groups`: Into how many groups channels and features fall; with as many groups as
      channels the convolution is depthwise.
    - `out_dtype`: Of the result; by default that of the operands, int32 for int8.
    - `precision`: As `jax.lax.dot_general` takes it.
    - `config`: The tile.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[N, *out, O]`.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError` for operands that do
    not fit.

        >>> x, w = jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 4))
        >>> same = ((1, 1), (1, 1))
        >>> conv(
        ...     x, w, strides=(2, 2), padding=same, config=ConvConfig(), interpret=True
        ... ).shape
        (1, 4, 4, 4)
    """
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
    sizes = [axis.out for axis in plan.axes]
    if plan.empty:
        return jnp.zeros((plan.batch, *sizes[5 - x.ndim :], w.shape[-1]), out_dtype)
    axes = plan.axes[5 - x.ndim :]
    for place, axis in enumerate(axes):
        if axis.lhs_dilation > 1 and axis.stride == 1:
            again = functools.partial(
                conv,
                strides=strides,
                groups=groups,
                out_dtype=out_dtype,
                precision=precision,
                config=config,
                interpret=interpret,
            )
            return _by_residues(again, x, w, axes, place)
    out = pl.pallas_call(
        functools.partial(_kernel, plan=plan),
        grid=(
            *(plan.groups, plan.batch, *plan.space),
            *(plan.feature_tiles, plan.channel_tiles, plan.outer_taps),
        ),
        in_specs=[plan.x_spec(lambda *step: step[:7]), _w_spec(plan)],
        out_specs=plan.out_spec(lambda *step: step[:7]),
        out_shape=jax.ShapeDtypeStruct(
            (plan.groups, plan.batch, *sizes, plan.features), out_dtype
        ),
        scratch_shapes=[pltpu.VMEM((*plan.tiles, plan.tile_features), plan.sum_dtype)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",) * 6 + ("arbitrary",) * 2
        ),
        interpret=interpret,
        name="conv",
    )(plan.prepare_x(x), plan.prepare_w(w))
    return plan.restore_out(out, x.ndim - 2)


def _by_residues(again, x, w, axes: Sequence[Axis], place: int) -> jax.Array:
    """Convolve an axis that is dilated, leaving out its holes."""
    parts = []
    for residue in split_residues(axes[place]):
        taps = jax.lax.slice_in_dim(
            w, residue.first, w.shape[place], residue.step, axis=place
        )
        plain = list(axes)
        plain[place] = dataclasses.replace(
            axes[place],
            taps=taps.shape[place],
            low=residue.low,
            high=residue.high,
            lhs_dilation=1,
            rhs_dilation=residue.rhs_dilation,
        )
        if residue.out and taps.shape[place]:
            parts.append(
                again(
                    x,
                    taps,
                    padding=[(axis.low, axis.high) for axis in plain],
                    lhs_dilation=[axis.lhs_dilation for axis in plain],
                    rhs_dilation=[axis.rhs_dilation for axis in plain],
                )
            )
            continue
        sizes = [axis.out for axis in axes]
        sizes[place] = residue.out
        shape = (x.shape[0], *sizes, w.shape[-1])
        parts.append(jnp.zeros(shape, again.keywords["out_dtype"]))
    return weave(parts, place + 1, axes[place].out)


def _w_spec(plan: ConvPlan) -> pl.BlockSpec:
    taps = plan.axes[2].taps
    if plan.depthwise:
        return pl.BlockSpec(
            (None, None, taps, plan.tile_features),
            lambda g, n, d, h, w, o, c, tap: (tap, g, 0, o),
        )
    return pl.BlockSpec(
        (None, None, taps, plan.tile_channels, plan.tile_features),
        lambda g, n, d, h, w, o, c, tap: (tap, g, 0, c, o),
    )


def _kernel(x_ref, w_ref, out_ref, sum_ref, *, plan: ConvPlan):
    channel_step, outer_tap = pl.program_id(6), pl.program_id(7)

    @pl.when((channel_step == 0) & (outer_tap == 0))
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    total = sum_ref[...]
    for inner_tap in range(plan.axes[2].taps):
        window = plan.window(x_ref, outer_tap, inner_tap)
        if plan.depthwise:
            total += _scaled(window, w_ref, inner_tap, plan)
        else:
            total += _product(window, w_ref[inner_tap], channel_step, plan)
    sum_ref[...] = total

    @pl.when(
        (channel_step == plan.channel_tiles - 1) & (outer_tap == plan.outer_taps - 1)
    )
    def _():
        out_ref[...] = sum_ref[...].astype(out_ref.dtype)


def _scaled(window, w_ref, inner_tap, plan: ConvPlan):
    row = w_ref[pl.ds(inner_tap, 1), :].astype(plan.sum_dtype)
    return window.astype(plan.sum_dtype) * row.reshape(1, 1, 1, -1)


def _product(window, w, channel_step, plan: ConvPlan):
    """Multiply the window's positions, as rows, with a tap's matrix."""
    w = w.astype(plan.dtype)
    if plan.channels % plan.tile_channels:
        # The input is filled up with zeros, but the filter's block ends in garbage.
        w = keep_first(w, 0, plan.channels - channel_step * plan.tile_channels)
    rows = window.astype(plan.dtype).reshape(-1, window.shape[-1])
    product = jax.lax.dot_general(
        *(rows, w, (((1,), (0,)), ((), ()))),
        precision=plan.precision,
        preferred_element_type=plan.sum_dtype,
    )
    return product.reshape(*window.shape[:-1], w.shape[-1])
