"""A compiled graph: called with inputs, it holds or takes parameters."""

from typing import Any

from tilejax.errors import ArgumentError, ParameterError
from tilejax.front.stages import Lowered


class CompiledGraph:
    """A graph compiled by `GraphBuilder.compile`.

    **Arguments:**

    - `graph`: what was compiled.
    - `function`: what `tilejax.jit` made of it.
    - `has_params`: whether the function's first argument is a tree of parameters.
    - `params`: those that it holds; may be set anew, after training for one.
    """

    def __init__(self, graph: Any, function: Any, has_params: bool, params: Any):
        self.graph, self.function = graph, function
        self._has_params = has_params
        self.params = params

    def __call__(self, *inputs, params: Any = None, **by_name) -> Any:
        """Run it.

        **Arguments:**

        - `inputs`: arrays in the order of the placeholders, or by their names.
        - `params`: instead of those that it holds.

        **Raises:** `ParameterError` without parameters, `ArgumentError`, `ShapeError`
        and `DTypeError` for inputs that are not what the placeholders say.
        """
        return self.function(*self._arguments(inputs, params, by_name))

    def lower(self, *inputs, params: Any = None, **by_name) -> Lowered:
        """Lower for inputs such as these; see `tilejax.jit`."""
        return self.function.lower(*self._arguments(inputs, params, by_name))

    def _arguments(self, inputs: tuple, params: Any, by_name: dict) -> tuple:
        given = inputs
        if self._has_params:
            params = self.params if params is None else params
            if params is None:
                raise ParameterError(
                    f"{self.graph.name} holds no parameters; give params= to this call "
                    "or to compile (graph.init makes them), or set compiled.params"
                )
            given = (params, *inputs)
        elif params is not None:
            raise ParameterError(f"{self.graph.name} has no parameters to take")
        try:
            bound = self.graph.signature().bind(*given, **by_name)
        except TypeError as error:
            names = list(self.graph.signature().parameters)
            raise ArgumentError(
                f"{self.graph.name}: {error}; its inputs are "
                f"({', '.join(n for n in names if n != 'params')})"
            ) from None
        return bound.args

    def __repr__(self) -> str:
        held = "with" if self.params is not None else "without"
        return f"<tilejax graph {self.graph.name}, compiled, {held} parameters>"
