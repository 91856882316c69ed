"""What is wrong with the arguments of a call that JAX refused, by name."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from tilejax._jax import naming
from tilejax.errors import ArgumentError, StaticArgumentError

# How JAX's errors begin. An error of the user's own function may begin so too, hence
# an argument must be found that is at fault.
_HASH = "Non-hashable static arg"
_ARRAY = "Error interpreting argument to"

Named = tuple[str, Any]


def mistake_of_jit(
    error: Exception, fun: Callable, options: dict, args: tuple, kwargs: dict
) -> ArgumentError | None:
    """Return what to raise instead of JAX's error; None if it is about something else.

    **Arguments:**

    - `error`: What a call raised.
    - `options`: Those of `jax.jit`, which say what is static.
    """
    static, traced = _parted(fun, options, args, kwargs)
    if str(error).startswith(_HASH):
        return _unhashable("tilejax.jit", fun, static)
    if str(error).startswith(_ARRAY):
        return _no_array("tilejax.jit", fun, _leaves(traced))
    return None


def mistake_of_filter_jit(
    error: Exception, fun: Callable, args: tuple, kwargs: dict
) -> ArgumentError | None:
    """Return what to raise instead of JAX's error; None if it is about something else.

    **Arguments:**

    - `error`: What a call raised.
    """
    named = [("the function itself", fun)]
    named += [(label, x) for label, _, x in _named(fun, args, kwargs)]
    leaves = list(_leaves(named))
    if str(error).startswith(_HASH):
        static = [(label, x) for label, x in leaves if not _is_array(x)]
        return _unhashable("tilejax.filter_jit", fun, static)
    if str(error).startswith(_ARRAY):
        return _no_array("tilejax.filter_jit", fun, filter(_is_named_array, leaves))
    return None


def _is_array(x) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic)


def _is_named_array(named: Named) -> bool:
    return _is_array(named[1])


def _unhashable(
    what: str, fun: Callable, static: Sequence[Named]
) -> ArgumentError | None:
    for label, x in static:
        try:
            hash(x)
        except Exception as error:
            return StaticArgumentError(
                f"{what} of {naming.name_of(fun)}: {label} is static, but {_shown(x)} "
                f"cannot be hashed ({error}); {_instead(what, x)}"
            )
    return None


def _instead(what: str, x) -> str:
    if what == "tilejax.filter_jit":
        return "give a hashable object (a tuple, a frozenset, a string) or an array"
    traced = "leave it out of static_argnums and static_argnames, to have it traced"
    return (
        traced if _is_array(x) else f"give a hashable object, as a tuple, or {traced}"
    )


def _no_array(what: str, fun: Callable, leaves) -> ArgumentError | None:
    for label, x in leaves:
        try:
            jax.typeof(x)
        except TypeError:
            return ArgumentError(
                f"{what} of {naming.name_of(fun)}: {label} is {_shown(x)}, which "
                f"cannot be traced; {_otherwise(x)}"
            )
    return None


def _otherwise(x) -> str:
    if _is_array(x):
        return "give an array of numbers or booleans, or use it outside of the function"
    return "give an array, or name the argument in static_argnums or static_argnames"


def _shown(x) -> str:
    """Describe a value in a few words."""
    if isinstance(x, np.ndarray):
        return f"a NumPy array of dtype {x.dtype} and shape {x.shape}"
    text = repr(x)
    text = text if len(text) <= 40 else f"{text[:37]}..."
    return f"{text} of type {type(x).__name__}"


def _leaves(named: Sequence[Named]) -> Iterator[Named]:
    for label, x in named:
        for path, leaf in jax.tree_util.tree_leaves_with_path(x):
            yield label + jax.tree_util.keystr(path), leaf


def _parted(
    fun: Callable, options: dict, args: tuple, kwargs: dict
) -> tuple[list[Named], list[Named]]:
    """Part the arguments into the static and the traced ones."""
    numbers = _several(options.get("static_argnums"))
    numbers = {n + len(args) if n < 0 else n for n in numbers}
    names = set(_several(options.get("static_argnames")))
    parameters = _parameters(fun)
    # As JAX does: where only numbers are given, those parameters are static by name.
    names |= {parameters[n].name for n in numbers if n < len(parameters)}
    parts: tuple[list[Named], list[Named]] = [], []
    for at, (label, name, x) in enumerate(_named(fun, args, kwargs)):
        is_static = name in names or (at < len(args) and at in numbers)
        parts[0 if is_static else 1].append((label, x))
    return parts


def _several(x) -> tuple:
    return () if x is None else (x,) if isinstance(x, int | str) else tuple(x)


def _parameters(fun: Callable) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in found if p.kind in kinds]


def _named(fun: Callable, args: tuple, kwargs: dict) -> Iterator[tuple[str, str, Any]]:
    """Give each argument with how to speak of it, and the name of its parameter."""
    parameters = _parameters(fun)
    for at, x in enumerate(args):
        name = parameters[at].name if at < len(parameters) else ""
        yield f"argument {name}" if name else f"args[{at}]", name, x
    for name, x in kwargs.items():
        yield f"argument {name}", name, x
