"""Elements at arrays of indices, read or written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilejax.lowering.cpu.access import (
    Place,
    View,
    element_addresses,
    gather,
    load,
    scatter,
    store,
)
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.tiles import Lanes, Tile, fitted, is_laned, tail_mask
from tilejax.lowering.cpu.types import Elt, is_unsigned


@dataclass
class _Address:
    """Where elements are.

    **Arguments:**

    - `places`: in the view.
    - `offsets`: a vector of elements to add to them, if lanes lie anyhow.
    - `inside`: the mask of what lies inside of the array as far as `offsets` go.
    """

    places: list[Place]
    offsets: Elt | None = None
    inside: Elt | None = None

    def add(self, n: Nest, offsets: Elt) -> None:
        """Add a vector to the offsets."""
        old = self.offsets
        self.offsets = offsets if old is None else n.binary("add", old, offsets)


class Picked(Tile):
    """Elements of a view at arrays of indices, read or written.

    An index below zero counts from the end, as in the interpreter.

    **Arguments:**

    - `entries`: for each dimension of the view a tile of indices, or a pair of a start
      and the result's dimension that counts from it, and the stride.
    - `lead`: the shape of the arrays of indices, the first dimensions of the result.
    """

    def __init__(self, view: View, entries, lead, shape, mask=None, other=None):
        tiles = [e for e in entries if isinstance(e, Tile)]
        extra = [x for x in (mask, other) if x is not None]
        super().__init__(shape, view.dtype, [*tiles, *extra])
        self.source, self.entries, self.lead = view, tuple(entries), tuple(lead)
        self.mask, self.other = mask, other
        self.reads |= {view.storage}
        columns = zip(self.index_lanes(), *[x.lanes for x in extra], strict=True)
        self.lanes = tuple(min(column) for column in columns)

    def index_lanes(self) -> tuple[Lanes, ...]:
        """Return how vectors can run along each dimension, as far as indices go."""
        lanes = [Lanes.GATHERED] * len(self.shape)
        for entry in self.entries:
            if not isinstance(entry, Tile):
                continue
            first = len(self.lead) - len(entry.shape)
            for d, size in enumerate(entry.shape):
                if size != 1:
                    lanes[first + d] = min(lanes[first + d], entry.lanes[d])
        return tuple(lanes)

    def reads_of_indices(self) -> frozenset[int]:
        """Return the storages that finding the places reads."""
        tiles = [e for e in self.entries if isinstance(e, Tile)]
        tiles += [self.mask] if self.mask else []
        return frozenset().union(*(t.reads for t in tiles))

    def with_kept(self, keep: Callable[[Tile], Tile]) -> "Picked":
        """Return the same places, found from copies of the indices and the mask."""
        entries = [keep(e) if isinstance(e, Tile) else e for e in self.entries]
        mask = self.mask and keep(self.mask)
        return Picked(self.source, entries, self.lead, self.shape, mask, self.other)

    def _address(self, n: Nest, places, tail) -> _Address:
        view, found = self.source, _Address([])
        for d, entry in enumerate(self.entries):
            if isinstance(entry, Tile):
                at = fitted(places[: len(self.lead)], entry.shape)
                self._at_index(n, found, d, entry.at(n, at, tail))
                continue
            start, dim, step = entry
            index, lane = places[dim]
            if lane and step != 1:
                ramp = Elt("", "int64", True, base="0")
                steps = Elt(str(step * view.strides[d]), "int64")
                found.add(n, n.binary("mul", ramp, steps))
                lane = False
            first = n.add_index(start, n.mul_index(index, step))
            found.places.append((first, lane))
        return found

    def _at_index(self, n: Nest, found: _Address, d: int, e: Elt) -> None:
        """Add the place along a dimension at an element, or vector, of indices."""
        view, size = self.source, self.source.shape[d]
        if not e.vector:
            index = n.as_index(e)
            index = index if is_unsigned(e.dtype) else _from_end(n, index, size)
            found.places.append((index, False))
            return
        if e.base is not None:
            found.places.append((n.as_index(Elt(e.base, e.dtype)), True))
            return
        how = "zext" if is_unsigned(e.dtype) else "sext"
        wide = e if e.type == "i64" else n.cast(how, e, "int64")
        if not is_unsigned(e.dtype):
            last = n.binary("add", wide, Elt(str(size), "int64"))
            below = n.compare("slt", wide, Elt("0", "int64"))
            wide = n.select(below, last, wide)
        limit = view.limits[d]
        if limit is not None:
            here = n.compare("slt", wide, Elt(str(limit), "int64"))
            found.inside = n.both(found.inside, here)
        found.add(n, n.binary("mul", wide, Elt(str(view.strides[d]), "int64")))
        found.places.append((0, False))

    def _masks(self, n: Nest, places, tail) -> tuple[Elt | None, Elt | None]:
        mask, other = tail_mask(tail, places), None
        if self.mask is not None:
            mask = n.both(mask, self.mask.at(n, places, tail))
            other = self.other and self.other.at(n, places, tail)
        return mask, other

    def _vector(self, n: Nest, found: _Address, offsets: Elt) -> str:
        """The addresses of a vector of elements."""
        for (_, lane), stride in zip(found.places, self.source.strides, strict=True):
            if lane:
                ramp = Elt("", "int64", True, base="0")
                step = n.binary("mul", ramp, Elt(str(stride), "int64"))
                offsets = n.binary("add", offsets, step)
        base = self.source.offset(n, found.places)
        return element_addresses(n, self.source, base, offsets)

    def _compute(self, n: Nest, places: Sequence[Place], tail: str | None) -> Elt:
        found = self._address(n, places, tail)
        mask, other = self._masks(n, places, tail)
        if found.offsets is None:
            return load(n, self.source, found.places, mask, other)
        mask = n.both(mask, found.inside)
        mask = n.both(mask, self.source.inside(n, found.places))
        addresses = self._vector(n, found, found.offsets)
        return gather(n, self.dtype, addresses, mask, other)

    def address(self, n: Nest, places: Sequence[Place]) -> tuple[str, Elt | None]:
        """Return the address of one element, and the mask of whether it is there."""
        found = self._address(n, places, None)
        mask, _ = self._masks(n, places, None)
        view = self.source
        mask = n.both(mask, view.inside(n, found.places))
        return view.address(n, view.offset(n, found.places)), mask

    def read(self, n: Nest, places: Sequence[Place], tail: str | None) -> Elt:
        """Emit the read of an element, where others may be written in between."""
        return self._compute(n, places, tail)

    def put(self, n: Nest, places: Sequence[Place], e: Elt, tail: str | None) -> None:
        """Emit the write of an element, or of a vector of them."""
        found = self._address(n, places, tail)
        mask, _ = self._masks(n, places, tail)
        if found.offsets is None and is_laned(places) and not is_laned(found.places):
            # all lanes go to one place; the last one stays
            found.offsets = Elt("0", "int64")
        if found.offsets is None:
            store(n, self.source, found.places, e, mask)
            return
        mask = n.both(mask, found.inside)
        mask = n.both(mask, self.source.inside(n, found.places))
        addresses = self._vector(n, found, found.offsets)
        scatter(n, self.dtype, addresses, e, mask)

    def _only_in_place(self, view: View) -> bool:
        return False


def _from_end(n: Nest, index: Index, size: int) -> Index:
    if isinstance(index, int):
        return index + size if index < 0 else index
    last = n.add_index(index, size)
    below = n.emit(f"icmp slt i64 {index}, 0", index)
    return n.emit(f"select i1 {below}, i64 {last}, i64 {index}", below, last, index)
