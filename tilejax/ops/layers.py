"""Layers: operations that say which parameters they need, and how those start.

A layer is a function of a *builder* and operands. The builder makes parameters and
applies operations; `tilejax.GraphBuilder` is one.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilejax.errors import DeclarationError, ParameterError, ShapeError
from tilejax.ops.registry import Operation, operations
from tilejax.primitives.sizes import show


class Builder(Protocol):
    """What a layer asks of whoever builds with it."""

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        *,
        init: Any,
        dtype: Any = None,
        trainable: bool = True,
    ) -> Any:
        """Make a parameter of the layer."""
        ...

    def apply(self, function: Callable, /, *args, **params) -> Any:
        """Apply an operation."""
        ...

    def update(self, parameter: Any, value: Any) -> None:
        """Say what a parameter that is not trained becomes after a step."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """A layer in the table.

    **Arguments:**

    - `name`: unique among layers.
    - `function`: `(builder, *operands, **options)`.
    - `samples`: operands' types and options to try it with.
    """

    name: str
    function: Callable
    samples: tuple[tuple[str, Mapping[str, Any]], ...]

    def __post_init__(self):
        object.__setattr__(self, "__doc__", f"{self.function.__doc__}\n\n{self.usage}")

    def __repr__(self) -> str:
        return f"<layer {self.usage}>"

    @property
    def usage(self) -> str:
        """How it is called, without the builder."""
        found = list(inspect.signature(self.function).parameters.values())[1:]
        words = [
            p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in found
        ]
        return f"{self.name}({', '.join(words)})"


_LAYERS: dict[str, Layer] = {}


def layer(*samples: tuple[str, Mapping[str, Any]]) -> Callable[[Callable], Callable]:
    """Add the decorated function to the table of layers, under its own name."""

    def add(function: Callable) -> Callable:
        name = function.__name__
        if name in _LAYERS:
            raise DeclarationError(f"layer {name!r} is declared twice")
        _LAYERS[name] = Layer(name, function, samples)
        return function

    return add


def layers() -> Mapping[str, Layer]:
    """Return the table: a layer for each name.

    >>> from tilejax.ops.layers import layers
    >>> "dense" in layers()
    True
    """
    return dict(_LAYERS)


def positive(name: str, what: str, value: Any) -> int:
    """Return a positive integer, or raise `ParameterError`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"{name}: {what}={value!r}; give a positive integer")
    return value


def fixed(name: str, x: Any, axis: int, of: str) -> int:
    """Return a size that parameters depend on, which must be a number."""
    if not x.shape:
        raise ShapeError(f"{name}: x is {show(x)}, a single number; it needs {of}")
    size = x.shape[axis]
    if not isinstance(size, int):
        raise ShapeError(
            f"{name}: x is {show(x)}; its {of}, {size}, must be a number, since the "
            "shapes of parameters depend on it"
        )
    return size


def add_activation(build: Builder, activation: str | Operation | None, y: Any) -> Any:
    """Apply an activation by its name or its record; None for none."""
    if activation is None:
        return y
    if isinstance(activation, str):
        known = {n: o for n, o in operations().items() if o.family == "activations"}
        known["tanh"] = operations()["tanh"]
        if activation not in known:
            raise ParameterError(
                f"activation={activation!r} is unknown; there are {', '.join(known)}, "
                "or a function"
            )
        activation = known[activation]
    return build.apply(activation, y)
