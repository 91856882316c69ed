"""Accesses through what a view of memory cannot say: then whole values are changed.

Bits read as a wider or narrower type, elements picked by arrays of which a part is
taken again, rows that lie apart in another shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilejax._jax import pallas
from tilejax.lowering.tile.build import Builder, everything, indexed_shape
from tilejax.lowering.tile.program import Ref, Span, Value


def entries_of(b: Builder, entries: Sequence, shape: Sequence[int]) -> tuple:
    """Return an index with Python integers where they are known.

    Known numbers below zero count from the end; what is computed is taken as it is.
    """
    return tuple(_entry(b, e, size) for e, size in zip(entries, shape, strict=True))


def _entry(b: Builder, entry, size: int):
    if isinstance(entry, pallas.Span):
        start = entry.start
        start = start if isinstance(start, Value) else int(start)
        return Span(start, entry.size, entry.stride)
    if isinstance(entry, Value):
        if entry not in b.constants:
            return entry
        entry = b.constants[entry]
    array = np.asarray(entry)
    if array.dtype.kind == "i":
        array = np.where(array < 0, array + size, array).astype(np.int32)
    return b.constant(array)


def users_order(index: tuple) -> tuple[int, ...]:
    """Return where the user's dimensions are among those of an access.

    Operations of tile programs put the dimensions of arrays of indices first. JAX
    leaves them where they are, as NumPy does, if no slice lies between them.
    """
    rank = len(indexed_shape(index))
    spans = [k for k, e in enumerate(index) if isinstance(e, Span)]
    picked = [k for k, e in enumerate(index) if not isinstance(e, Span)]
    lead = rank - len(spans)
    if not lead or picked[-1] - picked[0] + 1 != len(picked):
        return tuple(range(rank))
    before = picked[0]
    first, rest = range(lead, lead + before), range(lead + before, rank)
    return (*first, *range(lead), *rest)


def transposed(b: Builder, x: Value, order: Sequence[int]) -> Value:
    """Permute the dimensions of a value."""
    order = tuple(order)
    if order == tuple(range(len(order))):
        return x
    shape = [x.shape[d] for d in order]
    return b.value("transpose", [x], shape, x.dtype, permutation=order)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes another."""
    return tuple(order.index(d) for d in range(len(order)))


def repacked(b: Builder, x: Value, dtype) -> Value:
    """Read bits as another type; rows of the last two dimensions are packed."""
    dtype = np.dtype(dtype)
    have, want = x.dtype.itemsize, dtype.itemsize
    if have == want:
        return b.value("bitcast_convert_type", [x], x.shape, dtype)
    *lead, rows, columns = x.shape
    if have < want:
        ratio = want // have
        parts = b.reshape(x, (*lead, rows // ratio, ratio, columns))
        rank = len(parts.shape)
        last = transposed(b, parts, (*range(rank - 2), rank - 1, rank - 2))
        return reinterpreted(b, last, (*lead, rows // ratio, columns), dtype)
    ratio = have // want
    parts = reinterpreted(b, x, (*x.shape, ratio), dtype)
    rank = len(parts.shape)
    turned = transposed(b, parts, (*range(rank - 2), rank - 1, rank - 2))
    return b.reshape(turned, (*lead, rows * ratio, columns))


def reinterpreted(b: Builder, x: Value, shape, dtype) -> Value:
    """Read the bytes of a value in row-major order as another type and shape."""
    return b.value("reinterpret", [x], shape, dtype)


def values_in(index: Sequence) -> list[Value]:
    """Return the values that an index holds."""
    parts = [e.start if isinstance(e, Span) else e for e in index]
    return [x for x in parts if isinstance(x, Value)]


@dataclass(frozen=True)
class _Step:
    """One transform of a value, and how to put a changed result back."""

    kind: str
    what: Any
    before: Value

    def apply(self, b: Builder) -> Value:
        """Return what the transform makes of the value."""
        x, what = self.before, self.what
        if self.kind == "index":
            shape = indexed_shape(what)
            inputs = [x, None, None, *values_in(what)]
            found = b.value("pick", inputs, shape, x.dtype, index=what)
            return transposed(b, found, users_order(what))
        if self.kind == "bitcast":
            return repacked(b, x, what)
        if self.kind == "transpose":
            return transposed(b, x, what)
        return b.reshape(x, what)

    def undo(self, b: Builder, new: Value) -> Value:
        """Return the value with the transform's result replaced."""
        x, what = self.before, self.what
        if self.kind == "index":
            new = transposed(b, new, inverse(users_order(what)))
            inputs = [x, new, None, *values_in(what)]
            return b.value("put", inputs, x.shape, x.dtype, index=what, op=None)
        if self.kind == "bitcast":
            return repacked(b, new, x.dtype)
        if self.kind == "transpose":
            return transposed(b, new, inverse(what))
        return b.reshape(new, x.shape)


class Through:
    """A reference seen through transforms, all of it read and written at once."""

    def __init__(self, b: Builder, ref: Ref, found: Sequence[pallas.Transform]):
        self.b, self.ref = b, ref
        x, self.steps = b.load(ref, everything(ref)), []
        b.ops[-1].params["partial"] = True
        for kind, what in found:
            if kind == "index":
                what = entries_of(b, what, x.shape)
            self.steps.append(_Step(kind, what, x))
            x = self.steps[-1].apply(b)
        self.value = x
        self.shape = x.shape

    def store(self, new: Value) -> None:
        """Write what is seen."""
        for step in reversed(self.steps):
            new = step.undo(self.b, new)
        self.b.store(self.ref, everything(self.ref), new)


def is_viewable(b: Builder, ref: Ref, found: Sequence[pallas.Transform]) -> bool:
    """Tell whether memory can be seen through transforms without copying it.

    The last one may pick elements by arrays.
    """
    is_dense, dtype = ref not in b.apart, ref.dtype
    for k, (kind, what) in enumerate(found):
        if kind == "index":
            picks = any(_is_array(e) for e in what)
            if picks and k + 1 < len(found):
                return False
            is_dense = False
        elif kind == "bitcast":
            if np.dtype(what).itemsize != dtype.itemsize:
                return False
            dtype = np.dtype(what)
        elif kind == "transpose":
            is_dense = False
        elif not is_dense and math.prod(what) != 1:
            return False
    return True


def _is_array(entry) -> bool:
    return not isinstance(entry, pallas.Span) and bool(np.shape(entry))
