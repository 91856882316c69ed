"""What a product reads: operands seen as [rows, k], in memory or computed."""

from typing import Protocol

from tilejax.lowering.cpu.access import Place, View, load
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


class Operand(Protocol):
    """One operand of a product, of which k is the dimension summed over."""

    @property
    def shape(self) -> tuple[int, int]:
        """Its rows and the length of k."""
        ...

    @property
    def dtype(self) -> str:
        """The dtype of its elements."""
        ...

    def view(self) -> View | None:
        """Return it as a view [rows, k] if it lies in memory, all of it."""
        ...

    def row_is_free(self) -> bool:
        """Tell whether vectors along the rows need no gather."""
        ...

    def k_is_free(self) -> bool:
        """Tell whether vectors along k need no gather."""
        ...

    def at(self, n: Nest, row: Place, k: Place, tail: str | None) -> Elt:
        """Read or compute one element, or the lanes of a vector that `tail` lists."""
        ...


class InMemory:
    """An operand that is a view [rows, k]."""

    def __init__(self, view: View):
        self._view = view
        self.shape = (view.shape[0], view.shape[1])
        self.dtype = view.dtype

    def view(self) -> View | None:
        """Return the view unless a part of it may lie outside of its array."""
        return None if self._view.is_ragged else self._view

    def row_is_free(self) -> bool:
        """Tell whether neighbouring rows are neighbours in memory, or one."""
        return self.shape[0] == 1 or self._view.strides[0] in (0, 1)

    def k_is_free(self) -> bool:
        """Tell whether neighbours along k are neighbours in memory, or one."""
        return self.shape[1] == 1 or self._view.strides[1] in (0, 1)

    def at(self, n: Nest, row: Place, k: Place, tail: str | None) -> Elt:
        """Load one element, or the lanes of a vector that `tail` lists."""
        mask = Elt(tail, "bool", True) if tail else None
        return load(n, self._view, (row, k), mask)


def lanes_mask(lanes: int, there: int) -> str | None:
    """Spell the mask of the first lanes of a vector; None for all of them.

    >>> lanes_mask(4, 3)
    '<i1 1, i1 1, i1 1, i1 0>'
    """
    if there >= lanes:
        return None
    return f"<{', '.join(f'i1 {int(lane < there)}' for lane in range(lanes))}>"
