"""The methods of a graph that the tables of layers and operations give it."""

import inspect
from collections.abc import Callable
from typing import Any

from tilejax.errors import ArgumentError, ParameterError
from tilejax.ops import Operation
from tilejax.ops.layers import Layer


def layer_method(graph: Any, layer: Layer) -> Callable:
    """Return the method that adds a layer, its parameters under a name of its own."""

    def run(*operands, name: str | None = None, **options):
        if name is None:
            name = graph.free_name(layer.name)
        elif graph.free_name(name) != name:
            raise ParameterError(f"{layer.name}: the name {name!r} is taken")
        try:
            inspect.signature(layer.function).bind(graph, *operands, **options)
        except TypeError as error:
            raise ArgumentError(f"{layer.name}: {error}; {layer.usage}") from None
        with graph.scope(name), graph.undone_on_error():
            return layer.function(graph, *operands, **options)

    run.__name__, run.__doc__ = layer.name, layer.__doc__
    return run


def op_method(graph: Any, op: Operation) -> Callable:
    """Return the method that adds a call of an operation."""

    def run(*args, **params):
        return graph.apply(op, *args, **params)

    run.__name__, run.__doc__ = op.name, op.__doc__
    return run
