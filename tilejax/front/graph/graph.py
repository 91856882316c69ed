"""`tilejax.GraphBuilder`, and what becomes of a graph."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax

from tilejax import targets
from tilejax._jax.jaxprs import Program, trace
from tilejax.errors import ArgumentError, ParameterError
from tilejax.front.graph.builder import Building
from tilejax.front.graph.compiled import CompiledGraph
from tilejax.front.graph.record import check_inputs, key_of
from tilejax.front.jit import jit
from tilejax.ir import as_text
from tilejax.passes.pipeline import Choice
from tilejax.primitives.sizes import show

# Whom `apply_<kind>_optimization` is for where the machine has none of the kind.
_USUAL = {"ascend": "ascend:910b1", "gpu": "gpu:h100", "tpu": "tpu:v5e"}


class GraphBuilder(Building):
    """Build a program by calls, each checked at once, instead of by a function.

    Every layer (`tilejax.ops.layers`) and every operation (`tilejax.ops`) is a method;
    a layer makes its parameters. What is built is the jaxpr that tracing a function of
    the same calls gives.

    **Arguments:**

    - `name`: of the program, in texts and profiles.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> graph = tilejax.GraphBuilder("classifier")
    >>> x = graph.placeholder("image", shape=("batch", 8, 8, 3))
    >>> x = graph.relu(graph.conv2d(x, filters=4, kernel_size=3, stride=2))
    >>> graph.output(graph.dense(graph.flatten(x, start=1), units=10))
    >>> params = graph.init(jax.random.key(0))
    >>> params["dense"]["kernel"].shape
    (64, 10)
    >>> graph.compile(params=params)(jnp.ones((5, 8, 8, 3))).shape
    (5, 10)
    """

    def __init__(self, name: str = "graph"):
        super().__init__(name)
        self._target: str | None = None

    def init(self, key: Any) -> dict:
        """Make all parameters: a tree of dictionaries by layer and name.

        A parameter's key is derived from its name, so that adding a layer leaves the
        others as they were.

        **Arguments:**

        - `key`: of `jax.random.key`, or a seed.
        """
        key = jax.random.key(key) if isinstance(key, int) else key
        return self._record.params_like(
            lambda each: each.init(key_of(key, each), each.aval.shape, each.aval.dtype)
        )

    def trainable(self) -> dict:
        """Say which parameters are trained: a tree of booleans, as Optax's masks."""
        return self._record.params_like(lambda each: each.trainable)

    def to_function(self, *, updates: bool = False) -> Callable:
        """Return the graph as a pure function, to be transformed as any other.

        **Arguments:**

        - `updates`: whether it returns (outputs, parameters after the call) instead,
          in which those that are not trained have moved (`update`, `batch_norm`).

        **Returns:** `f(params, *inputs)`; `f(*inputs)` where the graph has no
        parameters.

        **Raises:** `ParameterError` if the graph has no output.
        """
        if not self._outputs:
            raise ParameterError(f"{self.name} has no output; call graph.output(...)")
        has_params = bool(self._record.parameters)
        wanted = [node.index for node in self._outputs]
        labels, moved = tuple(self._labels), dict(self._record.updates)

        def run(params, inputs):
            check_inputs(self.name, self._record.inputs, inputs)
            found = self._record.run([*wanted, *moved.values()], params, inputs)
            outs, new = found[: len(wanted)], found[len(wanted) :]
            result = _packed(outs, labels)
            if not updates:
                return result
            after = dict(zip(moved, new, strict=True))
            paths = {
                each.path: after.get(each.index) for each in self._record.parameters
            }
            return result, _replaced(params, paths)

        def function(*args):
            args = self._bound(args)
            params, inputs = (args[0], args[1:]) if has_params else ({}, args)
            return run(params, inputs)

        function.__name__ = function.__qualname__ = self.name
        function.__signature__ = self.signature()  # pyright: ignore
        return function

    def signature(self) -> inspect.Signature:
        """Return the signature of `to_function()`."""
        names = ["params"] if self._record.parameters else []
        names += [each.name for each in self._record.inputs]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def _bound(self, args: Sequence) -> tuple:
        wanted = list(self.signature().parameters)
        if len(args) != len(wanted):
            raise ArgumentError(
                f"{self.name} takes ({', '.join(wanted)}), but {len(args)} arguments "
                "were given"
            )
        return tuple(args)

    def to_jaxpr(self) -> Program:
        """Return the program as it is traced, sizes with names symbolic."""
        return trace(self.to_function(), *self._types())[0]

    def _types(self) -> list:
        """The types of the arguments of the function."""
        types: list = [each.aval for each in self._record.inputs]
        if self._record.parameters:
            types.insert(0, self._record.params_like(lambda each: each.aval))
        return types

    def optimize_for(self, target: str) -> "GraphBuilder":
        """Choose kernels for a target from here on, and print what it gets.

        **Arguments:**

        - `target`: a name in `tilejax.targets`, as `"ascend:910b1"`.

        **Returns:** the graph.

        **Raises:** `TargetError` for an unknown target.
        """
        self._target = targets.get(target).name
        return self

    def apply_ascend_optimization(self) -> "GraphBuilder":
        """Choose for this machine's Ascend NPU, or else for a 910B1."""
        return self._optimize_for_kind("ascend")

    def apply_gpu_optimization(self) -> "GraphBuilder":
        """Choose for this machine's GPU, or else for an H100."""
        return self._optimize_for_kind("gpu")

    def apply_tpu_optimization(self) -> "GraphBuilder":
        """Choose for this machine's TPU, or else for a v5e."""
        return self._optimize_for_kind("tpu")

    def _optimize_for_kind(self, kind: str) -> "GraphBuilder":
        here = targets.detect()
        return self.optimize_for(here.name if here.kind == kind else _USUAL[kind])

    def compile(
        self,
        *,
        target: str | None = None,
        params: Any = None,
        key: Any = None,
        bucket: Any = "pow2",
        passes: Choice = None,
        **options: Any,
    ) -> CompiledGraph:
        """Compile the graph by `tilejax.jit`.

        **Arguments:**

        - `target`: as `tilejax.jit` takes it; by default what `optimize_for` chose.
        - `params`: those that calls use unless they give their own; or
        - `key`: of which to make them by `init`.
        - `bucket`: to what sizes with names are padded, so that few programs are
          compiled: see `tilejax.jit`; a mapping by name, or one for all. None compiles
          for each size.
        - `passes`, `options`: as `tilejax.jit` takes them.

        **Returns:** what is called with inputs, `compiled(x)`, or with parameters too,
        `compiled(x, params=params)`.

        **Raises:** `ParameterError`, `TargetError`, `PassError`.
        """
        if params is not None and key is not None:
            raise ParameterError("compile: give params or a key to make them, not both")
        if key is not None:
            params = self.init(key)
        function = self.to_function()
        if self._sizes and bucket is not None:
            named = isinstance(bucket, dict)
            options["bucket"] = bucket if named else dict.fromkeys(self._sizes, bucket)
            options["axes"] = {
                each.name: tuple(
                    str(s)
                    if not isinstance(s, int) and str(s) in options["bucket"]
                    else None
                    for s in each.aval.shape
                )
                for each in self._record.inputs
            }
        target = self._target if target is None else target
        compiled = jit(function, target=target, passes=passes, **options)
        return CompiledGraph(self, compiled, bool(self._record.parameters), params)

    def export(self, *, platforms: Sequence[str] | None = None) -> Any:
        """Lower the graph once for all sizes with names, by `jax.export`.

        **Returns:** a `jax.export.Exported`; XLA compiles it for each size that it is
        called with, since it knows no other programs.
        """
        exporting = jax.export.export(jax.jit(self.to_function()), platforms=platforms)
        return exporting(*self._types())

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        if self._target is not None:
            lines[0] += f" for {self._target}"
        for each in self._record.inputs:
            lines.append(f"  input {each.name}: {show(each.aval)}")
        for each in self._record.parameters:
            kept = "" if each.trainable else ", kept"
            lines.append(
                f"  parameter {each.name}: {show(each.aval)}, {each.says}{kept}"
            )
        if self._outputs:
            lines.append(as_text(self._shown()))
        return "\n".join(lines)

    def _shown(self) -> Program:
        """The program as traced; for a target, as the passes leave it."""
        if self._target is None:
            return self.to_jaxpr()
        tiled = jit(self.to_function(), target=self._target).tile(*self._types())
        return tiled.after

    def __repr__(self) -> str:
        return (
            f"<tilejax.GraphBuilder {self.name}: {len(self._record.inputs)} inputs, "
            f"{len(self._record.parameters)} parameters, {len(self._record.steps)} "
            f"calls, {len(self._outputs)} outputs>"
        )


def _packed(outs: list, labels: Sequence[str]) -> Any:
    if labels:
        return dict(zip(labels, outs, strict=True))
    return outs[0] if len(outs) == 1 else tuple(outs)


def _replaced(params: Any, new: dict, path: tuple = ()) -> Any:
    if not isinstance(params, dict):
        return params if new.get(path) is None else new[path]
    return {name: _replaced(x, new, (*path, name)) for name, x in params.items()}
