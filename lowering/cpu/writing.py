"""What code that writes tiles needs of the one who holds the function."""

from collections.abc import Callable
from typing import Any, Protocol

from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.tiles import Load, Tile


class Writing(Protocol):
    """A function that grows, and scratch; `write.Writer` is one."""

    @property
    def function(self) -> Function:
        """Where code goes."""
        ...

    @property
    def arena(self) -> Arena:
        """Where tiles go."""
        ...

    def straight(self, emit: Callable) -> Any:
        """Emit code without loops; return what `emit(nest)` returns."""
        ...

    def keep(self, tile: Tile, *, dense: bool = False) -> Load:
        """Write a tile to scratch, and return the read of it."""
        ...
