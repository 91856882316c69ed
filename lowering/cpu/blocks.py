"""The blocks of a call's arrays at a place in the grid."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tilejax.lowering.cpu.access import View, dense_strides
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.plan import Plan
from tilejax.lowering.cpu.shaping import part_of
from tilejax.lowering.cpu.tiles import Iota, Load, Mapped, Scalar, Stretched, Tile
from tilejax.lowering.cpu.types import Elt, constant, dtype_name, is_float
from tilejax.lowering.tile.program import Operand

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter


def whole(operand: Operand, pointer: str, storage: Callable) -> View:
    """Return an operand's array."""
    return View(
        pointer,
        dtype_name(operand.dtype),
        operand.shape,
        dense_strides(operand.shape),
        storage(operand.ref),
        (None,) * len(operand.shape),
    )


class Block:
    """The block of an operand at the place in the grid.

    It is part of the array, but where the array is padded: then it is a copy, which
    `leave` writes back.
    """

    def __init__(self, e: "Emitter", operand: Operand, array: View):
        self.e, self.operand = e, operand
        self.view = self._part(array)
        self.outside: View | None = None
        if any(dim.padding != (0, 0) for dim in operand.dims):
            self._copy()

    def _starts(self) -> list:
        e, index_map = self.e, self.operand.index_map
        assert index_map is not None
        for value, element in zip(index_map.inputs, e.ids, strict=False):
            e.bind(value, Scalar(element))
        with _without_plan(e):
            e.run(index_map)
        return [e.index(value) for value in index_map.results]

    def _part(self, array: View) -> View:
        """The part of the array; of a padded one some may lie before it."""
        dims, sizes, starts = self.operand.dims, self.operand.shape, self._starts()
        at, shape, strides, limits = [], [], [], []
        self.firsts = []

        def emit(n):
            for start, dim, size, stride in zip(
                starts, dims, sizes, array.strides, strict=True
            ):
                first = n.mul_index(start, dim.step)
                first = n.add_index(first, -dim.padding[0])
                at.append((first, False))
                if dim.squeezed:
                    continue
                shape.append(dim.size)
                strides.append(stride)
                limits.append(_limit(n, first, dim, size))
                before = n.mul_index(first, -1)
                self.firsts.append(before if dim.padding[0] else None)
            return array.address(n, array.offset(n, at))

        pointer = self.e.straight(emit)
        if self.e.checks is not None:
            self.e.checks.block(self.operand, [first for first, _ in at])
        return part_of(array, pointer, shape, strides, limits)

    def _copy(self) -> None:
        e, outside = self.e, self.view
        self.outside = outside
        self.view = e.arena.tile(outside.shape, outside.dtype, dense=True)
        number = Scalar(constant(_padding(outside.dtype), outside.dtype))
        padding = Stretched(number, (), outside.shape)
        e.put(self.view, padding)
        e.put(self.view, Load(outside, self._mask()), self._inside())

    def _mask(self) -> Tile | None:
        """Whether an element of a padded block is not before the array."""
        view, mask = self.outside, None
        assert view is not None
        for d, first in enumerate(self.firsts):
            if first is not None:
                mask = _and(mask, _compared(view, d, "ge", first))
        return mask

    def _inside(self) -> Tile | None:
        """Whether an element is in the array."""
        view, mask = self.outside, self._mask()
        assert view is not None
        for d, limit in enumerate(view.limits):
            if limit is not None:
                mask = _and(mask, _compared(view, d, "lt", limit))
        return mask

    def leave(self) -> None:
        """Write a copy back, as far as the array goes."""
        if self.outside is not None and self.operand.role == "output":
            self.e.put(self.outside, Load(self.view), self._mask())


def _compared(view: View, d: int, how: str, bound) -> Tile:
    """Compare the index along a dimension with a number."""
    number = Stretched(Scalar(Elt(str(bound), "int64")), (), view.shape)
    args = [Iota(view.shape, "int64", d), number]
    return Mapped(OPS[how].rule, {}, args, view.shape, "bool")


def _and(a: Tile | None, b: Tile) -> Tile:
    if a is None:
        return b
    return Mapped(OPS["and"].rule, {}, [a, b], b.shape, "bool")


def _padding(dtype: str):
    """What the interpreter pads with: NaN, or the least integer."""
    if dtype == "bool":
        return False
    return math.nan if is_float(dtype) else np.iinfo(dtype).min


def _limit(n, first, dim, size: int):
    """Where a block may pass the array's end, the first index outside; else None."""
    if isinstance(first, int):
        return None if first + dim.size <= size else size - first
    if dim.step == dim.size and size % dim.size == 0:
        return None
    return n.add_index(size, n.mul_index(first, -1))


@contextmanager
def _without_plan(e: "Emitter") -> Iterator[None]:
    """Index maps are scalars, of which nothing is kept."""
    plan, e.plan = e.plan, Plan()
    yield
    e.plan = plan
