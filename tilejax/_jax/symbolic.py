"""Sizes that are not known while tracing, as `jax.export` writes them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax._src import source_info_util
from jax._src.export import shape_poly

Traceback = Any


def is_symbolic(size: Any) -> bool:
    """Say whether a size is an expression of names, and no number.

    >>> is_symbolic(3), is_symbolic(symbols(["n"])["n"] + 1)
    (False, True)
    """
    return shape_poly.is_symbolic_dim(size)


def symbols(names: Any, bounds: Mapping[str, tuple[int, int]] | None = None) -> dict:
    """Return a symbolic size, of at least 1, for each name; all of one scope.

    **Arguments:**

    - `bounds`: the least and the greatest that sizes can be, where that is known.
    """
    names = list(names)
    if not names:
        return {}
    constraints = []
    for name, (low, high) in (bounds or {}).items():
        constraints += [f"{name} >= {low}", f"{name} <= {high}"]
    scope = jax.export.SymbolicScope(constraints)
    sizes = jax.export.symbolic_shape(", ".join(names), scope=scope)
    return dict(zip(names, sizes, strict=True))


def more(known: Mapping[str, Any], names: Any) -> dict[str, Any]:
    """Return a symbolic size for each new name, of the scope of those known."""
    scope = next(iter(known.values())).scope
    names = list(names)
    sizes = jax.export.symbolic_shape(", ".join(names), scope=scope)
    return dict(zip(names, sizes, strict=True))


def size_at(size: Any, known: Mapping[str, Any]) -> Any:
    """Return what a size is where the names in it are these numbers or traced ones.

    >>> int(size_at(2 * symbols(["n"])["n"] + 1, {"n": 3}))
    7
    """
    return size._evaluate(dict(known)) if is_symbolic(size) else size


def names_in(size: Any) -> frozenset[str]:
    """Return the names that a size depends on."""
    return frozenset(size._get_vars()) if is_symbolic(size) else frozenset()


def here() -> Traceback:
    """Return the traceback of the caller, for `standing_at`."""
    return source_info_util.current().traceback


def standing_at(traceback: Traceback) -> AbstractContextManager:
    """Let what is traced inside report that it stands at a line seen before."""
    stack = source_info_util.current_name_stack()
    return source_info_util.user_context(traceback, name_stack=stack)
