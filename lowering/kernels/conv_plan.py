"""How a convolution is cut: checked operands, layouts inside the kernels, blocks."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.errors import DTypeError, ShapeError
from tilejax.lowering.kernels.conv_windows import Axis, make_axes, split_phases
from tilejax.lowering.kernels.matmul_operands import dot_precision
from tilejax.lowering.kernels.tiles import (
    accumulator,
    ceil_div,
    fit,
    float_like,
    round_up,
    sublanes,
)


@dataclasses.dataclass(frozen=True)
class ConvConfig:
    """Choose the tile of a convolution.

    **Arguments:**

    - `depth`, `height`, `width`: Output positions that one step computes.
    - `channels`: Input channels that one step contracts; in a depthwise convolution it
      plays no part.
    - `features`: Output channels that one step computes.
    """

    depth: int = 1
    height: int = 8
    width: int = 128
    channels: int = 128
    features: int = 128


@dataclasses.dataclass(frozen=True)
class ConvPlan:
    """Hold everything about a convolution that is known before it runs.

    The kernels see the input as `[phase, group, N, D, H, W, C]` and the output as
    `[group, N, D, H, W, O]`, with the channels of one group. In a depthwise convolution
    the channels are the groups, and what the kernels call a group is one of the filters
    that each channel has.
    """

    axes: tuple[Axis, Axis, Axis]
    batch: int
    groups: int
    channels: int
    features: int
    depthwise: bool
    tile_channels: int
    tile_features: int
    dtype: Any
    sum_dtype: Any
    precision: Any

    @property
    def outer_taps(self) -> int:
        """Return the number of taps along depth and height, which grid steps walk."""
        return self.axes[0].taps * self.axes[1].taps

    @property
    def phases(self) -> int:
        """Return the number of phases of all axes together."""
        return math.prod(axis.phases for axis in self.axes)

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Return the tile of output positions."""
        return tuple(axis.tile for axis in self.axes)  # type: ignore[return-value]

    @property
    def space(self) -> tuple[int, ...]:
        """Return the number of tiles along depth, height and width."""
        return tuple(axis.tiles for axis in self.axes)

    @property
    def channel_tiles(self) -> int:
        """Return the number of steps that the contraction over channels takes."""
        return 1 if self.depthwise else ceil_div(self.channels, self.tile_channels)

    @property
    def feature_tiles(self) -> int:
        """Return the number of tiles of output channels."""
        return ceil_div(self.features, self.tile_features)

    @property
    def x_tile(self) -> int:
        """Return the channels in a block of the input."""
        return self.tile_features if self.depthwise else self.tile_channels

    @property
    def empty(self) -> bool:
        """Say whether there is nothing to sum or nothing to store."""
        taps = self.outer_taps * self.axes[2].taps
        out = math.prod(axis.out for axis in self.axes)
        sizes = (self.batch, self.groups, self.channels, self.features, taps, out)
        return 0 in sizes

    def prepare_x(self, x: jax.Array) -> jax.Array:
        """Bring an input into the kernels' layout."""
        x = x.reshape(x.shape[0], *(axis.size for axis in self.axes), x.shape[-1])
        groups = 1 if self.depthwise else self.groups
        channels = self.features if self.depthwise else self.channels
        return split_phases(x, self.axes, groups, round_up(channels, self.x_tile))

    def prepare_ct(self, ct: jax.Array) -> jax.Array:
        """Bring an output's cotangent into the kernels' layout."""
        out = [axis.out for axis in self.axes]
        if self.depthwise:
            shape, order = (self.features, self.groups), (5, 0, 1, 2, 3, 4)
        else:
            shape, order = (self.groups, self.features), (4, 0, 1, 2, 3, 5)
        return ct.reshape(self.batch, *out, *shape).transpose(order)

    def restore_out(self, out: jax.Array, spatial: int) -> jax.Array:
        """Bring a kernel's output into the user's layout."""
        order = (1, 2, 3, 4, 5, 0) if self.depthwise else (1, 2, 3, 4, 0, 5)
        sizes = [axis.out for axis in self.axes][3 - spatial :]
        return out.transpose(order).reshape(self.batch, *sizes, -1)

    def prepare_w(self, w: jax.Array) -> jax.Array:
        """Bring a filter into `[outer taps, group, taps of W, C, O]`."""
        taps = (self.outer_taps, self.axes[2].taps)
        if self.depthwise:
            w = w.reshape(*taps, self.features, self.groups)
            return w.transpose(0, 3, 1, 2)
        w = w.reshape(*taps, self.channels, self.groups, self.features)
        return w.transpose(0, 3, 1, 2, 4)

    def restore_w(self, w: jax.Array, spatial: int) -> jax.Array:
        """Bring a gradient of the filter back into the user's layout."""
        sizes = [axis.taps for axis in self.axes][3 - spatial :]
        if self.depthwise:
            return w.transpose(0, 2, 3, 1).reshape(*sizes, 1, -1)
        return w.transpose(0, 2, 3, 1, 4).reshape(*sizes, self.channels, -1)

    def x_spec(self, place) -> pl.BlockSpec:
        """Return the windows of the input; `place` names (g, n, d, h, w, o, c)."""
        sizes = (self.phases, None, None, *(axis.window for axis in self.axes))

        def index(*step):
            group, batch, *at, features, channels = place(*step)
            starts = (axis.start(i) for i, axis in zip(at, self.axes, strict=True))
            tile = features if self.depthwise else channels
            tiles = self.feature_tiles if self.depthwise else self.channel_tiles
            lane = 0 if tiles == 1 else tile * self.x_tile
            return (0, 0 if self.depthwise else group, batch, *starts, lane)

        # Windows of neighbouring tiles overlap, so their starts are given in elements,
        # and then they are for every axis.
        shape = [None if s is None else pl.Element(s) for s in (*sizes, self.x_tile)]
        return pl.BlockSpec(tuple(shape), index)

    def out_spec(self, place) -> pl.BlockSpec:
        """Return the blocks of the output, or of its cotangent."""
        return pl.BlockSpec(
            (None, None, *self.tiles, self.tile_features), lambda *s: place(*s)[:6]
        )

    def window(self, x_ref, outer_tap, inner_tap: int) -> jax.Array:
        """Read what a tap needs for all outputs of the tile: `[d, h, w, c]`."""
        height = self.axes[1]
        if self.outer_taps == 1:
            down, across = 0, 0
        else:
            down = jax.lax.div(outer_tap, jnp.int32(height.taps))
            across = jax.lax.rem(outer_tap, jnp.int32(height.taps))
        taps = (down, across, inner_tap)
        pairs = [axis.tap(tap) for axis, tap in zip(self.axes, taps, strict=True)]
        phase = 0
        for axis, (part, _) in zip(self.axes, pairs, strict=True):
            phase = phase * axis.phases + part
        starts = (start for _, start in pairs)
        slices = (pl.ds(s, t) for s, t in zip(starts, self.tiles, strict=True))
        return x_ref[(phase, *slices, slice(None))]


