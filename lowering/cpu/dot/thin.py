"""Products with only a few rows or columns: bound by memory, nothing is packed."""

from dataclasses import replace

from tilejax.lowering.cpu.access import View, load, store
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.dot.operand import InMemory, Operand, lanes_mask
from tilejax.lowering.cpu.dot.pack import Form, copy_rows
from tilejax.lowering.cpu.dot.packed import runs
from tilejax.lowering.cpu.elementwise_convert import convert
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import SUFFIX, TYPES, Elt, is_float

FEW = 4
"""As many rows or columns are few."""

SUMS = 8
"""Vectors of sums in flight, to hide the latency of adding."""


def is_few_dots(few: Operand, many: Operand) -> bool:
    """Tell whether a product is best done as dot products along k."""
    return few.shape[0] <= FEW and many.k_is_free() and many.shape[1] > 1


def emit_dots(
    f: Function,
    arena: Arena,
    few: Operand,
    many: Operand,
    out: View,
    accumulate: bool,
) -> None:
    """Emit out (+)= few @ many.T, vectors along k; `out` [few, many] of any strides.

    Each element of `many` is read once.
    """
    with arena.scope():
        few = _ready(f, arena, few, out.dtype)
        rows, k = many.shape
        at_once = max(1, min(rows, SUMS // few.shape[0]))
        for count, width, first in runs(rows, at_once):
            with f.loop(count) as index:
                n = Nest(f)
                at = n.add_index(index if count > 1 else 0, first)
                row = n.mul_index(at, at_once)
                n.flush()
                sums = _sums(f, few, many, out.dtype, row, width, k)
                _write(f, sums, out, row, accumulate)


def _ready(f: Function, arena: Arena, few: Operand, dtype: str) -> Operand:
    """The operand that is read again and again: in memory, converted."""
    view = few.view()
    if view is not None and view.dtype == dtype and few.k_is_free():
        return few
    rows, k = few.shape
    lanes = f.module.host.lanes
    tile = arena.tile((rows, -(-k // lanes) * lanes), dtype)
    form = Form(dtype, 1, 0, 0)
    copy_rows(f, form, few, tile.pointer, tile.strides[0], 0, rows, 0, k)
    return InMemory(replace(tile, shape=(rows, k)))


def _sums(f: Function, few, many, dtype: str, row: Index, width: int, k: int):
    """The sums of `width` rows of `many` with each row of `few`."""
    lanes = f.module.host.lanes
    ty = f"<{lanes} x {TYPES[dtype]}>"
    places = [(m, r) for m in range(few.shape[0]) for r in range(width)]
    ways = max(1, min(SUMS // len(places), k // lanes))
    slots = [{place: f.alloca(ty) for place in places} for _ in range(ways)]
    for way in slots:
        f.lines += [f"store {ty} zeroinitializer, ptr {slot}" for slot in way.values()]
    whole, rest = divmod(k, lanes * ways)
    spans = [(whole, lanes * ways, 0)] if whole else []
    if rest:
        spans.append((1, rest, whole * lanes * ways))
    for count, there, first in spans:
        n = Nest(f, [count])
        at_k = n.add_index(
            n.mul_index(n.index[0] if count > 1 else 0, lanes * ways), first
        )
        for way in range(-(-there // lanes)):
            place = (n.add_index(at_k, way * lanes), True)
            tail = lanes_mask(lanes, there - way * lanes)
            vectors = [
                _read(n, many, n.add_index(row, r), place, tail, dtype)
                for r in range(width)
            ]
            for m in range(few.shape[0]):
                x = _read(n, few, m, place, tail, dtype)
                for r, y in enumerate(vectors):
                    _accumulate(n, slots[way][m, r], ty, x, y)
        n.flush()
    return {p: _reduce(f, [way[p] for way in slots], dtype, ty) for p in places}


def _read(n: Nest, x: Operand, row: Index, k, tail, dtype: str) -> Elt:
    return convert(n, x.at(n, (row, False), k, tail), dtype)


def _accumulate(n: Nest, slot: str, ty: str, x: Elt, y: Elt) -> None:
    before = Elt(n.define(f"load {ty}, ptr {slot}"), x.dtype, True)
    after = multiply_add(n, x, y, before)
    n.do(f"store {ty} {after.text}, ptr {slot}")


def _reduce(f: Function, slots: list[str], dtype: str, ty: str) -> Elt:
    """Add up the lanes of all the vectors of one sum."""
    n = Nest(f)
    add = "fadd" if is_float(dtype) else "add"
    parts = [Elt(n.define(f"load {ty}, ptr {slot}"), dtype, True) for slot in slots]
    while len(parts) > 1:
        parts.append(n.binary(add, parts.pop(0), parts.pop(0)))
    one = TYPES[dtype]
    suffix = f"v{n.lanes}{SUFFIX.get(one, one)}"
    if is_float(dtype):
        name, first, flags = f"fadd.{suffix}", f"{one} -0.0, ", "reassoc "
        types = f"{one}, {ty}"
    else:
        name, first, flags, types = f"add.{suffix}", "", "", ty
    f.module.declare(f"declare {one} @llvm.vector.reduce.{name}({types})")
    call = f"call {flags}{one} @llvm.vector.reduce.{name}({first}{ty} {parts[0].text})"
    total = n.define(call)
    n.flush()
    return Elt(total, dtype)


def _write(f: Function, sums, out: View, row: Index, accumulate: bool) -> None:
    n = Nest(f)
    add = "fadd" if is_float(out.dtype) else "add"
    for (m, r), e in sums.items():
        places = ((m, False), (n.add_index(row, r), False))
        if accumulate:
            e = n.binary(add, load(n, out, places), e)
        store(n, out, places, e)
    n.flush()


def turned(view: View) -> View:
    """Return the transpose of a view."""
    return replace(
        view, shape=view.shape[::-1], strides=view.strides[::-1],
        limits=view.limits[::-1], padded=False,
    )  # fmt: skip


def move(f: Function, source: View, out: View, accumulate: bool) -> None:
    """Emit out (+)= source, element by element."""
    n = Nest(f, source.shape)
    places = tuple(
        (index if size > 1 else 0, False)
        for index, size in zip(n.index, source.shape, strict=True)
    )
    e = load(n, source, places)
    if accumulate:
        e = n.binary("fadd" if is_float(out.dtype) else "add", load(n, out, places), e)
    store(n, out, places, e)
    n.flush()


LONG = 4096
"""From so many bytes on a row of memory is read in one go."""

TOGETHER = 8
"""Stretches of memory read at the same time, few enough for a processor to foresee."""


def emit_updates(
    f: Function, arena: Arena, few: Operand, many: Operand, out: View, accumulate: bool
) -> None:
    """Emit out (+)= few @ many.T, vectors along the rows of `many`, which are long.

    For some of k at a time all columns are done, so that memory is read in order.
    """
    with arena.scope():
        few = _ready(f, arena, few, out.dtype)
        k = many.shape[1]
        together = min(k, max(2, TOGETHER // few.shape[0]))
        spans = [(1, together, 0)] if not accumulate else []
        first = 0 if accumulate else together
        whole, rest = divmod(k - first, together)
        spans += [(whole, together, first)] if whole else []
        spans += [(1, rest, k - rest)] if rest else []
        for number, (count, size, start) in enumerate(spans):
            with f.loop(count) as index:
                n = Nest(f)
                at = n.add_index(n.mul_index(index, size) if count > 1 else 0, start)
                n.flush()
                _update(f, few, many, out, at, size, accumulate or number > 0)


def _update(f: Function, few, many, out: View, k: Index, size: int, add: bool) -> None:
    """Add the products of a few of k to all columns."""
    lanes = f.module.host.lanes
    for count, width, first in runs(out.shape[1], lanes):
        tail = lanes_mask(lanes, width)
        n = Nest(f, [count])
        start = n.add_index(n.index[0] if count > 1 else 0, first)
        column = (n.mul_index(start, lanes), True)
        mask = Elt(tail, "bool", True) if tail and not out.padded else None
        sums: dict[int, Elt] = {}
        for j in range(size):
            place = (n.add_index(k, j), False)
            y = convert(n, many.at(n, column, place, tail), out.dtype)
            for m in range(out.shape[0]):
                x = few.at(n, (m, False), place, None)
                if m not in sums and add:
                    sums[m] = load(n, out, ((m, False), column), mask)
                sums[m] = (
                    multiply_add(n, x, y, sums[m]) if m in sums else _times(n, x, y)
                )
        for m, e in sums.items():
            store(n, out, ((m, False), column), e, mask)
        n.flush()


def _times(n: Nest, x: Elt, y: Elt) -> Elt:
    return n.binary("fmul" if is_float(x.dtype) else "mul", x, y)


def multiply_add(n: Nest, x: Elt, y: Elt, z: Elt) -> Elt:
    """Compute x * y + z, fused where the host can."""
    host = n.function.module.host
    if is_float(x.dtype) and (host.has("fma") or not host.is_x86):
        return n.fma(x, y, z)
    return n.binary("fadd" if is_float(x.dtype) else "add", z, _times(n, x, y))
