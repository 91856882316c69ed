"""Building a graph: placeholders, parameters, operations, outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from tilejax import ops
from tilejax._jax import symbolic
from tilejax.errors import ArgumentError, ParameterError, ShapeError
from tilejax.front.graph.methods import layer_method, op_method
from tilejax.front.graph.node import Node
from tilejax.front.graph.record import Input, Parameter, Path, Record, Ref, Step
from tilejax.ops.initialisers import Initialiser, named
from tilejax.ops.layers import layers


class Building:
    """What a graph is built by; `GraphBuilder` adds what becomes of it."""

    def __init__(self, name: str = "graph"):
        if not name.isidentifier():
            raise ParameterError(f"GraphBuilder({name!r}): the name must be a word")
        self.name = name
        self._record = Record()
        self._scope: Path = ()
        self._sizes: dict[str, Any] = {}
        self._outputs: list[Node] = []
        self._labels: list[str] = []

    def placeholder(
        self,
        name: str | None = None,
        *,
        shape: Sequence[int | str],
        dtype: Any = "float32",
    ) -> Node:
        """Add an input.

        **Arguments:**

        - `name`: of the argument; `x0`, `x1`, ... by default.
        - `shape`: numbers, and names for sizes (of at least 1) that calls may choose:
          `("batch", 224, 224, 3)`. A name means one size in the whole graph.
        - `dtype`: of the elements; that of a `jax.random.key` for keys.

        **Raises:** `ShapeError`, `ParameterError`.

        >>> import tilejax
        >>> tilejax.GraphBuilder().placeholder(shape=("batch", 3)).shape
        (batch, 3)
        """
        known = [each.name for each in self._record.inputs]
        name = f"x{len(known)}" if name is None else name
        if not name.isidentifier() or name in known or name == "params":
            raise ParameterError(
                f"placeholder({name!r}): give a word that no other input has "
                f"({', '.join(('params', *known))})"
            )
        aval = jax.ShapeDtypeStruct(self._shape(name, shape), _dtype(dtype))
        node = self._node(aval)
        self._record.inputs.append(Input(name, node.index, aval))
        return node

    def _shape(self, name: str, shape: Sequence[int | str]) -> tuple:
        wrong = [
            size
            for size in shape
            if not (size.isidentifier() if isinstance(size, str) else _is_size(size))
        ]
        if wrong:
            raise ShapeError(
                f"placeholder {name}: size {wrong[0]!r} of shape {tuple(shape)!r}; "
                "give a number from 0, or a name for what calls may choose"
            )
        new = [s for s in shape if isinstance(s, str) and s not in self._sizes]
        if new:
            # all of one scope, or else they would not compare
            if self._sizes:
                self._sizes |= symbolic.more(self._sizes, dict.fromkeys(new))
            else:
                self._sizes |= symbolic.symbols(dict.fromkeys(new))
        return tuple(self._sizes[s] if isinstance(s, str) else int(s) for s in shape)

    def constant(self, value: Any, dtype: Any = None) -> Node:
        """Add an array that never changes.

        **Raises:** `DTypeError` if it is no array.
        """
        array = jnp.asarray(value, dtype)
        node = self._node(jax.ShapeDtypeStruct(array.shape, array.dtype))
        self._record.constants[node.index] = array
        return node

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        *,
        init: Initialiser = "glorot_uniform",
        dtype: Any = None,
        trainable: bool = True,
    ) -> Node:
        """Add an array that is learnt, or kept from call to call.

        **Arguments:**

        - `name`: in the tree that `init` gives; inside a `scope`, below its name.
        - `shape`: numbers.
        - `init`: how it starts: a name in `tilejax.ops.initialisers`, a number, or a
          function of (key, shape, dtype).
        - `trainable`: whether it has a gradient.

        **Raises:** `ParameterError`, `ShapeError`.
        """
        path = (*self._scope, name)
        taken = {each.path[: len(path)] for each in self._record.parameters}
        taken |= {each.path for each in self._record.parameters}
        if not name.isidentifier() or path in taken:
            raise ParameterError(
                f"parameter {'.'.join(path)!r}: give a word that no other has here"
            )
        if not all(map(_is_size, shape)):
            raise ShapeError(f"parameter {name}: shape {tuple(shape)}; give numbers")
        dtype = _dtype("float32" if dtype is None else dtype)
        node = self._node(jax.ShapeDtypeStruct(tuple(shape), dtype))
        says = getattr(init, "__name__", "a function") if callable(init) else str(init)
        self._record.parameters.append(
            Parameter(path, node.index, node.aval, named(init), says, trainable)
        )
        return node

    def update(self, parameter: Node, value: Node) -> None:
        """Say what a parameter becomes after a call: `to_function(updates=True)`."""
        known = {each.index: each for each in self._record.parameters}
        if parameter.graph is not self or parameter.index not in known:
            raise ParameterError(
                f"update: {parameter!r} is no parameter of {self.name}"
            )
        if value.shape != parameter.shape:
            raise ShapeError(
                f"update of {known[parameter.index].name}: {value!r} does not have its "
                f"shape {parameter.shape}"
            )
        self._record.updates[parameter.index] = value.index

    def apply(self, function: Callable, /, *args, **params) -> Any:
        """Add a call of any function of arrays: an operation, or one of yours.

        **Arguments:**

        - `function`: traced with the arguments, pytrees in which nodes stand for
          arrays. What is no node goes in as it is.

        **Returns:** what the function returns, with nodes for arrays.

        **Raises:** what the function raises for such shapes and dtypes, at once.
        """
        leaves, tree = jax.tree.flatten((args, params), is_leaf=_is_node)
        for leaf in leaves:
            if _is_node(leaf) and leaf.graph is not self:
                raise ArgumentError(
                    f"{leaf!r} belongs to another graph; give {self.name} a "
                    "placeholder for it"
                )
        refs = tuple(Ref(x.index) if _is_node(x) else x for x in leaves)
        made = Step(function, refs, tree, (), self._scope, symbolic.here())
        avals = {x.index: x.aval for x in leaves if _is_node(x)}
        trees: list[Any] = []

        def run(values):
            outs, out_tree = jax.tree.flatten(made.result(values, self._sizes))
            trees.append(out_tree)
            return outs

        try:
            found = jax.eval_shape(run, avals)
        except jax.errors.InconclusiveDimensionOperation as error:
            raise ShapeError(_inconclusive(function, self._sizes, error)) from error
        nodes = [self._node(aval) for aval in found]
        outs = tuple(node.index for node in nodes)
        step = Step(function, refs, tree, outs, self._scope, made.traceback)
        self._record.steps.append(step)
        return jax.tree.unflatten(trees[-1], nodes)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put the parameters that are made inside below a name.

        >>> import tilejax
        >>> graph = tilejax.GraphBuilder()
        >>> with graph.scope("encoder"):
        ...     _ = graph.parameter("scale", (2,), init="ones")
        >>> graph.init(0)["encoder"]["scale"].tolist()
        [1.0, 1.0]
        """
        if not name.isidentifier():
            raise ParameterError(f"scope({name!r}): the name must be a word")
        before, self._scope = self._scope, (*self._scope, name)
        try:
            yield
        finally:
            self._scope = before

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Leave nothing of what is built inside behind where it fails."""
        record = self._record
        counts = len(record.parameters), len(record.steps)
        updates = dict(record.updates)
        try:
            yield
        except BaseException:  # an interrupt too
            del record.parameters[counts[0] :], record.steps[counts[1] :]
            record.updates = updates
            raise

    def output(self, *nodes: Node, **by_name: Node) -> None:
        """Add outputs: one alone is returned as it is, several as a tuple.

        Outputs given by keyword are returned as a dictionary.

        **Raises:** `ArgumentError` for what is no node of this graph, or both kinds.
        """
        for node in (*nodes, *by_name.values()):
            if not _is_node(node) or node.graph is not self:
                raise ArgumentError(f"output: {node!r} is no node of {self.name}")
        labels = [*self._labels, *by_name]
        outputs = [*self._outputs, *nodes, *by_name.values()]
        if labels and len(labels) != len(outputs):
            raise ArgumentError("output: name all outputs, or none")
        if len(set(labels)) != len(labels):
            raise ArgumentError(f"output: a name is taken already: {labels}")
        self._outputs, self._labels = outputs, labels

    def __getattr__(self, name: str) -> Callable:
        """Give the layer, or else the operation, of this name as a method."""
        if not name.startswith("_"):
            if name in layers():
                return layer_method(self, layers()[name])
            if name in ops.operations():
                return op_method(self, ops.operations()[name])
        raise AttributeError(f"GraphBuilder has no layer or operation {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *layers(), *ops.operations()})

    def _node(self, aval: Any) -> Node:
        return Node(self, self._record.new(), aval)

    def free_name(self, base: str) -> str:
        """Return a name that no parameter has here: `base`, or with a number."""
        depth = len(self._scope)
        taken = {
            each.path[depth]
            for each in self._record.parameters
            if each.path[:depth] == self._scope
        }
        at, name = 0, base
        while name in taken:
            at, name = at + 1, f"{base}_{at + 1}"
        return name


def _is_node(x: Any) -> bool:
    return isinstance(x, Node)


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _dtype(dtype: Any) -> Any:
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
    return dtype if is_key else jax.dtypes.canonicalize_dtype(dtype)


def _inconclusive(function: Callable, sizes: Any, error: Exception) -> str:
    name = getattr(function, "__name__", repr(function))
    return (
        f"{name}: it depends on the value of a size that only has a name "
        f"({', '.join(sizes)}): {str(error).splitlines()[0]} Give the placeholder a "
        "number there"
    )
