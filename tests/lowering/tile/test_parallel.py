"""Which dimensions of a grid are found to be parallel, and why the others are not."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.lowering.tile.kernels import matmul, program_of, softmax, struct


def _dims(fun, *types):
    return [(d.parallel, d.reason) for d in program_of(fun, *types).grid]


def test_steps_that_write_their_own_blocks_are_parallel():
    assert _dims(softmax, struct(20, 100)) == [(True, "nothing is carried along it")]


def test_scratch_cleared_at_the_first_inner_step_leaves_the_outer_ones_parallel():
    found = _dims(matmul, struct(32, 48), struct(48, 32))
    assert [parallel for parallel, _ in found] == [True, True, False]
    # the sum is read at each step along k, and the same block of the result written
    assert "same block" in found[2][1]


def test_what_is_declared_is_believed():
    def declared(a, b):
        return matmul(a, b, semantics=("arbitrary", "parallel", "arbitrary"))

    found = _dims(declared, struct(32, 48), struct(48, 32))
    assert [parallel for parallel, _ in found] == [False, True, False]
    assert found[0][1] == "declared arbitrary"


def test_a_dimension_that_vmap_adds_is_parallel():
    found = _dims(jax.vmap(softmax), struct(3, 20, 100))
    assert found[0] == (True, "added by vmap")


def _call(kernel, *, index_map, scratch=(), aliases=None, in_map=None):
    spec = pl.BlockSpec((8, 128), index_map)
    return pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((32, 128), jnp.float32),
        grid=(4,),
        in_specs=[pl.BlockSpec((8, 128), in_map or index_map)],
        out_specs=spec,
        scratch_shapes=list(scratch),
        input_output_aliases=aliases or {},
    )


def _copy(x, y, *_):
    y[...] = x[...]


def _carry(x, y, total):
    total[...] += x[...]
    y[...] = total[...]


def _fresh(x, y, total):
    total[...] = x[...]
    y[...] = total[...] + 1


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (_call(_copy, index_map=lambda i: (0, 0)), "same block"),
        (_call(_copy, index_map=lambda i: (i // 2, 0)), "same block"),
        (
            _call(
                _carry,
                index_map=lambda i: (i, 0),
                scratch=[pltpu.VMEM((8, 128), jnp.float32)],
            ),
            "scratch may be read",
        ),
        (
            _call(
                _copy,
                index_map=lambda i: (i, 0),
                in_map=lambda i: (3 - i, 0),
                aliases={0: 0},
            ),
            "share memory but not blocks",
        ),
    ],
    ids=["one block", "two steps a block", "carried scratch", "aliased elsewhere"],
)
def test_what_may_be_carried_keeps_steps_in_order(call, reason):
    ((parallel, why),) = _dims(call, struct(32, 128))
    assert not parallel
    assert reason in why


def test_scratch_that_is_written_first_carries_nothing():
    call = _call(
        _fresh, index_map=lambda i: (i, 0), scratch=[pltpu.VMEM((8, 128), jnp.float32)]
    )
    assert _dims(call, struct(32, 128)) == [(True, "nothing is carried along it")]
