"""Rules of the operations that read and change memory in one.

Where grid steps run at the same time these are the CPU's own atomic instructions, or
loops around its compare-and-exchange; else they are plain reads and writes. Elements
are taken one after the other, so that two of a tile may meet in one place.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import Place, View, load, store
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.memory import access
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.picked import Picked
from tilejax.lowering.cpu.tiles import Load, Scalar, Tile
from tilejax.lowering.cpu.types import Elt, dtype_name, is_float, is_unsigned, itemsize
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}

_COMBINED = {
    **{"add": "add", "fadd": "add", "max": "max", "min": "min"},
    **{"and": "and", "or": "or", "xor": "xor"},
}
"""The element-wise operation of each kind that is not an exchange."""

_EXCHANGES = ("xchg", "exch")

_INSTRUCTIONS = {"add": "add", "and": "and", "or": "or", "xor": "xor"}
"""Instructions of `atomicrmw` on integers; `max` and `min` depend on the sign."""


def _atomic(e: "Emitter", op: Op) -> Sequence[Tile]:
    name = op.params["op"]
    if name not in _COMBINED and name not in _EXCHANGES:
        raise e.refuse(f"an atomic {name}")
    target = access(e, e.view(op.inputs[0]), op.params["index"], op.inputs[2], None)
    value = e.without_dots(e.tile(op.inputs[1]))
    (out,) = op.outputs
    old = e.arena.tile(out.shape, dtype_name(out.dtype))
    if e.is_shared:
        _one_by_one(e, target, value, name, old)
    else:
        e.each(out.shape, None, _plainly(target, value, name, old))
    return [Load(old) if out.shape else e.number(Load(old))]


def _plainly(target: Load | Picked, value: Tile, name: str, old: View) -> Callable:
    def one(n: Nest, places: tuple[Place, ...], tail: str | None) -> None:
        update = value.at(n, places, tail)
        if isinstance(target, Picked):
            before = target.read(n, places, tail)
            target.put(n, places, _combined(n, name, before, update), tail)
        else:
            mask = target.mask and target.mask.at(n, places, tail)
            before = load(n, target.view, places, mask)
            store(n, target.view, places, _combined(n, name, before, update), mask)
        store(n, old, places, before)

    return one


def _combined(n: Nest, name: str, before: Elt, update: Elt) -> Elt:
    if name in _EXCHANGES:
        return update
    return OPS[_COMBINED[name]](n, [before, update], before.dtype)


def _one_by_one(e: "Emitter", target, value: Tile, name: str, old: View) -> None:
    """Loop over the elements; skip those that a mask, or the array's end, excludes."""
    if 0 in old.shape:
        return
    with ExitStack() as stack:
        places: list[Place] = [(0, False)] * len(old.shape)
        for d, size in enumerate(old.shape):
            if size != 1:
                places[d] = (stack.enter_context(e.function.loop(size)), False)
        n = Nest(e.function)
        if isinstance(target, Picked):
            address, mask = target.address(n, places)
        else:
            view = target.view
            address = view.address(n, view.offset(n, places))
            mask = n.both(
                target.mask and target.mask.at(n, places), view.inside(n, places)
            )
        update = value.at(n, places)
        n.flush()
        with _only_if(e, mask):
            before = _change(e, address, old.dtype, name, update)
            e.straight(lambda n: _store_bits(n, old, places, before))


class _only_if:
    """What is emitted inside of the `with` is done where a mask is true."""

    def __init__(self, e: "Emitter", mask: Elt | None):
        self.e, self.mask = e, mask

    def __enter__(self) -> None:
        f = self.e.function
        if self.mask is not None:
            inside, self.end = f.label(), f.label()
            f.line(f"br i1 {self.mask.text}, label %{inside}, label %{self.end}")
            f.line(f"{inside}:")

    def __exit__(self, *_) -> None:
        if self.mask is not None:
            self.e.function.place(self.end)


def _bits_type(dtype: str) -> str:
    return f"i{8 * itemsize(dtype)}"


