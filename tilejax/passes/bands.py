"""Reading a mask of scores: which part of it is a band around the diagonal.

A mask is an "and" of parts. A part that compares the row's index with the column's says
`low <= column - row <= high`; causal masks and sliding windows are such bands, and a
kernel skips what lies outside without reading a mask. Any other part stays an operand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn, is_literal
from tilejax._jax.values import known_constant
from tilejax.passes.rules import Definitions

# Where a dimension of a value lies among those of the scores; None for one of size one.
Axes = tuple[int | None, ...]

# The most elements of a constant that are looked at.
_MOST = 1 << 16


@dataclass(frozen=True)
class Part:
    """A part of a mask that is no band: a value, and where its dimensions lie."""

    atom: Atom
    axes: Axes


@dataclass
class Mask:
    """A mask as bounds on `column - row` (None: none) and other parts."""

    low: int | None = None
    high: int | None = None
    parts: tuple[Part, ...] = ()

    def bound(self, low: int | None, high: int | None) -> None:
        """Narrow the band."""
        if low is not None:
            self.low = low if self.low is None else max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)


class MaskReader:
    """Reads masks of scores whose rows and columns are the dimensions given."""

    def __init__(
        self, definitions: Definitions, known: dict, row: int | None, column: int
    ):
        self._definitions = definitions
        self._known = known
        self._row = row
        self._column = column

    def read(self, atom: Atom, axes: Axes, mask: Mask) -> None:
        """Add what `atom` demands to `mask`."""
        eqn = self._definitions.of(atom, "and", "select_n", *_MOVES, *_COMPARE)
        splat = self._definitions.splat(atom)
        if splat is not None and bool(splat):
            return
        if eqn is not None and self._read_eqn(eqn, axes, mask):
            return
        mask.parts = (*mask.parts, Part(atom, axes))

    def _read_eqn(self, eqn: Eqn, axes: Axes, mask: Mask) -> bool:
        name = eqn.primitive.name
        if name == "and":
            for v in eqn.invars:
                self.read(v, sized(axes, v.aval.shape), mask)
            return True
        if name in _MOVES:
            self.read(eqn.invars[0], before(eqn, axes), mask)
            return True
        if name == "select_n":
            return self._read_select(eqn, axes, mask)
        return self._read_comparison(eqn, axes, mask)

    def _read_select(self, eqn: Eqn, axes: Axes, mask: Mask) -> bool:
        which, *cases = eqn.invars
        if np.dtype(which.aval.dtype).kind != "b":
            return False
        values = [self._definitions.splat(v) for v in cases]
        if len(values) != 2 or any(v is None for v in values):
            return False
        if bool(values[0]) or not bool(values[1]):
            return False
        self.read(which, sized(axes, which.aval.shape), mask)
        return True

    def _read_comparison(self, eqn: Eqn, axes: Axes, mask: Mask) -> bool:
        left, right = (self._index(v, sized(axes, v.aval.shape)) for v in eqn.invars)
        if left is None or right is None or left.is_row == right.is_row:
            return False
        low, high = _COMPARE[eqn.primitive.name](left.start - right.start)
        if right.is_row:  # column + a <= row + b: mirrored
            low, high = _negated(high), _negated(low)
        mask.bound(low, high)
        return True

    def _index(self, atom: Atom, axes: Axes) -> "_Index | None":
        """The row's or the column's index plus a number, if the value is that."""
        dtype = np.dtype(atom.aval.dtype)
        if is_literal(atom) or dtype.kind not in "iu":
            return None
        if atom in self._known:
            found = self._known_index(known_constant(self._known[atom], _MOST), axes)
        else:
            found = self._made_index(atom, axes)
        return found if found is not None and found.fits(dtype) else None

    def _made_index(self, atom: Atom, axes: Axes) -> "_Index | None":
        eqn = self._definitions.of(
            atom, "iota", "add", "sub", "convert_element_type", *_MOVES
        )
        if eqn is None:
            return None
        name = eqn.primitive.name
        if name == "iota":
            dim = eqn.params["dimension"]
            return self._along(axes[dim], 0, atom.aval.shape[dim])
        if name in _MOVES:
            return self._index(eqn.invars[0], before(eqn, axes))
        if name == "convert_element_type":
            return self._index(eqn.invars[0], axes)
        return self._moved(eqn, axes)

    def _moved(self, eqn: Eqn, axes: Axes) -> "_Index | None":
        one, two = eqn.invars
        if eqn.primitive.name == "add" and self._definitions.splat(one) is not None:
            one, two = two, one
        by = self._definitions.splat(two)
        found = self._index(one, sized(axes, one.aval.shape))
        if by is None or found is None:
            return None
        sign = -1 if eqn.primitive.name == "sub" else 1
        return replace(found, start=found.start + sign * int(by))

    def _known_index(self, value: np.ndarray | None, axes: Axes) -> "_Index | None":
        """A constant array that counts up along one dimension."""
        long = [] if value is None else [i for i, n in enumerate(value.shape) if n > 1]
        if value is None or len(long) != 1:
            return None
        flat = value.reshape(-1)
        start = int(flat[0])
        if [int(x) for x in flat] != list(range(start, start + flat.size)):
            return None
        return self._along(axes[long[0]], start, flat.size)

    def _along(self, axis: int | None, start: int, size: int) -> "_Index | None":
        if axis is None or axis not in (self._row, self._column):
            return None
        return _Index(axis == self._row, start, size)


@dataclass(frozen=True)
class _Index:
    """`start`, `start + 1`, ... along the rows or the columns, `size` of them."""

    is_row: bool
    start: int
    size: int

    def fits(self, dtype: np.dtype) -> bool:
        """Say whether no element has wrapped around."""
        limits = np.iinfo(dtype)
        return limits.min <= self.start and self.start + self.size - 1 <= limits.max


def _negated(bound: int | None) -> int | None:
    return None if bound is None else -bound


# row + a OP column + b, with d = a - b, as bounds on column - row.
_COMPARE = {
    "ge": lambda d: (None, d),
    "gt": lambda d: (None, d - 1),
    "le": lambda d: (d, None),
    "lt": lambda d: (d + 1, None),
}


# What gives the elements of its operand, elsewhere.
_MOVES = ("broadcast_in_dim", "transpose", "pvary")


def sized(axes: Axes, shape: Sequence[int]) -> Axes:
    """Forget where dimensions of size one lie; a scalar has none."""
    if not shape:
        return ()
    return tuple(None if n == 1 else a for a, n in zip(axes, shape, strict=True))


def before(eqn: Eqn, axes: Axes) -> Axes:
    """Where the dimensions of the operand of one of `_MOVES` lie."""
    shape = eqn.invars[0].aval.shape
    if eqn.primitive.name == "pvary":
        return axes
    if eqn.primitive.name == "transpose":
        found: list[int | None] = [None] * len(shape)
        for axis, source in zip(axes, eqn.params["permutation"], strict=True):
            found[source] = axis
        return sized(tuple(found), shape)
    dims = eqn.params["broadcast_dimensions"]
    return sized(tuple(axes[d] for d in dims), shape)