def plan_conv(
    x: Any,
    w: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    groups: int,
    precision: Any,
    config: ConvConfig,
) -> ConvPlan:
    """Check the operands of a convolution and cut it into tiles.

    **Arguments:**

    - As of `conv`, which needs of `x` and `w` only a shape and a dtype here.

    **Returns:**

    A `ConvPlan`.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError`.
    """
    names = f"x {x.dtype}{list(x.shape)} and w {w.dtype}{list(w.shape)}"
    for operand in (x, w):
        if not float_like(operand.dtype) and jnp.dtype(operand.dtype) != jnp.int8:
            raise DTypeError(
                f"conv takes f64, f32, f16, bf16 or int8, got {names}; cast first"
            )
    if len(x.shape) != len(w.shape) or len(x.shape) not in (3, 4, 5):
        raise ShapeError(f"conv takes x[N, *S, C] and w[*K, C, O], got {names}")
    channels, features = w.shape[-2:]
    if groups < 1 or x.shape[-1] != channels * groups or features % groups:
        raise ShapeError(
            f"conv in {groups} groups takes w[*K, C / groups, O] with O a multiple of "
            f"groups, got {names}"
        )
    ones = (1,) * (len(x.shape) - 2)
    axes = make_axes(
        *(x.shape[1:-1], w.shape[:-2], strides, padding),
        *(lhs_dilation or ones, rhs_dilation or ones),
        (config.depth, config.height, config.width),
        sublanes(x.dtype),
    )
    depthwise = channels == 1 and groups > 1
    dtype = jnp.dtype(jnp.promote_types(x.dtype, w.dtype))
    inner = groups if depthwise else features // groups
    return ConvPlan(
        axes=axes,
        batch=x.shape[0],
        groups=features // groups if depthwise else groups,
        channels=channels,
        features=inner,
        depthwise=depthwise,
        tile_channels=max(1, fit(config.channels, channels)),
        tile_features=max(1, fit(config.features, inner)),
        dtype=dtype,
        sum_dtype=accumulator(dtype),
        precision=dot_precision(precision, dtype),
    )


def conv_out_dtype(out_dtype: Any, dtype: Any) -> Any:
    """Return the type of a convolution's result.

    **Arguments:**

    - `out_dtype`: What the caller asked for, or None.
    - `dtype`: To which the operands promote.

    **Returns:**

    By default `dtype`, or int32 for integers.

        >>> str(conv_out_dtype(None, "int8"))
        'int32'
    """
    default = dtype if float_like(dtype) else jnp.int32
    return jnp.dtype(default if out_dtype is None else out_dtype)
