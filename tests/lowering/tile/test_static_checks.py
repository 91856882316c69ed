"""Index maps evaluated by NumPy give what JAX gives; large grids are left alone."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from tests.lowering.tile.kernels import program_of, struct
from tilejax.errors import KernelFault
from tilejax.lowering.tile.evaluate import NotKnown, evaluate, reached
from tilejax.lowering.tile.static_checks import MOST, check_blocks

MAPS = {
    "plain": lambda i, j: (i, j),
    "constant": lambda i, j: (0, 3),
    "quotient": lambda i, j: (i // 2, (j - 5) // 3),
    "remainder": lambda i, j: (i % 3, (j - 4) % 3),
    "lax quotient": lambda i, j: (jax.lax.div(i - 3, 2), jax.lax.rem(j - 4, 3)),
    "chosen": lambda i, j: (jnp.where(i > j, i, j), jnp.minimum(i, 2)),
    "clipped": lambda i, j: (jnp.clip(i - 2, 0, 3), jnp.abs(j - 3)),
    "branch": lambda i, j: jax.lax.cond(i > 2, lambda: (i, j), lambda: (j, 7 * i)),
    "switch": lambda i, j: (jax.lax.switch(i, [lambda: 5, lambda: j, lambda: i]), j),
    "bits": lambda i, j: ((i << 2) | (j & 1), i ^ (j >> 1)),
    "signs": lambda i, j: (jnp.sign(i - 2), -i * j + (i - j) ** 2),
    "logic": lambda i, j: (jnp.where((i > 1) & ~(j == 2), 1, i), jnp.maximum(i, j)),
}


def _program(in_map, grid, shape=(64, 64), out_map=lambda i, j: (i, j)):
    def copy(x_ref, y_ref):
        y_ref[...] = x_ref[...]

    def fun(x):
        return pl.pallas_call(
            copy,
            struct(*shape),
            grid=grid,
            in_specs=[pl.BlockSpec((1, 1), in_map)],
            out_specs=pl.BlockSpec((1, 1), out_map),
        )(x)

    return program_of(fun, struct(*shape))


def _check(program) -> None:
    refs = [o.ref for o in program.operands]
    check_blocks(program, dict(zip(refs, ["the input x", "the output y"], strict=True)))


@pytest.mark.parametrize("name", MAPS)
def test_index_maps_evaluate_as_in_jax(name):
    block = _program(MAPS[name], (6, 7)).operands[0].index_map
    assert block is not None
    at = [a.reshape(-1) for a in np.indices((6, 7), np.int32)]
    found = evaluate(block, dict(zip(block.inputs, at, strict=True)))
    wanted = jax.vmap(MAPS[name])(*at)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(a, b.shape), b)


def test_a_map_that_loops_is_not_known():
    loops = lambda i, j: (jax.lax.fori_loop(0, i, lambda k, s: s + k, 0), j)  # noqa: E731
    block = _program(loops, (2, 2), (2, 2)).operands[0].index_map
    assert block is not None
    with pytest.raises(NotKnown):
        evaluate(block, {x: np.zeros(1, np.int32) for x in block.inputs})
    assert reached(block, block.inputs[0])
    _check(_program(loops, (2, 2), (2, 2)))


def test_a_dimension_that_a_map_does_not_use_costs_nothing():
    steps = 3 * MOST
    _check(_program(lambda i, j: (0, j), (2, 4), (2, 4)))
    began = time.perf_counter()
    with pytest.raises(KernelFault, match=r"gives 4 for dimension 1 at .*\(0, 4\)"):
        _check(
            _program(lambda i, j: (0, j), (steps, 5), (1, 4), lambda i, j: (0, j % 4))
        )
    assert time.perf_counter() - began < 5


def test_more_steps_than_are_looked_at_are_left_to_the_run():
    _check(
        _program(lambda i, j: (0, i + j), (MOST, 2), (1, 4), lambda i, j: (0, i % 4))
    )


def test_nothing_is_told_of_empty_arrays_and_empty_grids():
    _check(_program(lambda i, j: (i, j), (0, 3), (2, 3)))
    _check(_program(lambda i, j: (9, 9), (0, 3), (2, 3)))
