"""Rules of the primitives that read and write references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilejax._jax import pallas
from tilejax.lowering.tile.build import Builder, everything, indexed_shape
from tilejax.lowering.tile.program import Ref, Span, Value

RULES: dict[str, Callable] = {}


def _rule(*names: str) -> Callable:
    def add(rule: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return add


def _entry(b: Builder, entry):
    """An entry with Python integers where they are known."""
    if isinstance(entry, pallas.Span):
        return Span(_scalar(entry.start), entry.size, entry.stride)
    if isinstance(entry, Value):
        return entry
    array = np.asarray(entry)
    return b.constant(array.astype(np.int32) if array.dtype.kind == "i" else array)


def _scalar(start):
    return start if isinstance(start, Value) else int(start)


def view_of(b: Builder, ref: Ref, found: Sequence[pallas.Transform]) -> Ref:
    """Append views for all transforms."""
    for kind, what in found:
        ref = _VIEWS[kind](b, ref, what)
    return ref


def _index_view(b: Builder, ref: Ref, entries) -> Ref:
    index = tuple(_entry(b, e) for e in entries)
    if any(isinstance(e, Value) and e.shape for e in index):
        raise b.refuse("a reference to elements picked by an array of indices")
    if index == everything(ref):
        return ref
    return b.view(ref, indexed_shape(index), index=index)


def _bitcast_view(b: Builder, ref: Ref, dtype) -> Ref:
    """Rows of the last dimension but one are packed or unpacked, as on TPUs."""
    if dtype.itemsize == ref.dtype.itemsize:
        return b.view(ref, ref.shape, dtype, bitcast=True)
    raise b.refuse("a bitcast of a reference to a type of another width")


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
    """Elements of a reference: which, and how the user orders their dimensions.

    Operations of tile programs put the dimensions of arrays of indices first. JAX
    leaves them where they are, as NumPy does, if no slice lies between them.
    """

    ref: Ref
    index: tuple
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def mine(self, b: Builder, x: Value | None) -> Value | None:
        """Bring a user's value to the dimensions of the operation."""
        if x is None:
            return None
        x = b.broadcast(x, self.shape)
        back = tuple(self.order.index(d) for d in range(len(self.order)))
        return _transposed(b, x, back)

    def users(self, b: Builder, x: Value) -> Value:
        """Bring the operation's value to the user's dimensions."""
        return _transposed(b, x, self.order)


def _transposed(b: Builder, x: Value, order: tuple[int, ...]) -> Value:
    if order == tuple(range(len(order))):
        return x
    shape = [x.shape[d] for d in order]
    return b.value("transpose", [x], shape, x.dtype, permutation=order)


def _place(b: Builder, ref: Ref, told: Sequence) -> _Place:
    """The reference and the index that transforms amount to."""
    found = pallas.transforms(told)
    last = found[-1] if found and found[-1][0] == "index" else None
    ref = view_of(b, ref, found[:-1] if last else found)
    index = tuple(_entry(b, e) for e in last[1]) if last else everything(ref)
    mine = indexed_shape(index)
    order = _order(index, len(mine))
    return _Place(ref, index, tuple(mine[d] for d in order), order)


def _order(index: tuple, rank: int) -> tuple[int, ...]:
    """Where the user's dimensions are among those of the operation."""
    spans = [k for k, e in enumerate(index) if isinstance(e, Span)]
    picked = [k for k, e in enumerate(index) if not isinstance(e, Span)]
    lead = rank - len(spans)
    if not lead or picked[-1] - picked[0] + 1 != len(picked):
        return tuple(range(rank))
    before = picked[0]
    first, rest = range(lead, lead + before), range(lead + before, rank)
    return (*first, *range(lead), *rest)


@_rule("get")
def _get(b: Builder, eqn, inputs):
    ref, *leaves = inputs
    at = _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves))
    return at.users(b, b.load(at.ref, at.index))


@_rule("swap")
def _swap(b: Builder, eqn, inputs):
    ref, value, *leaves = inputs
    at = _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves))
    old = b.load(at.ref, at.index)
    b.store(at.ref, at.index, at.mine(b, value))
    return at.users(b, old)


@_rule("addupdate")
def _add_update(b: Builder, eqn, inputs):
    ref, value, *leaves = inputs
    at = _place(b, ref, pallas.unflatten(eqn.params["tree"], leaves))
    new = b.binary("add", b.load(at.ref, at.index), at.mine(b, value))
    b.store(at.ref, at.index, new)
    return ()


@_rule("masked_load")
def _masked_load(b: Builder, eqn, inputs):
    tree = eqn.params["args_tree"]
    ref, told, mask, other = pallas.unflatten(tree, inputs)
    at = _place(b, ref, told)
    mask, other = at.mine(b, mask), at.mine(b, other)
    other = other and b.convert(other, at.ref.dtype)
    return at.users(b, b.load(at.ref, at.index, mask, other))


@_rule("masked_swap")
def _masked_swap(b: Builder, eqn, inputs):
    tree = eqn.params["args_tree"]
    ref, told, value, mask = pallas.unflatten(tree, inputs)
    at = _place(b, ref, told)
    value, mask = at.mine(b, value), at.mine(b, mask)
    # where the mask is false the old value is what was to be written
    old = b.load(at.ref, at.index, mask, None if mask is None else value)
    b.store(at.ref, at.index, value, mask)
    return at.users(b, old)


@_rule("atomic_rmw")
def _atomic(b: Builder, eqn, inputs):
    ref, told, value, mask = pallas.unflatten(eqn.params["args_tree"], inputs)
    at = _place(b, ref, told)
    value, mask = at.mine(b, value), at.mine(b, mask)
    values = [e.start if isinstance(e, Span) else e for e in at.index]
    values = [x for x in values if isinstance(x, Value)]
    params = {"op": str(eqn.params["atomic_type"].value), "index": at.index}
    shape = indexed_shape(at.index)
    inputs = [at.ref, value, mask, *values]
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
