"""Sizes that are not known while tracing, as `jax.export` writes them."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
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


# What code may ask of sizes without its answer being taken for a choice of its own.
_LIBRARIES = tuple(
    str(Path(at).parent) + os.sep
    for at in (jax.__file__, np.__file__, str(Path(__file__).parent))
)


class _Watch(threading.local):
    is_on = False


_WATCH = _Watch()


@contextmanager
def choices_refused() -> Iterator[None]:
    """Raise where the function that is traced chooses by a size that is not known.

    JAX takes symbolic sizes for different, and for true, wherever it cannot know; an
    `if size == 6` would silently be decided.

    **Raises:** `jax.errors.InconclusiveDimensionOperation`.
    """
    _watch_sizes()
    before, _WATCH.is_on = _WATCH.is_on, True
    try:
        yield
    finally:
        _WATCH.is_on = before


@cache
def _watch_sizes() -> None:
    kind: Any = shape_poly._DimExpr
    equal = kind.__eq__

    def watched(self, other, asks: FrameType) -> bool:
        found = equal(self, other)
        if not found and _WATCH.is_on and _is_choice(asks):
            _check_apart(self, other)
        return found

    def watched_equal(self, other):
        return watched(self, other, sys._getframe(1))

    def watched_unequal(self, other):
        return not watched(self, other, sys._getframe(1))

    def watched_bool(self):
        if _WATCH.is_on and _is_choice(sys._getframe(1)):
            _check_apart(self, 0)
        return True

    kind.__eq__ = watched_equal
    kind.__ne__ = watched_unequal
    kind.__bool__ = watched_bool


def _is_choice(frame: FrameType) -> bool:
    """Whether code asks that is neither JAX's nor this package's."""
    name = frame.f_code.co_filename
    return not name.startswith(("<string>", *_LIBRARIES))


def _check_apart(a: Any, b: Any) -> None:
    is_size = isinstance(b, int | np.integer) or is_symbolic(b)
    if not is_size or getattr(b, "scope", a.scope) is not a.scope:
        return
    _WATCH.is_on = False  # the bounds are found by comparing
    try:
        is_apart = _is_known(lambda: a - b >= 1) or _is_known(lambda: a - b <= -1)
    finally:
        _WATCH.is_on = True
    if not is_apart:
        raise jax.errors.InconclusiveDimensionOperation(
            f"whether {a} is {b} is another answer for another size."
        )


def _is_known(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except jax.errors.InconclusiveDimensionOperation:
        return False
