"""Reading and writing tiles in memory, a vector of neighbouring elements at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import (
    SUFFIX,
    TYPES,
    Elt,
    itemsize,
    memory_type,
)

Place = tuple[Index, bool]
"""An index along a dimension, and whether the lanes run along it."""


@dataclass(frozen=True)
class View:
    """A tile in memory.

    **Arguments:**

    - `pointer`: the name of its first element's address.
    - `strides`: in elements.
    - `storage`: which memory it is part of, for deciding what a write changes.
    - `limits`: along each dimension the first index that is outside of the array, where
      a block may pass the array's end; None where none can be outside.
    - `padded`: whether a vector that starts inside a row may be read and written whole.
    - `streamed`: whether whole vectors are written past the caches; each must then be
      aligned to its own size.
    """

    pointer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: int
    limits: tuple[Index | None, ...]
    padded: bool = False
    streamed: bool = False

    @property
    def is_ragged(self) -> bool:
        """Whether some of it may lie outside of its array."""
        return any(limit is not None for limit in self.limits)

    def is_same_memory(self, other: "View") -> bool:
        """Tell whether an element of one is the same element of the other."""
        return (self.pointer, self.shape, self.strides, self.storage) == (
            other.pointer,
            other.shape,
            other.strides,
            other.storage,
        )

    def offset(self, n: Nest, places: Sequence[Place]) -> Index:
        """Return how many elements lie before the (first) element at the places."""
        total: Index = 0
        for (index, _), stride in zip(places, self.strides, strict=True):
            total = n.add_index(total, n.mul_index(index, stride))
        return total

    def address(self, n: Nest, offset: Index) -> str:
        """Return the address of an element by its offset."""
        if offset == 0:
            return self.pointer
        ty = memory_type(self.dtype)
        right = f"getelementptr {ty}, ptr {self.pointer}, i64 {offset}"
        return n.emit(right, self.pointer, offset)

    def inside(self, n: Nest, places: Sequence[Place]) -> Elt | None:
        """Return the mask of what lies inside of the array; None if all does."""
        mask = None
        for (index, laned), limit in zip(places, self.limits, strict=True):
            if limit is None:
                continue
            at = Elt(str(index), "int64")
            if laned:
                at = Elt("", "int64", True, base=str(index))
            here = n.compare("slt", at, Elt(str(limit), "int64"))
            mask = n.both(mask, here)
        return mask

    def lane_stride(self, places: Sequence[Place]) -> int:
        """Return the elements from one lane to the next; 0 for a single element."""
        laned = zip(places, self.strides, strict=True)
        return sum(stride for (_, lane), stride in laned if lane)


def narrowed(view: View, **changes) -> View:
    """Return a view of part of the same memory."""
    return replace(view, **changes)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array in row-major order."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def load(
    n: Nest,
    view: View,
    places: Sequence[Place],
    mask: Elt | None = None,
    other: Elt | None = None,
) -> Elt:
    """Read elements; `other` or zeros where the mask or the array's end forbids it."""
    laned = any(lane for _, lane in places)
    mask = n.both(mask, view.inside(n, places))
    address = view.address(n, view.offset(n, places))
    stride = view.lane_stride(places)
    if not laned or (stride == 0 and (mask is None or not mask.vector)):
        return _load_one(n, view.dtype, address, mask, other)
    if stride == 1:
        return _load_row(n, view.dtype, address, mask, other)
    return gather(n, view.dtype, _spread(n, view.dtype, address, stride), mask, other)


def _load_one(n, dtype: str, address: str, mask, other) -> Elt:
    """A masked load must not touch the memory: it reads a zero elsewhere instead."""
    ty = memory_type(dtype)
    if mask is not None:
        zeros = n.function.module.zeros()
        right = f"select i1 {mask.text}, ptr {address}, ptr {zeros}"
        address = n.emit(right, mask.text, address)
    right = f"load {ty}, ptr {address}, align {itemsize(dtype)}"
    found = _from_memory(n, n.emit(right, address), dtype, False)
    if mask is None or other is None:
        return found
    return n.select(mask, found, other)


def _load_row(n, dtype: str, address: str, mask, other) -> Elt:
    ty, align = memory_type(dtype), itemsize(dtype)
    whole = f"<{n.lanes} x {ty}>"
    if mask is None:
        right = f"load {whole}, ptr {address}, align {align}"
        return _from_memory(n, n.emit(right, address), dtype, True)
    name = f"@llvm.masked.load.v{n.lanes}{SUFFIX.get(ty, ty)}.p0"
    n.function.module.declare(
        f"declare {whole} {name}(ptr, i32, <{n.lanes} x i1>, {whole})"
    )
    bits, rest = n.vector(mask), _filling(n, dtype, other)
    right = (
        f"call {whole} {name}(ptr {address}, i32 {align}, <{n.lanes} x i1> {bits}, "
        f"{whole} {rest})"
    )
    return _from_memory(n, n.emit(right, address, bits, rest), dtype, True)


