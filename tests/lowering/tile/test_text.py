"""The printed form of tile programs, against committed texts."""

import jax.numpy as jnp
import pytest

from tests.lowering.tile.kernels import (
    matmul,
    program_of,
    softmax,
    struct,
    sum_of_some_rows,
)
from tilejax.lowering.tile.text import as_text

CASES = {
    "tile_matmul": (matmul, struct(32, 48), struct(48, 32)),
    "tile_softmax": (softmax, struct(20, 100)),
    "tile_loop": (sum_of_some_rows, struct(1, dtype=jnp.int32), struct(6, 40)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_prints_as_committed(name, golden):
    fun, *types = CASES[name]
    golden(name, as_text(program_of(fun, *types)))


def test_the_text_is_the_same_for_the_same_kernel():
    fun, *types = CASES["tile_matmul"]
    first, second = (as_text(program_of(fun, *types)) for _ in range(2))
    assert first == second
