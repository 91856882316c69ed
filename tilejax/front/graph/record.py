"""What a graph keeps: inputs, parameters, and the calls in their order."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from tilejax._jax import symbolic
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.sizes import show

Path = tuple[str, ...]


@dataclass(frozen=True)
class Ref:
    """Stands for value `index` among the leaves of a call's arguments."""

    index: int


@dataclass(frozen=True)
class Input:
    """A placeholder."""

    name: str
    index: int
    aval: jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Parameter:
    """A parameter, how it starts, and whether it is trained."""

    path: Path
    index: int
    aval: jax.ShapeDtypeStruct
    init: Callable
    says: str
    trainable: bool

    @property
    def name(self) -> str:
        """Its path, as texts and errors show it."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Step:
    """One call: a function, the leaves of its arguments, and where results go."""

    function: Callable
    leaves: tuple
    tree: Any
    outs: tuple[int, ...]
    scope: Path
    traceback: symbolic.Traceback

    @property
    def reads(self) -> list[int]:
        """Which values it reads."""
        return [leaf.index for leaf in self.leaves if isinstance(leaf, Ref)]

    def result(self, values: Mapping[int, Any], sizes: Mapping[str, Any]) -> Any:
        """Make the call with these values, at the line where the user made it.

        Sizes with names among the arguments, as of a shape, are those of `sizes`.
        """
        leaves = [
            values[leaf.index] if isinstance(leaf, Ref) else _sized(leaf, sizes)
            for leaf in self.leaves
        ]
        args, params = jax.tree.unflatten(self.tree, leaves)
        with symbolic.standing_at(self.traceback):
            if not self.scope:
                return self.function(*args, **params)
            with jax.named_scope("/".join(self.scope)):
                return self.function(*args, **params)


def _sized(leaf: Any, sizes: Mapping[str, Any]) -> Any:
    if isinstance(leaf, slice):
        parts = (leaf.start, leaf.stop, leaf.step)
        return slice(*(_sized(part, sizes) for part in parts))
    return symbolic.size_at(leaf, sizes)


@dataclass
class Record:
    """All that has been built so far."""

    inputs: list[Input] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    updates: dict[int, int] = field(default_factory=dict)
    count: int = 0

    def new(self) -> int:
        """Return the index of a new value."""
        self.count += 1
        return self.count - 1

    def live(self, wanted: Sequence[int]) -> list[Step]:
        """Return the steps that these values depend on, in order."""
        needed, kept = set(wanted), []
        for step in reversed(self.steps):
            if needed & set(step.outs):
                kept.append(step)
                needed |= set(step.reads)
        return kept[::-1]

    def run(self, wanted: Sequence[int], params: Any, inputs: Sequence) -> list:
        """Compute some values."""
        values = dict(self.constants)
        values |= {i.index: x for i, x in zip(self.inputs, inputs, strict=True)}
        for each in self.parameters:
            x = at_path(params, each)
            values[each.index] = x if each.trainable else jax.lax.stop_gradient(x)
        sizes = {
            str(ought): size
            for each, x in zip(self.inputs, inputs, strict=True)
            for size, ought in zip(jax.numpy.shape(x), each.aval.shape, strict=True)
            if symbolic.is_symbolic(ought)
        }
        for step in self.live(wanted):
            outs = jax.tree.leaves(step.result(values, sizes))
            values.update(zip(step.outs, outs, strict=True))
        return [values[i] for i in wanted]

    def params_like(self, make: Callable[[Parameter], Any]) -> dict:
        """Return the tree of the parameters, with what `make` gives for each."""
        tree: dict = {}
        for each in self.parameters:
            inner = tree
            for name in each.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[each.path[-1]] = make(each)
        return tree


def at_path(params: Any, parameter: Parameter) -> Any:
    """Return one parameter's value, checked against what was declared."""
    found = params
    for name in parameter.path:
        if not isinstance(found, Mapping) or name not in found:
            raise ParameterError(
                f"params lack {parameter.name}, a {show(parameter.aval)}; graph.init "
                "makes the whole tree"
            )
        found = found[name]
    given = jax.typeof(found)
    if given.shape != tuple(parameter.aval.shape):
        raise ShapeError(
            f"parameter {parameter.name} is {show(given)}, but the graph declares "
            f"{show(parameter.aval)}"
        )
    return found


def check_inputs(graph: str, inputs: Sequence[Input], given: Sequence) -> None:
    """Raise unless the arguments are what the placeholders say.

    A name stands for one size in all of them.
    """
    sizes: dict[str, tuple[Any, str]] = {}
    for each, x in zip(inputs, given, strict=True):
        aval = jax.typeof(x)
        wanted = f"{each.name} must be {show(each.aval)}"
        if aval.dtype != each.aval.dtype and not aval.weak_type:
            raise DTypeError(
                f"{graph}: {each.name} is {show(aval)}, but {wanted}; convert it first"
            )
        if len(aval.shape) != len(each.aval.shape):
            raise ShapeError(f"{graph}: {each.name} is {show(aval)}, but {wanted}")
        for is_, ought in zip(aval.shape, each.aval.shape, strict=True):
            if isinstance(ought, int):
                if is_ != ought:
                    raise ShapeError(
                        f"{graph}: {each.name} is {show(aval)}, but {wanted}"
                    )
                continue
            seen, where = sizes.setdefault(str(ought), (is_, each.name))
            if seen != is_:
                raise ShapeError(
                    f"{graph}: {ought!s} is {seen} in {where}, but {is_} in "
                    f"{each.name}, {show(aval)}"
                )


def key_of(key: Any, parameter: Parameter) -> Any:
    """Derive a parameter's key from its name, so that others do not change it."""
    return jax.random.fold_in(key, zlib.crc32(parameter.name.encode()) & 0x7FFFFFFF)
