"""Writing tiles to memory: one loop nest a tile, vectors along the best dimension."""

from collections.abc import Callable, Sequence

from tilejax.lowering.cpu.access import Place, View, store
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dots import kept_dot, put_dot, takes_dot
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.tiles import (
    Dot,
    Lanes,
    Load,
    Mapped,
    Tile,
    is_laned,
    tail_mask,
)

UNROLL = 4


class Writer:
    """What all rules share: a function, scratch, and stores of whole tiles."""

    def __init__(self, function: Function, arena: Arena):
        self.function, self.arena = function, arena

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.function.module.host.lanes

    def straight(self, emit: Callable, *, contract: bool = True):
        """Emit code without loops; return what `emit(nest)` returns."""
        n = Nest(self.function, contract=contract)
        found = emit(n)
        n.flush()
        return found

    def keep(self, tile: Tile, *, dense: bool = False) -> Load:
        """Write a tile to scratch, and return the read of it."""
        view = self.arena.tile(tile.shape, tile.dtype, dense=dense)
        self.put(view, tile)
        return Load(view)

    def in_memory(self, tile: Tile) -> Load:
        """Return a tile as a plain read, writing it to scratch if it is not one."""
        if isinstance(tile, Load) and tile.is_plain:
            return tile
        return self.keep(tile)

    def put(self, view: View, tile: Tile, mask: Tile | None = None) -> None:
        """Write a tile to a view; right even if it reads what it overwrites."""
        if mask is None and self._put_dot(view, tile):
            return
        tile = self.without_dots(tile)
        if not tile.reads_only_in_place(view):
            tile = self.keep(tile)
        if mask is not None and not mask.reads_only_in_place(view):
            mask = self.keep(mask)

        def body(n: Nest, places, tail: str | None) -> None:
            where = None if view.padded else tail_mask(tail, places)
            if mask is not None:
                where = n.both(where, mask.at(n, places, tail))
            store(n, view, places, tile.at(n, places, tail), where)

        self.each(view.shape, _lane(view, tile, mask), body)

    def _put_dot(self, view: View, tile: Tile) -> bool:
        """Have a dot write, or add to, the view itself if it can."""
        if isinstance(tile, Dot):
            if view.storage in tile.reads or not takes_dot(view, tile):
                return False
            put_dot(self, view, tile, accumulate=False)
            return True
        dot, rest = _sum_with_dot(tile)
        if dot is None or view.storage in dot.reads or not takes_dot(view, dot):
            return False
        if not (isinstance(rest, Load) and rest.is_plain and _is_view(rest, view)):
            self.put(view, rest)
        put_dot(self, view, dot, accumulate=True)
        return True

    def without_dots(self, tile: Tile) -> Tile:
        """Have the dot of a sum, or a dot alone, in memory."""
        if isinstance(tile, Dot):
            return kept_dot(self, tile)
        if not any(isinstance(a, Dot) for a in tile.args):
            return tile
        assert isinstance(tile, Mapped), "a dot below what is not element-wise"
        args = [self.without_dots(a) for a in tile.args]
        return Mapped(tile.rule, tile.params, args, tile.shape, tile.dtype)

    def each(
        self,
        shape: Sequence[int],
        lane: int | None,
        body: Callable[[Nest, tuple[Place, ...], str | None], None],
        *,
        unroll: int = UNROLL,
    ) -> None:
        """Loop over the elements of a shape, in vectors along one dimension.

        **Arguments:**

        - `lane`: the dimension of the vectors; None for single elements.
        - `body`: emits the code of one vector at the places; its last argument is the
          literal mask of the lanes that exist, None for all.
        """
        if 0 in shape:
            return
        if lane is None or shape[lane] == 1:
            n = Nest(self.function, [size for size in shape if size != 1])
            index = iter(n.index)
            places = [(0 if size == 1 else next(index), False) for size in shape]
            body(n, tuple(places), None)
            n.flush()
            return
        outer = [d for d in range(len(shape)) if d != lane and shape[d] != 1]
        for trips, blocks in _blocks(shape[lane], self.lanes, unroll):
            counts = [shape[d] for d in outer]
            n = Nest(self.function, counts + ([trips] if trips > 1 else []))
            places: list[Place] = [(0, False)] * len(shape)
            for d, index in zip(outer, n.index, strict=False):
                places[d] = (index, False)
            base = 0
            if trips > 1:
                base = n.mul_index(n.index[-1], len(blocks) * self.lanes)
            for start, tail in blocks:
                places[lane] = (n.add_index(base, start), True)
                body(n, tuple(places), tail)
            n.flush()


def _blocks(size: int, lanes: int, unroll: int) -> list[tuple[int, list]]:
    """Cut a row into loops over vectors: trips, and the vectors of one trip."""
    full, rest = divmod(size, lanes)
    found = []
    if full:
        together = max(u for u in range(1, unroll + 1) if full % u == 0)
        blocks = [(k * lanes, None) for k in range(together)]
        found.append((full // together, blocks))
    if rest:
        bits = ", ".join(f"i1 {int(i < rest)}" for i in range(lanes))
        found.append((1, [(full * lanes, f"<{bits}>")]))
    return found


def _is_view(tile: Load, view: View) -> bool:
    return tile.view.is_same_memory(view)


def _sum_with_dot(tile: Tile) -> tuple[Dot | None, Tile]:
    """Split `x + dot`, in either order."""
    if isinstance(tile, Mapped) and len(tile.args) == 2:
        for dot, rest in (tile.args, tile.args[::-1]):
            if isinstance(dot, Dot) and rest.shape == dot.shape:
                return dot, rest
    return None, tile


def best_lane(
    lanes: Sequence[Lanes], sizes: Sequence[int], strides: Sequence[int]
) -> int | None:
    """Pick the dimension for vectors: neighbours in memory, no gathers, long.

    **Arguments:**

    - `lanes`: how the values read can run along each dimension.
    - `strides`: of the memory written; empty for none.
    """
    scores = {}
    for d, size in enumerate(sizes):
        if size == 1 or lanes[d] == Lanes.NEVER:
            continue
        row = not strides or strides[d] == 1
        scores[d] = (2 * row + 2 * (lanes[d] == Lanes.FREE) + (size >= 4), d)
    return max(scores, key=scores.__getitem__) if scores else None


def _lane(view: View, tile: Tile, mask: Tile | None) -> int | None:
    lanes = tile.lanes
    if mask is not None:
        lanes = tuple(min(a, b) for a, b in zip(lanes, mask.lanes, strict=True))
    return best_lane(lanes, view.shape, view.strides)


__all__ = ["UNROLL", "Writer", "best_lane", "is_laned"]
