"""How JAX calls a function, its arguments and its lines in texts and errors."""

import inspect
import os
import types
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

from jax._src import api_util, source_info_util, traceback_util
from jax._src.util import fun_name as name_of

# Frames in these folders are left out of tracebacks and of the lines that programs
# remember, as JAX leaves out its own: what is in the others may be a user's model.
_MACHINERY = (
    "_jax",
    "front",
    "ir",
    "lowering",
    "ops",
    "options.py",
    "passes",
    "primitives",
    "targets",
)


def hide_frames(package: Path) -> None:
    """Leave the machinery of the package out of tracebacks and of recorded lines.

    **Arguments:**

    - `package`: The folder of the package, as it is imported.
    """
    for name in _MACHINERY:
        path = str(package / name)
        # JAX compares the one by its letters and the other by its parts.
        is_file = name.endswith(".py")
        source_info_util.register_exclusion(path if is_file else path + os.sep)
        traceback_util.register_exclusion(path)


def boundary(method: Callable) -> Callable:
    """Let a method that the user calls leave out its own frame too."""
    return traceback_util.api_boundary(method)


def check_callable(fun: Any) -> None:
    """Raise the `TypeError` of `jax.jit` for what it would not take as a function."""
    api_util.check_callable(fun)


def like(made: Callable, fun: Callable, *, name: str | None = None) -> None:
    """Give `made` the name, the text and the line of `fun`, but no reference to it."""
    for each in ("__qualname__", "__module__", "__doc__"):
        if hasattr(fun, each):
            setattr(made, each, getattr(fun, each))
    made.__name__ = name or name_of(fun)
    made.__wrapped__ = _stand_in(fun, made.__name__)  # pyright: ignore


def _stand_in(fun: Callable, name: str) -> Callable:
    """Return a function that JAX finds the line of `fun` at; it is never called."""
    fun = inspect.unwrap(fun)
    while isinstance(fun, partial):
        fun = inspect.unwrap(fun.func)
    code = getattr(fun, "__code__", None)
    if not isinstance(code, types.CodeType):
        return _Nowhere()
    cells = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, {}, name, None, cells)


class _Nowhere:
    """Stand for a callable that has no line."""

    def __call__(self, *args, **kwargs):
        """Take anything, for JAX to see."""

    def __str__(self) -> str:
        return "<unknown>"


def name_arguments(
    made: Callable, fun: Callable, args: tuple, kwargs: dict, keep: Sequence[bool]
) -> None:
    """Let errors speak of the arguments of `fun` where they mean those of `made`.

    **Arguments:**

    - `made`: A function of some of the leaves of `(args, kwargs)`.
    - `keep`: For each leaf, whether `made` takes it.
    """
    known = api_util.debug_info("jit", fun, args, kwargs)
    names = known.arg_names
    if names is not None:
        is_known = len(names) == len(keep)
        names = tuple(compress(names, keep)) if is_known else None
    made.__fun_debug_info__ = known._replace(arg_names=names)  # pyright: ignore
