"""A value of a graph: what it is, and Python's operators on it."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from tilejax import ops
from tilejax.errors import ArgumentError
from tilejax.primitives.sizes import show


def _operator(
    op: ops.Operation, *, is_reflected: bool = False
) -> Callable[[Any, Any], Any]:
    def run(self: Any, other: Any) -> Any:
        operands = (other, self) if is_reflected else (self, other)
        return self.graph.apply(op, *operands)

    return run


class Node:
    """A value of a graph that is being built; made by the graph's methods.

    `+ - * / // % ** @`, comparisons but `==`, and indexing apply the operations of
    `tilejax.ops`.

    **Arguments:**

    - `graph`: whose value it is.
    - `index`: where it stands among the graph's values.
    - `aval`: its shape and dtype.
    """

    # NumPy is to leave `array + node` to the node.
    __array_ufunc__ = None

    def __init__(self, graph: Any, index: int, aval: jax.ShapeDtypeStruct):
        self.graph, self.index, self.aval = graph, index, aval

    @property
    def shape(self) -> tuple:
        """The sizes of its axes; a size that has a name is symbolic."""
        return tuple(self.aval.shape)

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.aval.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of its elements."""
        return self.aval.dtype

    def __repr__(self) -> str:
        return f"<node {self.index} of {self.graph.name}: {show(self.aval)}>"

    def __getitem__(self, index: Any) -> "Node":
        return self.graph.apply(ops.index, self, index=index)

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            raise ArgumentError(f"{self!r} has no length that is a number")
        return self.shape[0]

    def __iter__(self) -> Iterator["Node"]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise ArgumentError(
            f"{self!r} has no value while its graph is built, so Python cannot branch "
            "on it; use graph.where, or graph.apply with a function of jax.lax.cond"
        )

    def astype(self, dtype: Any) -> "Node":
        """Convert to another dtype."""
        return self.graph.apply(ops.cast, self, jnp.dtype(dtype))

    def __neg__(self) -> "Node":
        return self.graph.apply(ops.negative, self)

    def __abs__(self) -> "Node":
        return self.graph.apply(ops.abs, self)

    __add__ = _operator(ops.add)
    __radd__ = _operator(ops.add, is_reflected=True)
    __sub__ = _operator(ops.subtract)
    __rsub__ = _operator(ops.subtract, is_reflected=True)
    __mul__ = _operator(ops.multiply)
    __rmul__ = _operator(ops.multiply, is_reflected=True)
    __truediv__ = _operator(ops.divide)
    __rtruediv__ = _operator(ops.divide, is_reflected=True)
    __floordiv__ = _operator(ops.floor_divide)
    __rfloordiv__ = _operator(ops.floor_divide, is_reflected=True)
    __mod__ = _operator(ops.remainder)
    __rmod__ = _operator(ops.remainder, is_reflected=True)
    __pow__ = _operator(ops.power)
    __rpow__ = _operator(ops.power, is_reflected=True)
    __matmul__ = _operator(ops.matmul)
    __rmatmul__ = _operator(ops.matmul, is_reflected=True)
    __lt__ = _operator(ops.less)
    __le__ = _operator(ops.less_equal)
    __gt__ = _operator(ops.greater)
    __ge__ = _operator(ops.greater_equal)
