"""Settings for everything traced inside a `with` block, part of JAX's cache keys."""

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from tilejax._jax.primitives import user_context
from tilejax.errors import ParameterError

_KERNELS = ("auto", "native", "reference")
_CHECKED = ("off", "static", "full")
_USE = {
    "target": "the name of a target, or None",
    "kernels": f"one of {', '.join(_KERNELS)}",
    "fast_math": "True or False",
    "native_pallas": "True or False",
    "pallas_fallback": "one of error, interpret",
    "checked": f"one of {', '.join(_CHECKED)}",
}
_WANTED = {
    "target": lambda x: x is None or isinstance(x, str),
    "kernels": _KERNELS.__contains__,
    "fast_math": lambda x: isinstance(x, bool),
    "native_pallas": lambda x: isinstance(x, bool),
    "pallas_fallback": ("error", "interpret").__contains__,
    "checked": _CHECKED.__contains__,
}


@dataclass(frozen=True)
class Options:
    """The settings in force.

    **Arguments:**

    - `target`: the name of the target to choose kernels for; None for the device that
      the program is lowered for.
    - `kernels`: `"auto"` takes a target's kernel where one is legal and not slower than
      the reference by the model, `"native"` wherever one is legal, `"reference"` never.
    - `fast_math`: allow rewrites that change IEEE results.
    - `native_pallas`: compile Pallas kernels for the CPU outside of `tilejax.jit` too.
    - `pallas_fallback`: what becomes of a kernel that cannot be compiled for the CPU:
      `"error"`, or `"interpret"` to run it in Pallas' interpreter.
    - `checked`: what is looked for in kernels compiled for the CPU: `"static"` faults
      of their blocks, `"full"` for what they read and write as well, or `"off"`.
    """

    target: str | None = None
    kernels: str = "auto"
    fast_math: bool = False
    native_pallas: bool = False
    pallas_fallback: str = "error"
    checked: str = "off"


_CURRENT = user_context(Options())

ASKED: set[str] = set()
"""The settings that this process has ever changed: calls need not look at others."""


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
    with _CURRENT(_changed(changes)):
        yield


def set_for_all(**changes) -> None:
    """Change settings for the rest of the process, all threads included.

    **Arguments**, **Raises:** as for `options`. A `with options(...)` goes before them.
    """
    _CURRENT.set_global(_changed(changes))


def _changed(changes: dict) -> Options:
    known = [f.name for f in fields(Options)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise ParameterError(f"unknown options {unknown}; known are {known}")
    for name, value in changes.items():
        if not _WANTED[name](value):
            raise ParameterError(f"options({name}={value!r}): use {_USE[name]}")
    ASKED.update(changes)
    return replace(current(), **changes)
