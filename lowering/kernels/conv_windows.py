"""Geometry of a convolution: sizes, phases of a stride, windows of a tile.

A tap `k` of output position `p` reads the padded, dilated input at `p * stride + k *
rhs_dilation`. Cut that axis into `stride` phases, position `s * q + r` going to place
`q` of phase `r`, and the tap reads place `p + k * rhs_dilation // stride` of phase `k *
rhs_dilation % stride`: whatever the stride, a tile of outputs reads a run of
neighbours, which a TPU can load.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError, ShapeError
from tilejax.lowering.kernels.tiles import ceil_div, fit, round_up


def dilated(size: int, dilation: int) -> int:
    """Return the length of an axis after holes are put between its entries.

    **Arguments:**

    - `size`: Zero or more.
    - `dilation`: Distance between neighbours, one or more.

    **Returns:**

    Zero for zero.

        >>> dilated(3, 2)
        5
    """
    return (size - 1) * dilation + 1 if size else 0


@dataclasses.dataclass(frozen=True)
class Axis:
    """Describe one spatial axis of a convolution, and how its outputs are tiled."""

    size: int
    taps: int
    stride: int
    low: int
    high: int
    lhs_dilation: int
    rhs_dilation: int
    tile: int = 1
    align: int = 1

    @property
    def out(self) -> int:
        """Return the number of output positions."""
        room = dilated(self.size, self.lhs_dilation) + self.low + self.high
        room -= dilated(self.taps, self.rhs_dilation)
        return 0 if room < 0 else room // self.stride + 1

    @property
    def tiles(self) -> int:
        """Return the number of tiles of outputs."""
        return ceil_div(self.out, self.tile)

    @property
    def phases(self) -> int:
        """Return how many phases are kept: one, if the taps need no other."""
        steps = {tap * self.rhs_dilation % self.stride for tap in range(self.taps)}
        return 1 if steps <= {0} else self.stride

    @property
    def reach(self) -> int:
        """Return how far the last tap lies after the first, within a phase."""
        return (self.taps - 1) * self.rhs_dilation // self.stride

    @property
    def window(self) -> int:
        """Return the places of a phase that a block holds for a tile of outputs.

        One that does not span its axis is filled up to whole hardware tiles.
        """
        align = 1 if self.tiles == 1 else self.align
        return round_up(self.tile + self.reach, align)

    @property
    def places(self) -> int:
        """Return the places of a phase that all windows cover."""
        return (self.tiles - 1) * self.tile + self.window

    def start(self, tile):
        """Return the first place of the window of a tile, which may be traced.

        It is a plain zero where there is one tile: Mosaic wants to see that a window
        starts at a whole hardware tile, and does not know that the index is zero.
        """
        return 0 if self.tiles == 1 else tile * self.tile

    def tap(self, index):
        """Return (phase, first place) that a tap reads; `index` may be traced."""
        at = index * self.rhs_dilation
        if isinstance(at, int):
            phase, place = at % self.stride, at // self.stride
        else:
            phase = jax.lax.rem(at, jnp.int32(self.stride))
            place = jax.lax.div(at, jnp.int32(self.stride))
        return (0 if self.phases == 1 else phase), place


def make_axes(
    in_sizes: Sequence[int],
    tap_sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    tiles: Sequence[int] = (1, 1, 1),
    align: int = 1,
) -> tuple[Axis, Axis, Axis]:
    """Describe a convolution of 1, 2 or 3 spatial axes as one of 3.

    **Arguments:**

    - `in_sizes`, `tap_sizes`: Spatial sizes of the input and of the filter.
    - `strides`, `lhs_dilation`, `rhs_dilation`: One or more, for each axis.
    - `padding`: (low, high) for each axis; negative values crop.
    - `tiles`: Outputs a tile, along depth, height and width.
    - `align`: What a block of the width must be a multiple of.

    **Returns:**

    Depth, height and width; what is missing has size one.

    **Raises:**

    `tilejax.errors.ShapeError` or `ParameterError`.

        >>> make_axes((8,), (3,), (2,), ((0, 0),), (1,), (1,))[2].out
        3
    """
    count = len(in_sizes)
    if count not in (1, 2, 3) or len(tap_sizes) != count:
        raise ShapeError(
            f"conv takes 1 to 3 spatial axes, the same for both operands, got input "
            f"{list(in_sizes)} and filter {list(tap_sizes)}"
        )
    by_name = {
        "strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
    }
    for name, values in by_name.items():
        if len(values) != count:
            raise ParameterError(
                f"conv takes {name} of {count} entries for input {list(in_sizes)}, "
                f"got {values}"
            )
        if name != "padding" and min(values) < 1:
            raise ParameterError(f"conv takes {name} of one or more, got {values}")
    axes = [Axis(1, 1, 1, 0, 0, 1, 1)] * (3 - count)
    for row in zip(
        in_sizes, tap_sizes, strides, padding, lhs_dilation, rhs_dilation, strict=True
    ):
        size, taps, stride, (low, high), lhs, rhs = row
        axes.append(Axis(size, taps, stride, low, high, lhs, rhs))
    depth, height, width = (
        dataclasses.replace(axis, tile=max(1, fit(tile, axis.out)), align=unit)
        for axis, tile, unit in zip(axes, tiles, (1, 1, align), strict=True)
    )
    return depth, height, width


def split_phases(x: jax.Array, axes: Sequence[Axis], groups: int, channels: int):
    """Pad, dilate and cut an input into phases and groups, ready for windows.

    What no tap reads is cut off, and what the last tiles read past the end is zero, so
    that no window leaves the array.

    **Arguments:**

    - `x`: `[N, D, H, W, C]`.
    - `axes`: Depth, height and width.
    - `groups`: How many groups the channels fall into.
    - `channels`: To how many channels each group is filled up, with zeros.

    **Returns:**

    `[phases, groups, N, places of D, of H, of W, channels]`.
    """
    n, c = x.shape[0], x.shape[-1]
    edges = [(0, 0, 0)]
    for axis in axes:
        whole = axis.places * axis.stride
        high = whole - dilated(axis.size, axis.lhs_dilation) - axis.low
        edges.append((axis.low, high, axis.lhs_dilation - 1))
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), [*edges, (0, 0, 0)])
    cut = [size for axis in axes for size in (axis.places, axis.stride)]
    x = x.reshape(n, *cut, groups, c // groups)
    for place, axis in enumerate(axes):
        if axis.phases == 1:
            x = jax.lax.slice_in_dim(x, 0, 1, axis=2 + 2 * place)
    x = x.transpose(2, 4, 6, 7, 0, 1, 3, 5, 8)
    x = x.reshape(-1, groups, *x.shape[4:])
    return jnp.pad(x, ((0, 0),) * 6 + ((0, channels - c // groups),))
