"""Tiles of a convolution that are legal on a target, and what each moves."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.lowering.kernels.conv_backward import turned_params
from tilejax.lowering.kernels.conv_plan import (
    ConvConfig,
    ConvPlan,
    conv_out_dtype,
    plan_conv,
)
from tilejax.lowering.kernels.room import alignment, room, takes
from tilejax.lowering.kernels.tiles import block_bytes, candidates
from tilejax.targets import Cost, Target, Tiling, product_work, tiled_efficiency

_DEPTH = (1, 2, 4)
_HEIGHT = (1, 2, 4, 8, 16, 32)
_WIDTH = (16, 32, 64, 128, 256)
_CHANNELS = (16, 32, 64, 128, 256, 512)
# A step's positions are the rows of a product; past this many, registers spill.
_MOST_POSITIONS = 4096


def conv_configs(
    target: Target,
    x: Any,
    w: Any,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    out_dtype: Any = None,
    precision: Any = None,
) -> list[Tiling]:
    """Propose tiles for `conv`.

    **Arguments:**

    - `target`: The machine.
    - `x`, `w`: The operands, or just their shapes and dtypes.
    - The others as of `conv`.

    **Returns:**

    A `Tiling` for each config that fits the target's memory and alignment; none where
    the target cannot compile the dtypes.

        >>> import tilejax.targets
        >>> x = jax.ShapeDtypeStruct((8, 56, 56, 64), "bfloat16")
        >>> w = jax.ShapeDtypeStruct((3, 3, 64, 128), "bfloat16")
        >>> v5e, same = tilejax.targets.get("tpu:v5e"), ((1, 1), (1, 1))
        >>> len(conv_configs(v5e, x, w, strides=(1, 1), padding=same)) > 0
        True
    """

    def plan(config):
        return plan_conv(
            *(x, w),
            strides=strides,
            padding=padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            groups=groups,
            precision=precision,
            config=config,
        )

    out = conv_out_dtype(out_dtype, jnp.promote_types(x.dtype, w.dtype))
    dtypes = (x.dtype, w.dtype, out)
    return _propose(target, plan, dtypes, _conv_bytes, _conv_tiling)


def conv_input_grad_configs(
    target: Target,
    ct: Any,
    w: Any,
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    out_dtype: Any = None,
    precision: Any = None,
) -> list[Tiling]:
    """Propose tiles for `conv_input_grad`.

    **Arguments:**

    - `target`: The machine.
    - The others as of `conv_input_grad`.

    **Returns:**

    As `conv_configs`.

        >>> import tilejax.targets
        >>> ct = jax.ShapeDtypeStruct((8, 30, 64), "float32")
        >>> w = jax.ShapeDtypeStruct((3, 16, 64), "float32")
        >>> geometry = {"sizes": (32,), "strides": (1,), "padding": ((0, 0),)}
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> len(conv_input_grad_configs(v5e, ct, w, **geometry)) > 0
        True
    """
    *taps, channels, features = w.shape
    turned = jax.ShapeDtypeStruct(
        (*taps, features // groups, channels * groups), w.dtype
    )
    params = turned_params(sizes, taps, strides, padding, lhs_dilation, rhs_dilation)
    return conv_configs(
        *(target, ct, turned),
        **params,
        groups=groups,
        out_dtype=out_dtype,
        precision=precision,
    )


def conv_filter_grad_configs(
    target: Target,
    x: Any,
    ct: Any,
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    groups: int = 1,
    out_dtype: Any = None,
    precision: Any = None,
) -> list[Tiling]:
    """Propose tiles for `conv_filter_grad`.

    **Arguments:**

    - `target`: The machine.
    - The others as of `conv_filter_grad`.

    **Returns:**

    As `conv_configs`.

        >>> import tilejax.targets
        >>> x = jax.ShapeDtypeStruct((8, 32, 16), "float32")
        >>> ct = jax.ShapeDtypeStruct((8, 30, 64), "float32")
        >>> geometry = {"sizes": (3,), "strides": (1,), "padding": ((0, 0),)}
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> len(conv_filter_grad_configs(v5e, x, ct, **geometry)) > 0
        True
    """
    features = ct.shape[-1]
    w = jax.ShapeDtypeStruct((*sizes, x.shape[-1] // groups, features), ct.dtype)

    def plan(config):
        return plan_conv(
            *(x, w),
            strides=strides,
            padding=padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            groups=groups,
            precision=precision,
            config=config,
        )

    out = conv_out_dtype(out_dtype, jnp.promote_types(x.dtype, ct.dtype))
    dtypes = (x.dtype, ct.dtype, out)
    return _propose(target, plan, dtypes, _filter_bytes, _filter_tiling)


def _propose(
    target: Target, plan_for: Callable, dtypes, occupied: Callable, tiling: Callable
) -> list[Tiling]:
    if not takes(target, dtypes):
        return []
    aligns = [alignment(target, dtype) for dtype in dtypes]
    rows, columns = (max(sizes) for sizes in zip(*aligns, strict=True))
    whole = plan_for(ConvConfig())
    depth, height, width = whole.axes
    choices = (
        candidates(depth.out, _DEPTH, 1),
        candidates(height.out, _HEIGHT, 1),
        _aligned(width.out, _WIDTH, rows),
        [1] if whole.depthwise else _aligned(whole.channels, _CHANNELS, columns),
        _aligned(whole.features, _CHANNELS, columns),
    )
    found = []
    for tile in itertools.product(*choices):
        if math.prod(tile[:3]) > _MOST_POSITIONS:
            continue
        config = ConvConfig(*tile)
        plan = plan_for(config)
        if occupied(plan, dtypes) <= room(target):
            found.append(tiling(config, plan, dtypes, target))
    return found


def _aligned(size, tiles, align):
    return candidates(size, [tile for tile in tiles if tile % align == 0], align)


def _steps(plan: ConvPlan) -> int:
    tiles = plan.feature_tiles * plan.channel_tiles
    images = plan.groups * plan.batch * math.prod(plan.space)
    return images * tiles * plan.outer_taps


def _window(plan: ConvPlan, dtype) -> int:
    sizes = (axis.window for axis in plan.axes)
    return block_bytes((plan.phases, *sizes, plan.x_tile), dtype)


def _taps(plan: ConvPlan, outer: int, dtype) -> int:
    inner = plan.axes[2].taps
    channels = () if plan.depthwise else (plan.tile_channels,)
    return block_bytes((outer, inner, *channels, plan.tile_features), dtype)


def _outputs(plan: ConvPlan, dtype) -> int:
    return block_bytes((*plan.tiles, plan.tile_features), dtype)


def _shifted(plan: ConvPlan, dtype) -> int:
    """Return the bytes of a window that was moved to where the product wants it."""
    return block_bytes((*plan.tiles, plan.x_tile), dtype)


def _conv_bytes(plan: ConvPlan, dtypes) -> int:
    """Count two buffers of each block that moves, the sum, and one tap's product."""
    x, w, out = dtypes
    moved = _window(plan, x) + _taps(plan, 1, w) + _outputs(plan, out)
    sums = 3 * _outputs(plan, plan.sum_dtype)
    return 2 * moved + sums + 2 * _shifted(plan, plan.dtype)


