"""Strides of the same elements in another shape."""

from collections.abc import Sequence

import numpy as np

from tilejax.lowering.cpu.access import View


def reshaped_strides(view: View, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides that the same elements have in another shape, if any do."""
    if 0 in view.shape or any(s < 0 for s in view.strides):
        return None
    base = np.empty(1, np.int8)
    seen = np.lib.stride_tricks.as_strided(base, view.shape, view.strides)
    try:
        # setting the shape never copies; it fails where strides cannot say it
        seen.shape = tuple(shape)
    except AttributeError:
        return None
    return tuple(seen.strides)
