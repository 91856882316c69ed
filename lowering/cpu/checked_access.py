"""What is checked of each operation that reads or writes memory."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import View, load
from tilejax.lowering.cpu.checked import Checks
from tilejax.lowering.cpu.checked_runtime import ATOMIC
from tilejax.lowering.cpu.memory import part
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.tiles import Tile, fitted
from tilejax.lowering.cpu.types import Elt, itemsize
from tilejax.lowering.tile.build import indexed_shape
from tilejax.lowering.tile.program import Op, Span, Value

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter


def before(e: "Emitter", checks: Checks, op: Op) -> None:
    """Emit the checks of an operation that is about to be emitted."""
    check = _BEFORE.get(op.kind)
    if check is None:
        return
    made = len(checks.sites)
    check(e, checks, op)
    if len(checks.sites) > made:
        checks.leave_if_faulty()


def after(e: "Emitter", checks: Checks, op: Op) -> None:
    """Emit the checks of an operation that has just been emitted."""
    if op.kind == "allocate":
        checks.allocated(op.outputs[0])
    if op.kind == "wait":
        view = e.view(op.inputs[0])
        count = e.straight(lambda n: load(n, view, [(0, False)] * len(view.shape)))
        site = checks.site(f"wait for {checks.name_of(op.inputs[0])}")
        checks.call("semaphore", site, f"i32 {count.text}")
        checks.leave_if_faulty()


def _load(e: "Emitter", checks: Checks, op: Op) -> None:
    if op.params.get("partial"):
        return
    _access(e, checks, op, "read", op.inputs[1])


def _store(e: "Emitter", checks: Checks, op: Op) -> None:
    _access(e, checks, op, "write", op.inputs[2])


def _atomic(e: "Emitter", checks: Checks, op: Op) -> None:
    _access(e, checks, op, "write", op.inputs[2], ATOMIC)


def _compare_exchange(e: "Emitter", checks: Checks, op: Op) -> None:
    checks.touch("write", op.inputs[0], e.view(op.inputs[0]), ATOMIC)


def _transfer(e: "Emitter", checks: Checks, op: Op) -> None:
    source, target = op.inputs[:2]
    checks.touch("read", source, e.view(source))
    checks.leave_if_faulty()
    checks.touch("write", target, e.view(target))


def _view(e: "Emitter", checks: Checks, op: Op) -> None:
    if "index" in op.params:
        _spans(e, checks, op, "part of")


_BEFORE: dict[str, Callable] = {
    "load": _load,
    "store": _store,
    "atomic": _atomic,
    "compare_exchange": _compare_exchange,
    "transfer": _transfer,
    "view": _view,
}


def _access(
    e: "Emitter", checks: Checks, op: Op, how: str, mask: Value | None, flags: int = 0
) -> None:
    ref, index = op.inputs[0], op.params["index"]
    if mask is not None or any(isinstance(x, Value) and x.shape for x in index):
        _each_element(e, checks, op, how, mask, flags)
        return
    if _spans(e, checks, op, f"{how} of"):
        checks.leave_if_faulty()
    checks.touch(how, ref, part(e, e.view(ref), index), flags)


def _spans(e: "Emitter", checks: Checks, op: Op, verb: str) -> bool:
    """Check both ends of the spans of an index; whether there was anything to check."""
    ref, site = op.inputs[0], None
    for d, (entry, size) in enumerate(zip(op.params["index"], ref.shape, strict=True)):
        span = entry if isinstance(entry, Span) else Span(entry, 1)
        reach = (span.size - 1) * span.stride
        first = e.index(span.start)
        if isinstance(first, int) and 0 <= first <= first + reach < size:
            continue
        if span.size == 0:
            continue
        last = e.straight(lambda n, i=first, r=reach: n.add_index(i, r))
        if site is None:
            site = checks.site(f"{verb} {checks.name_of(ref)}")
        checks.call("span", site, f"i64 {d}, i64 {first}, i64 {last}, i64 {size}")
    return site is not None


def _each_element(
    e: "Emitter", checks: Checks, op: Op, how: str, mask: Value | None, flags: int
) -> None:
    """Check one element after the other, where the mask is true."""
    ref, index = op.inputs[0], op.params["index"]
    view, shape = e.view(ref), indexed_shape(index)
    if 0 in shape:
        return
    owners = checks.owners.get(ref.whole)
    memory = () if owners is None else owners.shape
    site = checks.site(f"{how} of {checks.name_of(ref)}", memory)
    lead = len(shape) - sum(isinstance(entry, Span) for entry in index)
    starts = [_start(e, entry) for entry in index]
    known = mask is None or e.tile(mask)
    first = None
    if owners is not None and itemsize(view.dtype) == owners.element:
        first = checks.element_offset(owners, view.pointer)

    def one(n: Nest, places, tail) -> None:
        active = "true" if known is True else known.at(n, places, None).text
        indices = _indices(n, index, starts, places, lead)
        offset: Index = first or 0
        for d, (at, size, stride) in enumerate(
            zip(indices, view.shape, view.strides, strict=True)
        ):
            active = n.define(
                f"call i1 @checked_one(ptr {checks.state}, i64 {site}, i64 {d}, "
                f"i1 {active}, i64 {at}, i64 {size})"
            )
            offset = n.add_index(offset, n.mul_index(at, stride))
        if first is None or owners is None:
            return
        active = _inside(n, view, indices, active)
        count = n.emit(f"zext i1 {active} to i64", active)
        n.do(
            f"call void @checked_{how}(ptr {checks.state}, i64 {site}, "
            f"ptr {owners.pointer}, i64 {offset}, i64 {count}, i64 0, "
            f"i64 {flags | owners.flags})"
        )

    e.each(shape, None, one)


def _start(e: "Emitter", entry) -> Tile | Index:
    if isinstance(entry, Span):
        return e.index(entry.start)
    if isinstance(entry, Value) and entry.shape:
        return e.tile(entry)
    return e.index(entry)


def _indices(n: Nest, index: Sequence, starts: Sequence, places, lead: int) -> list:
    """The index along each dimension of the element at the places."""
    found, dim = [], lead
    for entry, start in zip(index, starts, strict=True):
        if isinstance(start, Tile):
            element = start.at(n, fitted(places[:lead], start.shape), None)
            found.append(n.as_index(element))
        elif isinstance(entry, Span):
            step = n.mul_index(places[dim][0], entry.stride)
            found.append(n.add_index(start, step))
            dim += 1
        else:
            found.append(start)
    return found


def _inside(n: Nest, view: View, indices: Sequence[Index], active: str) -> str:
    """Whether an element counts that may lie past the end of its array."""
    for at, limit in zip(indices, view.limits, strict=True):
        if limit is not None:
            here = n.compare("slt", Elt(str(at), "int64"), Elt(str(limit), "int64"))
            active = n.emit(f"and i1 {active}, {here.text}", active, here.text)
    return active
