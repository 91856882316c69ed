"""What is done to a product's elements before anything else is computed."""

from collections.abc import Callable

from tilejax.lowering.cpu.access import Place, View, load, store
from tilejax.lowering.cpu.dot.operand import lanes_mask
from tilejax.lowering.cpu.dot.packed import runs
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import Elt

Finish = Callable[[Nest, Elt, Place, Place, str | None], Elt | None]
"""Maps a vector of the product to what is stored instead; None stores nothing.

It gets the nest, the vector, the row, the columns, and the mask of those that exist.
"""


def emit_finish(
    f: Function,
    finish: Finish,
    out: View,
    row: Index = 0,
    rows: int | None = None,
    column: Index = 0,
    width: int | None = None,
) -> None:
    """Emit the finishing of some rows and columns of a product, by default of all."""
    lanes = f.module.host.lanes
    rows = out.shape[0] if rows is None else rows
    width = out.shape[1] if width is None else width
    for count, there, first in runs(width, lanes):
        tail = lanes_mask(lanes, there)
        mask = Elt(tail, "bool", True) if tail else None
        n = Nest(f, [rows, count])
        r = n.add_index(n.index[0] if rows > 1 else 0, row)
        vector = n.add_index(n.index[1] if count > 1 else 0, first)
        places = (r, False), (n.add_index(n.mul_index(vector, lanes), column), True)
        e = finish(n, load(n, out, places, mask), *places, tail)
        if e is not None:
            store(n, out, places, e, mask)
        n.flush()
