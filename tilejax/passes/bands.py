"""Reading a mask of scores: which part of it is a band around the diagonal.

A mask is an "and" of parts. A part that compares the row's index with the column's says
`low <= column - row <= high`; causal masks and sliding windows are such bands, and a
kernel skips what lies outside without reading a mask. Any other part stays an operand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn, is_literal
from tilejax.passes.rules import Definitions

# Where a dimension of a value lies among those of the scores; None for one of size one.
Axes = tuple[int | None, ...]


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

    def __init__(self, definitions: Definitions, known: dict, row: int, column: int):
        self._definitions = definitions
        self._known = known
        self._row = row
        self._column = column

    def read(self, atom: Atom, axes: Axes, mask: Mask) -> None:
        """Add what `atom` demands to `mask`."""
        eqn = self._definitions.of(
            atom, "and", "broadcast_in_dim", "transpose", "select_n", *_COMPARE
        )
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
        if name in ("broadcast_in_dim", "transpose"):
            self.read(eqn.invars[0], before(eqn, axes), mask)
            return True
        if name == "select_n":
            return self._read_select(eqn, axes, mask)
        return self._read_comparison(eqn, axes, mask)

    def _read_select(self, eqn: Eqn, axes: Axes, mask: Mask) -> bool:
        which, *cases = eqn.invars
        values = [self._definitions.splat(v) for v in cases]
        if len(values) != 2 or any(v is None for v in values):
            return False
        if bool(values[0]) or not bool(values[1]):
            return False
        self.read(which, sized(axes, which.aval.shape), mask)
        return True

    def _read_comparison(self, eqn: Eqn, axes: Axes, mask: Mask) -> bool:
        sides = [self._index(v, sized(axes, v.aval.shape)) for v in eqn.invars]
        if None in sides:
            return False
        (left, a), (right, b) = sides  # pyright: ignore
        if {left, right} != {"row", "column"}:
            return False
        low, high = _COMPARE[eqn.primitive.name](a - b)
        if left == "column":  # column + a <= row + b: mirrored
            low, high = _negated(high), _negated(low)
        mask.bound(low, high)
        return True

    def _index(self, atom: Atom, axes: Axes) -> tuple[str, int] | None:
        """The row's or the column's index plus a number, if the value is that."""
        if is_literal(atom):
            return None
        if atom in self._known:
            return self._known_index(np.asarray(self._known[atom]), axes)
        eqn = self._definitions.of(
            atom, "iota", "broadcast_in_dim", "transpose", "add", "sub",
            "convert_element_type",
        )  # fmt: skip
        if eqn is None:
            return None
        name = eqn.primitive.name
        if name == "iota":
            return self._along(axes[eqn.params["dimension"]], 0)
        if name in ("broadcast_in_dim", "transpose"):
            return self._index(eqn.invars[0], before(eqn, axes))
        if name == "convert_element_type":
            kinds = {
                np.dtype(v.aval.dtype).kind for v in (eqn.invars[0], eqn.outvars[0])
            }
            return self._index(eqn.invars[0], axes) if kinds <= {"i"} else None
        return self._moved(eqn, axes)

    def _moved(self, eqn: Eqn, axes: Axes) -> tuple[str, int] | None:
        one, two = eqn.invars
        if eqn.primitive.name == "add" and self._definitions.splat(one) is not None:
            one, two = two, one
        by = self._definitions.splat(two)
        found = self._index(one, sized(axes, one.aval.shape))
        if by is None or found is None or by.dtype.kind not in "iu":
            return None
        sign = -1 if eqn.primitive.name == "sub" else 1
        return found[0], found[1] + sign * int(by)

    def _known_index(self, value: np.ndarray, axes: Axes) -> tuple[str, int] | None:
        """A constant array that counts up along one dimension."""
        long = [i for i, n in enumerate(value.shape) if n > 1]
        if value.dtype.kind not in "iu" or len(long) != 1:
            return None
        flat = value.reshape(-1).astype(np.int64)
        if not np.array_equal(flat, flat[0] + np.arange(flat.size)):
            return None
        return self._along(axes[long[0]], int(flat[0]))

    def _along(self, axis: int | None, start: int) -> tuple[str, int] | None:
        names = {self._row: "row", self._column: "column"}
        return (names[axis], start) if axis in names else None


def _negated(bound: int | None) -> int | None:
    return None if bound is None else -bound


# row + a OP column + b, with d = a - b, as bounds on column - row.
_COMPARE = {
    "ge": lambda d: (None, d),
    "gt": lambda d: (None, d - 1),
    "le": lambda d: (d, None),
    "lt": lambda d: (d + 1, None),
}


def sized(axes: Axes, shape: Sequence[int]) -> Axes:
    """Forget where dimensions of size one lie."""
    return tuple(None if n == 1 else a for a, n in zip(axes, shape, strict=True))


def before(eqn: Eqn, axes: Axes) -> Axes:
    """Where the dimensions of the operand of a broadcast or transpose lie."""
    shape = eqn.invars[0].aval.shape
    if eqn.primitive.name == "transpose":
        found: list[int | None] = [None] * len(shape)
        for axis, source in zip(axes, eqn.params["permutation"], strict=True):
            found[source] = axis
        return sized(tuple(found), shape)
    dims = eqn.params["broadcast_dimensions"]
    return sized(tuple(axes[d] for d in dims), shape)
