"""Appending operations to a body, with the little rewriting that all rules share."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager

import numpy as np

from tilejax.errors import UnsupportedKernel
from tilejax.lowering.tile.operations import ELEMENTWISE, SHAPED
from tilejax.lowering.tile.program import Block, Op, Ref, Span, Value

_PURE = ELEMENTWISE | SHAPED.keys() | {"reduce", "program_id", "num_programs"}
"""What gives the same whenever it gets the same."""


class Builder:
    """A body while it grows.

    **Arguments:**

    - `kernel`: its name, for errors.
    - `axes`: the grid's dimensions that `program_id` counts.
    - `apart`: references whose rows do not follow one another in memory.
    - `platform`: what JAX calls the target.
    - `walk`: turns a program and what its inputs stand for into operations of this
      builder; returns what its outputs stand for.
    """

    def __init__(self, kernel: str, axes: Sequence[int], walk: Callable):
        self.kernel, self.axes, self._walk = kernel, tuple(axes), walk
        self.apart: frozenset[Ref] = frozenset()
        self.platform = "cpu"
        self.ops: list[Op] = []
        self.constants: dict[Value, np.ndarray] = {}
        self._known: dict[tuple, Value] = {}
        self.line = ""

    def walk(self, program, inputs: Sequence, constants: Sequence = ()) -> list:
        """Append a program's operations; return what its outputs stand for.

        **Arguments:**

        - `constants`: what its constant variables stand for, if it holds no values.
        """
        return self._walk(self, program, inputs, constants)

    def refuse(self, what: str) -> UnsupportedKernel:
        """Make the error of something that a kernel may not hold."""
        where = f" at {self.line}" if self.line else ""
        return UnsupportedKernel(
            f"kernel {self.kernel}: {what}{where} is not supported by compiled "
            f"kernels; run it with interpret=True, or ask for fallback='interpret'"
        )

    def add(self, kind: str, inputs: Sequence, outputs: Sequence = (), **params) -> Op:
        """Append an operation."""
        blocks = params.pop("blocks", ())
        op = Op(kind, tuple(inputs), tuple(outputs), params, tuple(blocks), self.line)
        self.ops.append(op)
        return op

    def value(self, kind: str, inputs: Sequence, shape, dtype, **params) -> Value:
        """Return the result of an operation, which is appended if it is new.

        What a body computes again that is computed outside of it is new: a value that
        bodies share takes memory.
        """
        out = Value(tuple(shape), np.dtype(dtype))
        if kind in _PURE:
            told = tuple((name, _hashable(params[name])) for name in sorted(params))
            key = (kind, *inputs, out.shape, out.dtype, told)
            found = self._known.setdefault(key, out)
            if found is not out:
                return found
        self.add(kind, inputs, [out], **params)
        return out

    def constant(self, value, dtype=None) -> Value:
        """Append a constant."""
        array = np.asarray(value, dtype)
        made = self.value("constant", (), array.shape, array.dtype, value=array)
        self.constants[made] = array
        return made

    def broadcast(self, x: Value, shape: Sequence[int], dims=None) -> Value:
        """Stretch a value, whose dimensions are the last ones unless `dims` tells."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if dims is None:
            dims = tuple(range(len(shape) - len(x.shape), len(shape)))
        return self.value("broadcast", [x], shape, x.dtype, dims=tuple(dims))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Give the elements another shape."""
        if x.shape == tuple(shape):
            return x
        return self.value("reshape", [x], shape, x.dtype)

    def convert(self, x: Value, dtype) -> Value:
        """Convert the elements to another dtype."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        return self.value("convert_element_type", [x], x.shape, dtype)

    def binary(self, kind: str, a: Value, b: Value, dtype=None) -> Value:
        """Combine two values of one shape."""
        return self.value(kind, [a, b], a.shape, dtype or a.dtype)

    def view(self, ref: Ref, shape, dtype=None, **params) -> Ref:
        """Append a reference to a part of another."""
        out = Ref(
            tuple(shape), np.dtype(dtype or ref.dtype), ref.space, ref.kind, ref.whole
        )
        values = [x for x in _values_of(params.get("index", ()))]
        self.add("view", [ref, *values], [out], **params)
        return out

    def load(self, ref: Ref, index: Sequence, mask=None, other=None) -> Value:
        """Append a read; an index has an entry a dimension of the reference."""
        shape = indexed_shape(index)
        inputs = [ref, mask, other, *_values_of(index)]
        return self.value("load", inputs, shape, ref.dtype, index=tuple(index))

    def store(self, ref: Ref, index: Sequence, value: Value, mask=None) -> None:
        """Append a write."""
        inputs = [ref, value, mask, *_values_of(index)]
        self.add("store", inputs, index=tuple(index))

    @contextmanager
    def body(self, inputs: Sequence):
        """Collect what is appended inside of the `with` in a body of its own.

        **Returns:** the body; its results are for the caller to set.
        """
        outer, block = (self.ops, self._known), Block(tuple(inputs), [])
        self.ops, self._known = block.ops, {}
        try:
            yield block
        finally:
            self.ops, self._known = outer


def _hashable(param):
    if isinstance(param, np.ndarray | np.generic):
        return param.shape, param.dtype, param.tobytes()
    return tuple(map(_hashable, param)) if isinstance(param, list | tuple) else param


def _values_of(index: Sequence) -> list[Value]:
    parts = [e.start if isinstance(e, Span) else e for e in index]
    return [x for x in parts if isinstance(x, Value)]


def indexed_shape(index: Sequence) -> tuple[int, ...]:
    """Return the shape of what an index reads: arrays' shape first, then spans."""
    arrays = [e.shape for e in index if isinstance(e, Value) and e.shape]
    lead = np.broadcast_shapes(*arrays) if arrays else ()
    return tuple(lead) + tuple(e.size for e in index if isinstance(e, Span))


def everything(ref: Ref) -> tuple[Span, ...]:
    """Return the index of all elements of a reference."""
    return tuple(Span(0, size) for size in ref.shape)
