"""Rules of the primitives that read and write references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilejax._jax import pallas
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.build import Builder, everything, indexed_shape
from tilejax.lowering.tile.program import Ref, Value
from tilejax.lowering.tile.through import (
    Through,
    entries_of,
    inverse,
    is_viewable,
    transposed,
    users_order,
    values_in,
)

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def view_of(b: Builder, ref: Ref, found: Sequence[pallas.Transform]) -> Ref:
    """Append views for all transforms."""
    for kind, what in found:
        ref = _VIEWS[kind](b, ref, what)
    return ref


def _index_view(b: Builder, ref: Ref, entries) -> Ref:
    index = entries_of(b, entries, ref.shape)
    if any(isinstance(e, Value) and e.shape for e in index):
        raise b.refuse("a reference to elements picked by an array of indices")
    if index == everything(ref):
        return ref
    return b.view(ref, indexed_shape(index), index=index)


def _bitcast_view(b: Builder, ref: Ref, dtype) -> Ref:
    return b.view(ref, ref.shape, dtype, bitcast=True)


def _reshape_view(b: Builder, ref: Ref, shape) -> Ref:
    return b.view(ref, shape, reshape=True)


def _transpose_view(b: Builder, ref: Ref, order) -> Ref:
    return b.view(ref, [ref.shape[d] for d in order], transpose=tuple(order))


_VIEWS = {
    "index": _index_view,
    "bitcast": _bitcast_view,
    "reshape": _reshape_view,
    "transpose": _transpose_view,
}


@dataclass(frozen=True)
class _Place:
    """Elements of a reference: which, and how the user orders their dimensions."""

    ref: Ref
    index: tuple
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def mine(self, b: Builder, x: Value | None) -> Value | None:
        """Bring a user's value to the dimensions of the operation."""
        if x is None:
            return None
        return transposed(b, b.broadcast(x, self.shape), inverse(self.order))

    def users(self, b: Builder, x: Value) -> Value:
        """Bring the operation's value to the user's dimensions."""
        return transposed(b, x, self.order)

    def load(self, b: Builder, mask=None, other=None) -> Value:
        """Read them."""
        mask, other = self.mine(b, mask), self.mine(b, other)
        other = other and b.convert(other, self.ref.dtype)
        return self.users(b, b.load(self.ref, self.index, mask, other))

    def store(self, b: Builder, value: Value, mask=None) -> None:
        """Write them."""
        placed = self.mine(b, value)
        assert placed is not None
        b.store(self.ref, self.index, placed, self.mine(b, mask))


class _Whole:
    """The same of what only changing a whole value can reach."""

    def __init__(self, b: Builder, ref: Ref, found: Sequence[pallas.Transform]):
        self.through = Through(b, ref, found)
        self.shape = self.through.shape

    def load(self, b: Builder, mask=None, other=None) -> Value:
        """Read all elements; a mask chooses what is seen of them."""
        return _chosen(b, mask, self.through.value, other)

    def store(self, b: Builder, value: Value, mask=None) -> None:
        """Write them."""
        value = b.broadcast(value, self.shape)
        self.through.store(_chosen(b, mask, value, self.through.value))


def _chosen(b: Builder, mask, x: Value, other: Value | None) -> Value:
    if mask is None or other is None:
        return x
    mask, other = b.broadcast(mask, x.shape), b.broadcast(other, x.shape)
    return b.value("select_n", [mask, b.convert(other, x.dtype), x], x.shape, x.dtype)


def _place(b: Builder, ref: Ref, told: Sequence) -> "_Place | _Whole":
    """The elements that transforms of a reference amount to."""
    found = pallas.transforms(told)
    if not is_viewable(b, ref, found):
        return _Whole(b, ref, found)
    last = found[-1] if found and found[-1][0] == "index" else None
    ref = view_of(b, ref, found[:-1] if last else found)
    index = entries_of(b, last[1], ref.shape) if last else everything(ref)
    mine, order = indexed_shape(index), users_order(index)
    return _Place(ref, index, tuple(mine[d] for d in order), order)


@_rule("get")
def _get(b: Builder, eqn, inputs):
    ref, *leaves = inputs
    return _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves)).load(b)


