"""Calling what was compiled, and saying which argument is wrong where one is."""

import functools
from collections.abc import Callable
from typing import Any

from jax.errors import JaxRuntimeError

from tilejax._jax import naming
from tilejax.front.faults import awaited, fault_of, is_checked
from tilejax.options import ASKED


class Calling:
    """A compiled function to be called; its errors name the arguments at fault.

    `_mistake(error, args, kwargs)` gives what to raise instead of `error`, or None.
    """

    _compiled: Any
    _mistake: Callable

    def __call__(self, /, *args, **kwargs):
        """Run the function, compiled for arguments such as these."""
        try:
            try:
                found = self._compiled(*args, **kwargs)
                return awaited(found) if "checked" in ASKED and is_checked() else found
            except (TypeError, ValueError, JaxRuntimeError) as error:
                own = fault_of(error) or self._mistake(error, args, kwargs)
                if own is None:
                    raise
                raise own from None
        except Exception as error:
            # Leave out this very frame, as JAX does its own; `raise` adds none again.
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raise


def naming_mistakes(method: Callable) -> Callable:
    """Let a method of a `Calling`, which takes the arguments of a call, do likewise."""

    @functools.wraps(method)
    def run(self, /, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            own = self._mistake(error, args, kwargs)
            if own is None:
                raise
            raise own from None

    return naming.boundary(run)
