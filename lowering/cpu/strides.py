"""Strides of the same elements in another shape."""

import itertools
import math
from collections.abc import Sequence

from tilejax.lowering.cpu.access import View


def reshaped_strides(view: View, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides that the same elements have in another shape, if any do.

    Dimensions are taken in groups of equal size on both sides, as short as possible.
    Within a group the old ones must follow one another in memory.
    """
    if 0 in view.shape or any(s < 0 for s in view.strides):
        return None
    pairs = zip(view.shape, view.strides, strict=True)
    old = [(size, stride) for size, stride in pairs if size != 1]
    strides, at = [1] * len(shape), 0
    while old:
        group, end = [old.pop(0)], at + 1
        while (have := math.prod(n for n, _ in group)) != (
            want := math.prod(shape[at:end])
        ):
            if have < want:
                group.append(old.pop(0))
            else:
                end += 1
        for (_, outer), (size, inner) in itertools.pairwise(group):
            if outer != size * inner:
                return None
        step = group[-1][1]
        for d in reversed(range(at, end)):
            strides[d] = step
            step *= shape[d]
        at = end
    return tuple(strides)
