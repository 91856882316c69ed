"""Settings for everything traced inside a `with` block, part of JAX's cache keys."""

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from tilejax._jax.primitives import user_context
from tilejax.errors import ParameterError

_KERNELS = ("auto", "reference")
_USE = {
    "target": "the name of a target, or None",
    "kernels": f"one of {', '.join(_KERNELS)}",
    "fast_math": "True or False",
}


@dataclass(frozen=True)
class Options:
    """The settings in force.

    **Arguments:**

    - `target`: the name of the target to choose kernels for; None for the device that
      the program is lowered for.
    - `kernels`: `"auto"` takes a target's kernel wherever one is legal, `"reference"`
      never takes one.
    - `fast_math`: allow rewrites that change IEEE results.
    """

    target: str | None = None
    kernels: str = "auto"
    fast_math: bool = False


_CURRENT = user_context(Options())


def current() -> Options:
    """Return the settings in force here."""
    return _CURRENT.value


@contextmanager
def options(**changes):
    """Change settings for all that is traced or lowered inside.

    **Arguments:** the fields of `Options`.

    **Raises:** `ParameterError` for an unknown setting or value. An unknown target is a
    `TargetError` where something is traced.

    >>> import tilejax
    >>> with tilejax.options(fast_math=True):
    ...     current().fast_math
    True
    """
    known = [f.name for f in fields(Options)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ParameterError(f"unknown options {unknown}; known are {known}")
    wanted = {
        "target": lambda x: x is None or isinstance(x, str),
        "kernels": _KERNELS.__contains__,
        "fast_math": lambda x: isinstance(x, bool),
    }
    for name, value in changes.items():
        if not wanted[name](value):
            raise ParameterError(f"options({name}={value!r}): use {_USE[name]}")
    with _CURRENT(replace(current(), **changes)):
        yield