@_rule("swap")
def _swap(b: Builder, eqn, inputs):
    ref, value, *leaves = inputs
    at = _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves))
    old = at.load(b)
    at.store(b, value)
    return old


@_rule("addupdate")
def _add_update(b: Builder, eqn, inputs):
    ref, value, *leaves = inputs
    at = _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves))
    at.store(b, b.binary("add", at.load(b), b.broadcast(value, at.shape)))
    return ()


@_rule("masked_load")
def _masked_load(b: Builder, eqn, inputs):
    tree = eqn.params["args_tree"]
    ref, told, mask, other = pallas.unflatten(tree, inputs)
    return _place(b, ref, told).load(b, mask, other)


@_rule("masked_swap")
def _masked_swap(b: Builder, eqn, inputs):
    tree = eqn.params["args_tree"]
    ref, told, value, mask = pallas.unflatten(tree, inputs)
    at = _place(b, ref, told)
    # where the mask is false the old value is what was to be written
    old = at.load(b, mask, None if mask is None else value)
    at.store(b, value, mask)
    return old


@_rule("atomic_rmw")
def _atomic(b: Builder, eqn, inputs):
    ref, told, value, mask = pallas.unflatten(eqn.params["args_tree"], inputs)
    at = _place(b, ref, told)
    if isinstance(at, _Whole):
        raise b.refuse("an atomic operation through this view")
    value, mask = at.mine(b, value), at.mine(b, mask)
    params = {"op": str(eqn.params["atomic_type"].value), "index": at.index}
    shape = indexed_shape(at.index)
    inputs = [at.ref, value, mask, *values_in(at.index)]
    return at.users(b, b.value("atomic", inputs, shape, at.ref.dtype, **params))


@_rule("atomic_cas")
def _compare_exchange(b: Builder, eqn, inputs):
    ref, expected, value = inputs
    return b.value("compare_exchange", [ref, expected, value], (), ref.dtype)


@_rule("run_scoped")
def _run_scoped(b: Builder, eqn, inputs):
    body = eqn.params["jaxpr"]
    if eqn.params.get("collective_axes"):
        raise b.refuse("memory that several cores share")
    refs = []
    for var in body.invars:
        told = pallas.reference_type(var.aval)
        if told is None:
            raise b.refuse(f"scoped memory of type {var.aval}")
        dtype = told.dtype or np.dtype(np.int32)
        ref = Ref(told.shape, dtype, told.space, told.kind)
        b.add("allocate", (), [ref])
        refs.append(ref)
    # the values of the body's constants are the operands
    return b.walk(body, refs, inputs)


@_rule("dma_start")
def _copy(b: Builder, eqn, inputs):
    """A copy is done at once: waiting for it is then no wait."""
    source, target, done, sent, device = pallas.copy_parts(eqn, inputs)
    if device is not None:
        raise b.refuse("a copy to another device")
    source, target = (view_of(b, r, pallas.transforms(t)) for r, t in (source, target))
    del done, sent
    if eqn.params.get("add"):
        old = b.load(target, everything(target))
        new = b.binary("add", old, b.load(source, everything(source)))
        b.store(target, everything(target), new)
    else:
        b.add("transfer", [source, target])
    return ()


@_rule("dma_wait")
def _no_wait(b: Builder, eqn, inputs):
    return ()


def _semaphore(b: Builder, ref: Ref, told) -> Ref:
    return view_of(b, ref, pallas.transforms(told))


@_rule("semaphore_signal")
def _signal(b: Builder, eqn, inputs):
    parts = pallas.unflatten(eqn.params["args_tree"], inputs)
    ref, told, amount, device, *_ = parts
    if device is not None:
        raise b.refuse("a signal to another device")
    b.add("signal", [_semaphore(b, ref, told), amount])
    return ()


@_rule("semaphore_wait")
def _wait(b: Builder, eqn, inputs):
    parts = pallas.unflatten(eqn.params["args_tree"], inputs)
    ref, told, amount, *_ = parts
    b.add("wait", [_semaphore(b, ref, told), amount])
    return ()


@_rule("semaphore_read")
def _semaphore_read(b: Builder, eqn, inputs):
    ref, told = pallas.unflatten(eqn.params["args_tree"], inputs)
    return b.load(_semaphore(b, ref, told), ())