def _filter_bytes(plan: ConvPlan, dtypes) -> int:
    x, ct, out = dtypes
    taps = plan.outer_taps
    moved = _window(plan, x) + _outputs(plan, ct) + _taps(plan, taps, out)
    # A product that contracts the rows has both sides turned before it starts.
    turned = 2 * _shifted(plan, plan.dtype) + 2 * _outputs(plan, plan.dtype)
    return 2 * moved + 2 * _taps(plan, taps, plan.sum_dtype) + turned


def _conv_tiling(config, plan: ConvPlan, dtypes, target: Target) -> Tiling:
    """Count bytes moved; cut channels have windows read for each tile of features."""
    x, w, out = dtypes
    tiles = plan.groups * plan.batch * math.prod(plan.space)
    again = plan.feature_tiles if plan.channel_tiles > 1 or plan.depthwise else 1
    windows = tiles * again * plan.channel_tiles * _window(plan, x)
    filters = _taps(plan, 1, w) * plan.outer_taps * plan.channel_tiles
    features = tiles * plan.feature_tiles
    moved = (windows + features * filters, features * _outputs(plan, out))
    positions = math.prod(axis.out for axis in plan.axes)
    sizes = (positions, plan.features, plan.channels)
    tile = (math.prod(plan.tiles), plan.tile_features, plan.tile_channels)
    return _tiling(config, plan, moved, features, (sizes, tile), target)


def _filter_tiling(config, plan: ConvPlan, dtypes, target: Target) -> Tiling:
    x, ct, out = dtypes
    tiles = plan.batch * math.prod(plan.space)
    blocks = plan.groups * plan.channel_tiles * plan.feature_tiles
    each = tiles * (_window(plan, x) + _outputs(plan, ct))
    moved = (blocks * each, blocks * _taps(plan, plan.outer_taps, out))
    positions = math.prod(axis.out for axis in plan.axes)
    sizes = (plan.channels, plan.features, positions)
    tile = (plan.tile_channels, plan.tile_features, math.prod(plan.tiles))
    return _tiling(config, plan, moved, blocks, (sizes, tile), target, "filter_grad")


def _tiling(
    config, plan: ConvPlan, moved, blocks: int, product, target, code: str = "conv"
) -> Tiling:
    """Count a multiply-add for each tap: of channels on the vector unit if single."""
    positions = math.prod(axis.out for axis in plan.axes)
    taps = plan.outer_taps * plan.axes[2].taps
    count = 2.0 * plan.batch * plan.groups * positions * taps * plan.features
    if plan.depthwise:
        cost = Cost({}, *moved, elementwise={str(plan.sum_dtype): count})
        return Tiling(config, cost, _steps(plan), blocks, code="depthwise")
    work = product_work(count * plan.channels, plan.dtype, target, plan.precision)
    sizes, tile = product
    share = tiled_efficiency(sizes, tile, target, plan.dtype)
    cost = Cost(work, *moved)
    return Tiling(config, cost, _steps(plan), blocks, efficiency=share, code=code)