def gather(n: Nest, dtype: str, addresses: str, mask=None, other=None) -> Elt:
    """Read an element from each of a vector of addresses."""
    ty, align = memory_type(dtype), itemsize(dtype)
    whole = f"<{n.lanes} x {ty}>"
    name = f"@llvm.masked.gather.v{n.lanes}{SUFFIX.get(ty, ty)}.v{n.lanes}p0"
    n.function.module.declare(
        f"declare {whole} {name}(<{n.lanes} x ptr>, i32, <{n.lanes} x i1>, {whole})"
    )
    bits = "splat (i1 true)" if mask is None else n.vector(mask)
    rest = _filling(n, dtype, other)
    right = (
        f"call {whole} {name}(<{n.lanes} x ptr> {addresses}, i32 {align}, "
        f"<{n.lanes} x i1> {bits}, {whole} {rest})"
    )
    return _from_memory(n, n.emit(right, addresses, bits, rest), dtype, True)


def _filling(n: Nest, dtype: str, other: Elt | None) -> str:
    if other is None:
        return "zeroinitializer"
    return n.vector(_to_memory(n, other))


def _from_memory(n: Nest, text: str, dtype: str, vector: bool) -> Elt:
    if dtype != "bool":
        return Elt(text, dtype, vector)
    return n.compare("ne", Elt(text, "uint8", vector), Elt("0", "uint8"))


def _to_memory(n: Nest, e: Elt) -> Elt:
    return n.cast("zext", e, "uint8") if e.dtype == "bool" else e


def _spread(n: Nest, dtype: str, address: str, stride: int) -> str:
    """The addresses of the lanes, `stride` elements apart."""
    steps = ", ".join(f"i64 {lane * stride}" for lane in range(n.lanes))
    ty = memory_type(dtype)
    right = f"getelementptr {ty}, ptr {address}, <{n.lanes} x i64> <{steps}>"
    return n.emit(right, address)


def store(
    n: Nest, view: View, places: Sequence[Place], e: Elt, mask: Elt | None = None
) -> None:
    """Write elements where the mask and the array's end allow it."""
    mask = n.both(mask, view.inside(n, places))
    address = view.address(n, view.offset(n, places))
    stride = view.lane_stride(places)
    if not any(lane for _, lane in places):
        _store_one(n, view.dtype, address, e, mask)
    elif stride == 1:
        _store_row(n, view, address, e, mask)
    else:
        scatter(n, view.dtype, _spread(n, view.dtype, address, stride), e, mask)


def _store_one(n, dtype: str, address: str, e: Elt, mask) -> None:
    assert not e.vector, "a vector stored in one element"
    value = _to_memory(n, e)
    if mask is not None:
        sink = n.function.alloca("i64")
        right = f"select i1 {mask.text}, ptr {address}, ptr {sink}"
        address = n.emit(right, mask.text, address, sink)
    n.do(f"store {value.type} {value.text}, ptr {address}, align {itemsize(dtype)}")


def _store_row(n, view: View, address: str, e: Elt, mask) -> None:
    ty, align = memory_type(view.dtype), itemsize(view.dtype)
    whole = f"<{n.lanes} x {ty}>"
    value = n.vector(_to_memory(n, e))
    if mask is None and view.streamed:
        if ty in ("half", "bfloat"):
            whole, value = _as_integers(n, ty, value)
        past = n.function.module.past_caches()
        n.do(f"store {whole} {value}, ptr {address}, align {n.lanes * align}, {past}")
        return
    if mask is None:
        n.do(f"store {whole} {value}, ptr {address}, align {align}")
        return
    name = f"@llvm.masked.store.v{n.lanes}{SUFFIX.get(ty, ty)}.p0"
    n.function.module.declare(
        f"declare void {name}({whole}, ptr, i32, <{n.lanes} x i1>)"
    )
    n.do(
        f"call void {name}({whole} {value}, ptr {address}, i32 {align}, "
        f"<{n.lanes} x i1> {n.vector(mask)})"
    )


def _as_integers(n: Nest, ty: str, value: str) -> tuple[str, str]:
    """The type and bits of 16-bit floats, which LLVM cannot write past the caches.

    It would undo a mere cast, so they are combined with zeros that it does not know.
    """
    whole = f"<{n.lanes} x i16>"
    zeros = n.function.unknown_zeros(whole)
    bits = n.emit(f"bitcast <{n.lanes} x {ty}> {value} to {whole}", value)
    return whole, n.emit(f"or {whole} {bits}, {zeros}", bits)


def scatter(n: Nest, dtype: str, addresses: str, e: Elt, mask: Elt | None) -> None:
    """Write an element to each of a vector of addresses, lane by lane in order."""
    ty, align = memory_type(dtype), itemsize(dtype)
    whole = f"<{n.lanes} x {ty}>"
    name = f"@llvm.masked.scatter.v{n.lanes}{SUFFIX.get(ty, ty)}.v{n.lanes}p0"
    n.function.module.declare(
        f"declare void {name}({whole}, <{n.lanes} x ptr>, i32, <{n.lanes} x i1>)"
    )
    bits = "splat (i1 true)" if mask is None else n.vector(mask)
    n.do(
        f"call void {name}({whole} {n.vector(_to_memory(n, e))}, "
        f"<{n.lanes} x ptr> {addresses}, i32 {align}, <{n.lanes} x i1> {bits})"
    )


def element_addresses(n: Nest, view: View, base: Index, offsets: Elt) -> str:
    """The addresses of a vector of i64 offsets from an element of a view."""
    address = view.address(n, base)
    vector = n.vector(offsets)
    ty = memory_type(view.dtype)
    right = f"getelementptr {ty}, ptr {address}, <{n.lanes} x i64> {vector}"
    return n.emit(right, address, vector)


def register_type(view: View) -> str:
    """Return the type of one element in a register."""
    return TYPES[view.dtype]