def _to_bits(n: Nest, e: Elt) -> str:
    """The integer that an element is in memory."""
    ty = _bits_type(e.dtype)
    if e.dtype == "bool":
        return n.cast("zext", e, "uint8").text
    if e.type == ty:
        return e.text
    return n.emit(f"bitcast {e.type} {e.text} to {ty}", e.text)


def _from_bits(n: Nest, text: str, dtype: str) -> Elt:
    if dtype == "bool":
        return n.compare("ne", Elt(text, "uint8"), Elt("0", "uint8"))
    e = Elt(text, dtype)
    ty = _bits_type(dtype)
    if e.type == ty:
        return e
    return Elt(n.emit(f"bitcast {ty} {text} to {e.type}", text), dtype)


def _store_bits(n: Nest, view: View, places: Sequence[Place], text: str) -> None:
    bits = f"uint{8 * itemsize(view.dtype)}"
    store(n, replace(view, dtype=bits), places, Elt(text, bits))


def _change(e: "Emitter", address: str, dtype: str, name: str, update: Elt) -> str:
    """Combine memory with an element; return the bits that were there."""
    instruction = _instruction(name, dtype)
    if instruction is None:
        return _exchange_loop(e, address, dtype, name, update)
    f, ty = e.function, _bits_type(dtype)
    bits = e.straight(lambda n: _to_bits(n, update))
    before = f.name()
    f.line(f"{before} = atomicrmw {instruction} ptr {address}, {ty} {bits} acq_rel")
    return before


def _instruction(name: str, dtype: str) -> str | None:
    if name in _EXCHANGES:
        return "xchg"
    if is_float(dtype):
        return None
    if name in ("max", "min"):
        return f"u{name}" if is_unsigned(dtype) else name
    return _INSTRUCTIONS.get(name)


def _exchange_loop(e: "Emitter", address: str, dtype: str, name: str, update) -> str:
    """Compute anew until nobody has changed the memory in between."""
    f, ty = e.function, _bits_type(dtype)
    align = itemsize(dtype)
    seen, first = f.alloca(ty), f.name()
    f.line(f"{first} = load atomic {ty}, ptr {address} monotonic, align {align}")
    f.line(f"store {ty} {first}, ptr {seen}")
    again, end = f.label(), f.label()
    f.place(again)

    def emit(n: Nest) -> tuple[str, str]:
        before = n.define(f"load {ty}, ptr {seen}")
        after = _combined(n, name, _from_bits(n, before, dtype), update)
        return before, _to_bits(n, after)

    before, after = e.straight(emit)
    pair, now, done = f.name(), f.name(), f.name()
    f.line(
        f"{pair} = cmpxchg ptr {address}, {ty} {before}, {ty} {after} acq_rel monotonic"
    )
    f.line(f"{now} = extractvalue {{{ty}, i1}} {pair}, 0")
    f.line(f"{done} = extractvalue {{{ty}, i1}} {pair}, 1")
    f.line(f"store {ty} {now}, ptr {seen}")
    f.line(f"br i1 {done}, label %{end}, label %{again}")
    f.line(f"{end}:")
    return before


def _compare_exchange(e: "Emitter", op: Op) -> Sequence[Tile]:
    view = e.view(op.inputs[0])
    expected, value = (e.scalar(x) for x in op.inputs[1:3])
    places = [(0, False)] * len(view.shape)

    def prepare(n: Nest) -> tuple[str, str, str]:
        address = view.address(n, view.offset(n, places))
        return address, _to_bits(n, expected), _to_bits(n, value)

    address, old, new = e.straight(prepare)
    f, ty = e.function, _bits_type(view.dtype)
    pair, found = f.name(), f.name()
    f.line(f"{pair} = cmpxchg ptr {address}, {ty} {old}, {ty} {new} acq_rel acquire")
    f.line(f"{found} = extractvalue {{{ty}, i1}} {pair}, 0")
    return [Scalar(e.straight(lambda n: _from_bits(n, found, view.dtype)))]


RULES.update(atomic=_atomic, compare_exchange=_compare_exchange)
