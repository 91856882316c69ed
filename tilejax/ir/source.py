"""Where in the user's code an equation comes from."""

import os
from dataclasses import dataclass

from tilejax._jax.jaxprs import Eqn
from tilejax._jax.values import frames

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Source:
    """A line of a user's function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


def source(eqn: Eqn) -> Source | None:
    """Find the innermost line of the user's that made the equation.

    **Returns:**

    The line, or `None` where JAX kept no traceback. Frames of JAX and of TileJAX are
    passed over.
    """
    for file, line, function in frames(eqn):
        if not file.startswith(_OWN):
            return Source(file, line, function)
    return None
