"""The verifier refuses each way in which a tile program can be wrong."""

from dataclasses import replace

import numpy as np
import pytest

from tests.lowering.tile.kernels import (
    matmul,
    program_of,
    softmax,
    struct,
    sum_of_some_rows,
)
from tilejax.lowering.tile.program import Block, Op, Value
from tilejax.lowering.tile.verify import TileError, verify


def _softmax():
    return program_of(softmax, struct(20, 100))


def _find(program, kind: str) -> Op:
    return next(op for op in program.body.ops if op.kind == kind)


def _unknown_kind(program):
    _find(program, "exp").kind = "explode"


def _undefined_operand(program):
    _find(program, "exp").inputs = (Value((8, 100), np.dtype(np.float32)),)


def _defined_twice(program):
    program.body.ops.insert(1, program.body.ops[0])


def _other_shape(program):
    _find(program, "exp").outputs[0].shape = (8, 99)


def _stored_shape(program):
    _find(program, "store").inputs[1].shape = (8, 99)


def _stored_dtype(program):
    _find(program, "store").inputs[1].dtype = np.dtype(np.float64)


def _short_index(program):
    op = _find(program, "load")
    op.params = {"index": op.params["index"][:1]}


def _wrong_axes(program):
    op = _find(program, "reduce")
    op.params = op.params | {"axes": (0,)}


def _index_map_of_one(program):
    operand = program.operands[0]
    block = operand.index_map
    operand.index_map = Block(block.inputs, block.ops, block.results[:1])


def _stretched_row(program):
    op = _find(program, "broadcast")
    op.inputs[0].shape = (3,) * len(op.inputs[0].shape)


FAULTS = {
    "the kind explode is known": _unknown_kind,
    "operands are defined before": _undefined_operand,
    "a value is defined once": _defined_twice,
    "element-wise operands have the shape": _other_shape,
    "what is stored fits its index|element-wise": _stored_shape,
    "what is stored has the reference's dtype": _stored_dtype,
    "an index has an entry a dimension": _short_index,
    "a reduction drops its axes": _wrong_axes,
    "an index map yields an index a dimension": _index_map_of_one,
    "only dimensions of size one are stretched|a reduction": _stretched_row,
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_broken_rule_is_named(rule):
    program = _softmax()
    FAULTS[rule](program)
    with pytest.raises(TileError, match=rule):
        verify(program)


def _no_results(block):
    return replace(block, results=())


@pytest.mark.parametrize(("at", "rule"), [(0, "yields a boolean"), (1, "the carries")])
def test_a_loop_whose_bodies_yield_nothing_is_refused(at, rule):
    program = program_of(sum_of_some_rows, struct(1, dtype=np.int32), struct(6, 40))
    loop = _find(program, "while")
    blocks = list(loop.blocks)
    blocks[at] = _no_results(blocks[at])
    loop.blocks = tuple(blocks)
    with pytest.raises(TileError, match=rule):
        verify(program)


def test_a_choice_of_bodies_that_yield_something_else_is_refused():
    program = program_of(matmul, struct(32, 48), struct(48, 32))
    op = _find(program, "switch")
    op.blocks = tuple(replace(b, results=(op.inputs[0],)) for b in op.blocks)
    with pytest.raises(TileError, match="bodies yield the results"):
        verify(program)
