"""Which elements of a padded array are real."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tilejax._jax.symbolic import is_symbolic, size_at
from tilejax.errors import BucketError

# Of an axis: None if all elements are real. Else the factors of its size, outermost
# first: an element is real if its index along each factor is below the real size.
# One factor alone is a prefix. UNIFORM: all elements are equal, so any choice will do.
Layout: TypeAlias = tuple | str | None
UNIFORM = "uniform"


@dataclass
class Padded:
    """An array, and the layout of each of its axes."""

    x: Any
    layouts: tuple[Layout, ...]
    masked: dict = field(default_factory=dict, compare=False, repr=False)

    @property
    def axes(self) -> list[int]:
        """The axes with elements that are not real."""
        return [at for at, layout in enumerate(self.layouts) if layout is not None]


@dataclass
class Frame:
    """What a program is run with.

    **Arguments:**

    - `buckets`: the padded size of each name.
    - `sizes`: the real ones, traced.
    - `gated`: whether the program is to be differentiated. Gradients of what has no
      padded axis are then summed over real elements only: see `gate`.
    """

    buckets: Mapping[str, int]
    sizes: Mapping[str, Any]
    gated: bool = False

    def padded(self, size: Any) -> int:
        """Return the padded size of an axis."""
        return int(size_at(size, self.buckets))

    def real(self, size: Any) -> Any:
        """Return the real size, a traced number if it depends on a name."""
        return size_at(size, self.sizes)

    def static(self, value: Any) -> Any:
        """Replace symbolic sizes in a parameter by the padded ones."""
        if is_symbolic(value):
            return self.padded(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.static, value))
        if type(value) in (tuple, list):
            return type(value)(map(self.static, value))
        return value


def layouts_of(shape: Iterable) -> tuple[Layout, ...]:
    """Return the layouts of an array whose real elements come first."""
    return tuple((size,) if is_symbolic(size) else None for size in shape)


def prefix(layout: Layout, size: Any) -> bool:
    """Say whether the real elements come first."""
    return layout is None or layout == UNIFORM or layout == (size,)


def joined(layouts: Iterable[Layout], what: str) -> Layout:
    """Return the one layout of operands' axes that belong together."""
    found: list = []
    for layout in layouts:
        if layout is not None and layout != UNIFORM and layout not in found:
            found.append(layout)
    if len(found) > 1:
        shown = " and ".join(map(shown_layout, found))
        raise BucketError(
            f"{what}: one operand has its elements padded as {shown}; they do not lie "
            "beside each other. Reshape both alike"
        )
    if found:
        return found[0]
    return UNIFORM if UNIFORM in list(layouts) else None


def shown_layout(layout: Layout) -> str:
    """Spell a layout."""
    return " x ".join(map(str, layout)) if isinstance(layout, tuple) else str(layout)


def real_along(frame: Frame, layout: Layout, size: Any) -> Any:
    """Return which elements of an axis are real: booleans, of its padded size."""
    factors = layout if isinstance(layout, tuple) else (size,)
    sizes = [frame.padded(factor) for factor in factors]
    index = jax.lax.iota(np.int32, math.prod(sizes))
    mask = None
    inner = 1
    for factor, padded in zip(reversed(factors), reversed(sizes), strict=True):
        if is_symbolic(factor):
            along = index if len(factors) == 1 else (index // inner) % padded
            one = along < frame.real(factor)
            mask = one if mask is None else mask & one
        inner *= padded
    assert mask is not None
    return mask


def mask(
    frame: Frame, value: Padded, shape: Sequence, fill: Any, axes: Sequence[int]
) -> Any:
    """Replace what is not real along some axes.

    **Arguments:**

    - `shape`: the symbolic shape.
    - `fill`: a number.

    **Returns:** the array.
    """
    axes = [at for at in axes if value.layouts[at] is not None]
    key = (tuple(axes), repr(fill))
    if not axes:
        return value.x
    if key not in value.masked:
        x, reals = value.x, []
        for at in axes:
            real = real_along(frame, value.layouts[at], shape[at])
            reals.append(jax.lax.broadcast_in_dim(real, x.shape, (at,)))
        is_real = functools.reduce(jax.lax.bitwise_and, reals)
        value.masked[key] = jax.lax.select(is_real, x, jnp.full_like(x, fill))
    return value.masked[key]


def gate(frame: Frame, value: Padded, shape: Sequence) -> Padded:
    """Zero what is not real, and so, in reverse, the gradients that come from there.

    Where an array without a padded axis meets one with it, its gradient is a sum over
    that axis. Elements that are not real must add exactly nothing, whatever became of
    them: not even 0 times infinity.
    """
    if not jnp.issubdtype(value.x.dtype, jnp.inexact):
        return value
    return Padded(mask(frame, value, shape, 0, value.axes), value.layouts)
