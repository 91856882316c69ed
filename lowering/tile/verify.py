"""Whether a tile program is well formed; what an emitter may rely on."""

import numpy as np

from tilejax.lowering.tile.build import indexed_shape
from tilejax.lowering.tile.operations import CONTROL, ELEMENTWISE, KINDS
from tilejax.lowering.tile.program import Block, Op, Ref, TileProgram, Value


class TileError(Exception):
    """A tile program that breaks a rule: a mistake of TileJAX, never of a user."""


def verify(program: TileProgram) -> None:
    """Raise `TileError`, naming the operation, unless a program is well formed.

    The rules: operations are of known kinds and use what is defined before them; a
    value or a reference is defined once; element-wise operands have the result's shape;
    what is stored has the shape and the dtype of the place; bodies yield what their
    operation gives.
    """
    known: set = {o.ref for o in program.operands} | set(program.scratch)
    for operand in program.operands:
        if operand.index_map is not None:
            _index_map(operand.index_map, len(operand.dims), len(program.grid))
    _block(program.body, known)


def _index_map(block: Block, dims: int, grid: int) -> None:
    known: set = set(block.inputs)
    _block(block, known)
    _that(len(block.results) == dims, None, "an index map yields an index a dimension")
    _that(all(not x.shape for x in block.results), None, "indices are scalars")
    ids = [x for x in block.inputs if isinstance(x, Value)]
    _that(len(ids) == grid, None, "an index map takes an index a grid dimension")


def _that(holds: bool, op: Op | None, rule: str) -> None:
    if not holds:
        where = f"{op.kind} {op.line}: " if op is not None else ""
        raise TileError(f"{where}broken rule: {rule}")


def _block(block: Block, known: set) -> None:
    for op in block.ops:
        _operation(op, known)
        for out in op.outputs:
            _that(out not in known, op, "a value is defined once")
            known.add(out)
    for x in block.results:
        _that(x in known, None, "a body yields what is defined")


def _operation(op: Op, known: set) -> None:
    _that(op.kind in KINDS, op, f"the kind {op.kind} is known")
    for x in op.inputs:
        _that(x is None or x in known, op, "operands are defined before")
    for block in op.blocks:
        _block(block, known | set(block.inputs))
    if op.kind in ELEMENTWISE:
        (out,) = op.outputs
        same = all(x.shape == out.shape for x in op.inputs)
        _that(same, op, "element-wise operands have the shape of the result")
    if op.kind in _CHECKS:
        _CHECKS[op.kind](op)
    if op.kind in CONTROL and op.blocks:
        _bodies(op)


def _load(op: Op) -> None:
    ref, mask, other = op.inputs[:3]
    (out,), index = op.outputs, op.params["index"]
    _that(isinstance(ref, Ref), op, "what is read is a reference")
    _that(len(index) == len(ref.shape), op, "an index has an entry a dimension")
    _that(indexed_shape(index) == out.shape, op, "a read has the shape of its index")
    _that(ref.dtype == out.dtype, op, "a read has the reference's dtype")
    _masked(op, mask, out.shape)
    if other is not None:
        _that(other.dtype == ref.dtype, op, "what fills in has the reference's dtype")


def _store(op: Op) -> None:
    ref, value, mask = op.inputs[:3]
    index = op.params["index"]
    _that(len(index) == len(ref.shape), op, "an index has an entry a dimension")
    _that(indexed_shape(index) == value.shape, op, "what is stored fits its index")
    _that(ref.dtype == value.dtype, op, "what is stored has the reference's dtype")
    _masked(op, mask, value.shape)


def _masked(op: Op, mask: Value | None, shape) -> None:
    if mask is not None:
        fits = mask.shape == shape and mask.dtype == np.bool_
        _that(fits, op, "a mask has a boolean for each element")


def _broadcast(op: Op) -> None:
    (x,), (out,), dims = op.inputs, op.outputs, op.params["dims"]
    fits = len(dims) == len(x.shape) and all(
        n in (1, out.shape[d]) for n, d in zip(x.shape, dims, strict=True)
    )
    _that(fits, op, "only dimensions of size one are stretched")


def _reshape(op: Op) -> None:
    (x,), (out,) = op.inputs, op.outputs
    same = np.prod(x.shape, dtype=int) == np.prod(out.shape, dtype=int)
    _that(same, op, "a reshape keeps the number of elements")


def _reduce(op: Op) -> None:
    (x,), (out,), axes = op.inputs, op.outputs, op.params["axes"]
    rest = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    _that(rest == out.shape, op, "a reduction drops its axes")


_CHECKS = {
    "load": _load,
    "store": _store,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "reduce": _reduce,
}


def _types(values) -> list:
    return [(x.shape, x.dtype) for x in values]


def _bodies(op: Op) -> None:
    outs = _types(op.outputs)
    if op.kind == "while":
        condition, body = op.blocks
        _that(_types(condition.inputs) == outs, op, "a condition takes the carries")
        is_bit = _types(condition.results) == [((), np.dtype(bool))]
        _that(is_bit, op, "a condition yields a boolean")
        _that(_types(body.inputs) == outs, op, "a body takes the carries")
        _that(_types(body.results) == outs, op, "a body yields the carries")
    elif op.kind == "for":
        (body,) = op.blocks
        _that(_types(body.inputs[1:]) == outs, op, "a body takes the carries")
        _that(_types(body.results) == outs, op, "a body yields the carries")
    elif op.kind == "switch":
        for block in op.blocks:
            _that(_types(block.results) == outs, op, "bodies yield the results")
