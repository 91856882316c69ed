"""A value of a graph: what it is, and Python's operators on it."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from tilejax import ops
from tilejax.errors import ArgumentError
from tilejax.primitives.sizes import show


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


def _operator(op: ops.Operation, *, is_reflected: bool = False) -> Callable:
    def run(self: Node, other: Any) -> Node:
        operands = (other, self) if is_reflected else (self, other)
        return self.graph.apply(op, *operands)

    return run


_BINARY = {
    "add": ops.add,
    "sub": ops.subtract,
    "mul": ops.multiply,
    "truediv": ops.divide,
    "floordiv": ops.floor_divide,
    "mod": ops.remainder,
    "pow": ops.power,
    "matmul": ops.matmul,
}
_COMPARISONS = {
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
for _name, _op in _BINARY.items():
    setattr(Node, f"__{_name}__", _operator(_op))
    setattr(Node, f"__r{_name}__", _operator(_op, is_reflected=True))
for _name, _op in _COMPARISONS.items():
    setattr(Node, f"__{_name}__", _operator(_op))
for _name, _op in {"neg": ops.negative, "abs": ops.abs}.items():
    setattr(Node, f"__{_name}__", lambda self, _op=_op: self.graph.apply(_op, self))
