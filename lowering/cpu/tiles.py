"""Tiles as expressions: each can say the code of a vector of neighbouring elements.

`at(nest, places, tail)` gives the element at the places, or the elements along
the one place that is laned. `tail` is the literal mask of the lanes that exist, where a
row ends inside of a vector. What can be known of an expression is worked out when it is
made, so that long chains of shared expressions cost nothing to look at again.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum

from tilejax.lowering.cpu.access import (
    Place,
    View,
    load,
)
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import Elt, itemsize


class Lanes(IntEnum):
    """How vectors can run along a dimension of a tile."""

    NEVER = 0
    GATHERED = 1
    FREE = 2


ORIGIN: Place = (0, False)


class Tile:
    """An expression of a shape and a dtype.

    **Arguments:**

    - `reads`: the storages that evaluating it reads.
    - `lanes`: for each dimension, how vectors can run along it.
    """

    def __init__(self, shape, dtype: str, args: Sequence["Tile"] = ()):
        self.shape, self.dtype, self.args = tuple(shape), dtype, tuple(args)
        self.reads: frozenset[int] = frozenset().union(*(a.reads for a in self.args))
        self.lanes: tuple[Lanes, ...] = (Lanes.FREE,) * len(self.shape)

    def at(self, n: Nest, places: Sequence[Place], tail: str | None = None) -> Elt:
        """Return the code of an element, or of a vector of elements."""
        key = (id(self), tuple(places), tail)
        if key not in n.values:
            laned = [d for d, (_, lane) in enumerate(places) if lane]
            assert all(self.lanes[d] for d in laned), "vectors along a mixed dimension"
            # the tile is kept with its code, so that its id stays its own
            n.values[key] = (self._compute(n, places, tail), self)
        return n.values[key][0]

    def _compute(self, n: Nest, places: Sequence[Place], tail: str | None) -> Elt:
        raise NotImplementedError

    def reads_only_in_place(self, view: View) -> bool:
        """Tell whether of a view's memory only the same element is read.

        Then the tile can be written to the view while it is computed.
        """
        return view.storage not in self.reads or self._only_in_place(view)

    def _only_in_place(self, view: View) -> bool:
        return all(a.reads_only_in_place(view) for a in self.args)


def fitted(places: Sequence[Place], shape: Sequence[int]) -> tuple[Place, ...]:
    """Return the places in an operand whose size-one dimensions are stretched."""
    lead = len(places) - len(shape)
    return tuple(
        ORIGIN if size == 1 else place
        for size, place in zip(shape, places[lead:], strict=True)
    )


def is_laned(places: Sequence[Place]) -> bool:
    """Tell whether the places are those of a vector."""
    return any(lane for _, lane in places)


def tail_mask(tail: str | None, places: Sequence[Place]) -> Elt | None:
    """Return the mask of a tail for a vector; None for single elements."""
    if tail is None or not is_laned(places):
        return None
    return Elt(tail, "bool", True)


class Scalar(Tile):
    """A number that has been computed."""

    def __init__(self, element: Elt):
        super().__init__((), element.dtype)
        self.element = element

    def _compute(self, n, places, tail):
        return self.element


class Load(Tile):
    """A read of a view, masked or not."""

    def __init__(self, view: View, mask: Tile | None = None, other: Tile | None = None):
        args = [x for x in (mask, other) if x is not None]
        super().__init__(view.shape, view.dtype, args)
        self.view, self.mask, self.other = view, mask, other
        self.reads |= {view.storage}
        self.lanes = tuple(
            Lanes.FREE if stride == 1 or size == 1 else Lanes.GATHERED
            for stride, size in zip(view.strides, view.shape, strict=True)
        )

    @property
    def is_plain(self) -> bool:
        """Whether every element is simply there."""
        return self.mask is None and not self.view.is_ragged

    def _compute(self, n, places, tail):
        mask = None if self.view.padded else tail_mask(tail, places)
        other = None
        if self.mask is not None:
            mask = n.both(mask, self.mask.at(n, places, tail))
            other = self.other and self.other.at(n, places, tail)
        return load(n, self.view, places, mask, other)

    def _only_in_place(self, view):
        if self.view.storage == view.storage and not self.view.is_same_memory(view):
            return False
        return super()._only_in_place(view)


class Iota(Tile):
    """The index along a dimension."""

    def __init__(self, shape, dtype: str, dimension: int):
        super().__init__(shape, dtype)
        self.dimension = dimension

    def _compute(self, n, places, tail):
        index, lane = places[self.dimension]
        e = n.as_element(index, self.dtype)
        return Elt("", self.dtype, True, base=e.text) if lane else e


class Stretched(Tile):
    """A tile repeated along new dimensions or along dimensions of size one."""

    def __init__(self, arg: Tile, dims: Sequence[int], shape):
        super().__init__(shape, arg.dtype, [arg])
        self.dims = tuple(dims)
        for d, size, lanes in zip(dims, arg.shape, arg.lanes, strict=True):
            if size != 1:
                self.lanes = (*self.lanes[:d], lanes, *self.lanes[d + 1 :])

    def _compute(self, n, places, tail):
        (arg,) = self.args
        return arg.at(n, fitted([places[d] for d in self.dims], arg.shape), tail)

    def _only_in_place(self, view):
        return False


class Moved(Tile):
    """A tile whose places are found from the places in the result."""

    def __init__(self, arg: Tile, shape, lanes: Sequence[Lanes], places: Callable):
        super().__init__(shape, arg.dtype, [arg])
        self.lanes, self._places = tuple(lanes), places

    def _compute(self, n, places, tail):
        return self.args[0].at(n, self._places(n, places), tail)

    def _only_in_place(self, view):
        return False


def permuted(arg: Tile, order: Sequence[int]) -> Tile:
    """Transpose a tile."""
    shape = [arg.shape[d] for d in order]

    def places(n, at):
        found = dict(zip(order, at, strict=True))
        return tuple(found[d] for d in range(len(order)))

    return Moved(arg, shape, [arg.lanes[d] for d in order], places)


def with_units(arg: Tile, shape: Sequence[int]) -> Tile:
    """Reshape by adding and dropping dimensions of size one."""
    wide = [d for d, size in enumerate(shape) if size != 1]
    theirs = [d for d, size in enumerate(arg.shape) if size != 1]
    source = dict(zip(theirs, wide, strict=True))
    lanes = [Lanes.FREE] * len(shape)
    for mine, theirs_d in zip(wide, theirs, strict=True):
        lanes[mine] = arg.lanes[theirs_d]

    def places(n, at):
        return tuple(
            at[source[d]] if d in source else ORIGIN for d in range(len(arg.shape))
        )

    return Moved(arg, shape, lanes, places)


def sliced(arg: Tile, starts: Sequence[Index], strides, shape) -> Tile:
    """Take every `stride`-th element from a start on, along each dimension."""
    lanes = [
        lane if stride == 1 or size == 1 else Lanes.NEVER
        for lane, stride, size in zip(arg.lanes, strides, shape, strict=True)
    ]

    def places(n, at):
        return tuple(
            (n.add_index(start, n.mul_index(index, stride)), lane)
            for (index, lane), start, stride in zip(at, starts, strides, strict=True)
        )

    return Moved(arg, shape, lanes, places)


def reshaped(arg: Tile, shape: Sequence[int], lanes: int) -> Tile:
    """Reshape by the elements' number in row-major order.

    Vectors run along the last dimension, and only where no vector can cross the end of
    a row of either side.
    """
    ours, theirs = (shape[-1] if shape else 1), (arg.shape[-1] if arg.shape else 1)
    is_safe = ours == theirs or (ours % lanes == 0 and theirs % lanes == 0)
    along = arg.lanes[-1] if is_safe and arg.shape else Lanes.NEVER
    free = [Lanes.FREE if size == 1 else Lanes.NEVER for size in shape]
    if shape:
        free[-1] = along

    def places(n, at):
        number: Index = 0
        step = 1
        for (index, _), size in zip(reversed(at), reversed(shape), strict=True):
            number = n.add_index(number, n.mul_index(index, step))
            step *= size
        found: list[Place] = []
        for size in reversed(arg.shape):
            found.append((n.mod_index(number, size), False))
            number = n.div_index(number, size)
        if at and at[-1][1]:
            found[0] = (found[0][0], True)
        return tuple(reversed(found))

    return Moved(arg, shape, free, places)


class Mapped(Tile):
    """An element-wise operation."""

    def __init__(self, rule: Callable, params: dict, args, shape, dtype: str):
        super().__init__(shape, dtype, args)
        self.rule, self.params = rule, params
        columns = zip(*(a.lanes for a in self.args), strict=True)
        self.lanes = tuple(min(column) for column in columns)

    def _compute(self, n, places, tail):
        elements = [a.at(n, places, tail) for a in self.args]
        return self.rule(n, elements, self.dtype, self.params)


class Dot(Tile):
    """A product that the sink which it goes to computes."""

    def __init__(self, a: Tile, b: Tile, dims, shape, dtype: str, precision):
        super().__init__(shape, dtype, [a, b])
        self.dims, self.precision = dims, precision

    def _compute(self, n, places, tail):
        raise AssertionError("a dot is in memory before it is read")

    def _only_in_place(self, view):
        return False


def vector_bytes(tile: Tile, lanes: int) -> int:
    """Return the bytes of a vector of a tile's elements."""
    return lanes * itemsize(tile.dtype)


def elements(tile: Tile) -> int:
    """Return how many elements a tile has."""
    return math.prod(tile.shape)
