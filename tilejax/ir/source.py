"""Where in the user's code an equation comes from."""

import os
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from tilejax._jax.jaxprs import Eqn
from tilejax._jax.values import frames

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What is ours but stands where a user's code would.
_DEMO = _OWN + "demo" + os.sep
_STANDARD = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")
)


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

    The innermost line outside installed packages and the standard library; if all are
    inside, the innermost that is neither JAX's nor TileJAX's. `None` where JAX kept no
    traceback.
    """
    outer = [frame for frame in frames(eqn) if not _is_ours(frame[0])]
    own = [frame for frame in outer if not _is_installed(frame[0])]
    return Source(*(own or outer)[0]) if outer else None


def _is_ours(file: str) -> bool:
    return file.startswith(_OWN) and not file.startswith(_DEMO)


@lru_cache(maxsize=4096)
def _is_installed(file: str) -> bool:
    if file.startswith(_DEMO):
        return False
    is_package = not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)
    return is_package or file.startswith((*_STANDARD, "<frozen "))
