"""Convolution of a dilated axis without multiplying by the holes.

With a stride of one, output `p` of an axis dilated by `d` sees, through tap `k`, the
place `p - low + k * rhs_dilation` of the dilated input: a hole unless `d` divides it.
So the outputs fall into `d` residues `p = r + d * q`, and those of a residue see no
hole through the taps `first, first + step, ...` only. Each residue is a plain
convolution of the undilated input with those taps.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from tilejax.lowering.kernels.conv_windows import Axis
from tilejax.lowering.kernels.tiles import ceil_div


@dataclasses.dataclass(frozen=True)
class Residue:
    """Describe the plain convolution that gives every `d`-th output.

    **Arguments:**

    - `first`, `step`: The taps are `first, first + step, ...` of the filter.
    - `low`, `high`: Padding of the undilated input.
    - `rhs_dilation`: Of the taps.
    - `out`: Number of outputs; where it is zero the rest means nothing.
    """

    first: int
    step: int
    low: int
    high: int
    rhs_dilation: int
    out: int


def split_residues(axis: Axis) -> list[Residue]:
    """Split a dilated axis of stride one into plain ones.

    **Arguments:**

    - `axis`: With a stride of one.

    **Returns:**

    One `Residue` for each hole and entry of the dilation, in the order of the outputs;
    of those that see nothing but holes `first` is the number of taps.

        >>> from tilejax.lowering.kernels.conv_windows import Axis
        >>> axis = Axis(4, 3, 1, 1, 1, lhs_dilation=2, rhs_dilation=1)
        >>> [(r.first, r.step, r.out) for r in split_residues(axis)]
        [(1, 2, 4), (0, 2, 3)]
    """
    period, taps = axis.lhs_dilation, axis.taps
    step = period // math.gcd(period, axis.rhs_dilation)
    rhs = step * axis.rhs_dilation // period
    found = []
    for residue in range(period):
        at = [residue - axis.low + tap * axis.rhs_dilation for tap in range(taps)]
        first = next((tap for tap in range(taps) if at[tap] % period == 0), taps)
        out = max(0, ceil_div(axis.out - residue, period))
        low = -(at[first] // period) if first < taps else 0
        reach = (ceil_div(taps - first, step) - 1) * rhs
        high = out - axis.size - low + reach
        found.append(Residue(first, step, low, high, rhs, out))
    return found


def weave(parts: list[jax.Array], place: int, size: int) -> jax.Array:
    """Put the outputs of the residues of an axis in turn.

    **Arguments:**

    - `parts`: One array for each residue; the first is the longest.
    - `place`: The axis.
    - `size`: Of the result along it.

    **Returns:**

    The outputs of the first residue, the second, ... of the first again.

        >>> weave([jnp.array([0, 2]), jnp.array([1])], 0, 3).tolist()
        [0, 1, 2]
    """
    longest = parts[0].shape[place]
    level = []
    for part in parts:
        edges = [(0, 0)] * part.ndim
        edges[place] = (0, longest - part.shape[place])
        level.append(jnp.pad(part, edges))
    woven = jnp.stack(level, axis=place + 1)
    shape = (*woven.shape[:place], longest * len(parts), *woven.shape[place + 2 :])
    return jax.lax.slice_in_dim(woven.reshape(shape), 0, size, axis=place)
