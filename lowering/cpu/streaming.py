"""Outputs so large that writing them past the caches is faster.

A store to memory that no cache holds first reads it. A store that goes past the caches
does not, but the next reader finds nothing in them, so it is for what is too large to
be found there anyway.
"""

import math

from tilejax.lowering.cpu.access import dense_strides
from tilejax.lowering.cpu.types import dtype_name, itemsize
from tilejax.lowering.tile.program import (
    Op,
    Operand,
    Ref,
    Span,
    TileProgram,
    blocks_within,
)

LARGE = 2**25
"""Bytes from which on an output is written past the caches."""

LINE = 64
"""Bytes that a vector store may have to be aligned to; XLA's buffers are."""


def is_streamed(program: TileProgram, operand: Operand) -> bool:
    """Tell whether an output is large, and written once, in whole aligned rows."""
    size = itemsize(dtype_name(operand.dtype))
    if operand.role != "output" or operand.alias is not None:
        return False
    if math.prod(operand.shape) * size < LARGE:
        return False
    if any(not dim.parallel and dim.size != 1 for dim in program.grid):
        return False  # a block may be written again
    return _rows_are_aligned(operand, size) and _is_stored_once(program, operand.ref)


def _rows_are_aligned(operand: Operand, size: int) -> bool:
    if any(dim.padding != (0, 0) for dim in operand.dims):
        return False
    strides = dense_strides(operand.shape)
    wide = [d for d, n in enumerate(operand.shape) if n != 1]
    steps = [
        strides[d] * operand.dims[d].step
        for d in wide
        if operand.dims[d].size < operand.shape[d]
    ]
    rows = [strides[d] for d in wide[:-1]]
    return all(n * size % LINE == 0 for n in (*steps, *rows))


def _is_stored_once(program: TileProgram, ref: Ref) -> bool:
    users = [
        op for b in blocks_within(program.body) for op in b.ops if ref in op.inputs
    ]
    return len(users) == 1 and users[0] in program.body.ops and _is_whole(users[0], ref)


def _is_whole(op: Op, ref: Ref) -> bool:
    if op.kind != "store" or op.inputs[2] is not None:
        return False
    whole = tuple(Span(0, n) for n in ref.shape)
    return op.params["index"] == whole
