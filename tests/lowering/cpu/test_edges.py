"""Blocks that may pass their array's end: inner steps have code of their own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import tilejax

ROWS, COLUMNS = 8, 32


def _places(axis: int, size: int):
    return pl.program_id(axis) * size + lax.broadcasted_iota(
        jnp.int32, (ROWS, COLUMNS), axis
    )


TESTS = {
    "lt": lambda at, n: at < n,
    "gt": lambda at, n: n > at,
    "le": lambda at, n: at <= n - 1,
    "ge": lambda at, n: n - 1 >= at,
}


def _masked(x, *, test, limits):
    """Rows and columns before the limits doubled, zeros behind them."""

    def kernel(x_ref, y_ref):
        inside = test(_places(0, ROWS), jnp.int32(limits[0]))
        inside &= test(_places(1, COLUMNS), jnp.int32(limits[1]))
        y_ref[...] = jnp.where(inside, x_ref[...] * 2, 0)

    block = pl.BlockSpec((ROWS, COLUMNS), lambda i, j: (i, j))
    grid = (pl.cdiv(x.shape[0], ROWS), pl.cdiv(x.shape[1], COLUMNS))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, shape, grid=grid, in_specs=[block], out_specs=block)(
        x
    )


def _want(x, limits):
    y = np.zeros_like(x)
    y[: limits[0], : limits[1]] = 2 * x[: limits[0], : limits[1]]
    return y


@pytest.mark.parametrize("shape", [(21, 75), (24, 75), (21, 96), (9, 33), (7, 31)])
@pytest.mark.parametrize("test", TESTS)
def test_masks_at_the_arrays_size_are_what_they_are(test, shape, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    run = tilejax.jit(functools.partial(_masked, test=TESTS[test], limits=shape))
    np.testing.assert_array_equal(run(x), _want(x, shape))


@pytest.mark.parametrize("less", [(1, 0), (0, 1), (8, 40), (21, 75)])
def test_masks_before_the_arrays_end_hide_what_they_say(less, rng):
    x = rng.standard_normal((21, 75)).astype(np.float32)
    limits = (21 - less[0], 75 - less[1])
    for test in TESTS.values():
        run = tilejax.jit(functools.partial(_masked, test=test, limits=limits))
        np.testing.assert_array_equal(run(x), _want(x, limits))


def test_inner_steps_compare_no_places():
    x = jnp.ones((21, 75))
    masked = functools.partial(_masked, test=TESTS["lt"], limits=(21, 75))
    code = tilejax.jit(masked).lower(x).as_text("llvm")
    step = code[code.index("@step(") :]
    step = step[: step.index("\n}")]
    assert "llvm.masked.load" in step  # at the edges
    assert "load <" in step.replace("llvm.masked.load", "")  # inside


def test_a_step_of_another_length_than_the_block_is_not_taken_for_it(rng):
    def kernel(x_ref, y_ref):
        at = pl.program_id(0) * 16 + lax.broadcasted_iota(jnp.int32, (ROWS, 1), 0)
        y_ref[...] = jnp.where(at < 21, x_ref[...], -1)

    x = rng.standard_normal((21, 32)).astype(np.float32)
    block = pl.BlockSpec((ROWS, 32), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(kernel, shape, grid=(3,), in_specs=[block], out_specs=block)
    at = np.concatenate([i * 16 + np.arange(8) for i in range(3)])[:21]
    want = np.where(at[:, None] < 21, x, -1)
    np.testing.assert_array_equal(tilejax.jit(call)(x), want)


def test_the_other_axis_is_not_taken_for_it(rng):
    def kernel(x_ref, y_ref):
        at = pl.program_id(1) * 8 + lax.broadcasted_iota(jnp.int32, (8, 8), 0)
        y_ref[...] = jnp.where(at < 21, x_ref[...], -1)

    x = rng.standard_normal((21, 40)).astype(np.float32)
    block = pl.BlockSpec((8, 8), lambda i, j: (i, j))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(kernel, shape, grid=(3, 5), in_specs=[block], out_specs=block)
    i, j = np.indices(x.shape)
    want = np.where(j // 8 * 8 + i % 8 < 21, x, -1)
    np.testing.assert_array_equal(tilejax.jit(call)(x), want)


def test_scratch_goes_on_from_inner_steps_to_the_last(rng):
    def kernel(x_ref, y_ref, sum_ref):
        k = pl.program_id(0)

        @pl.when(k == 0)
        def _():
            sum_ref[...] = jnp.zeros_like(sum_ref)

        at = k * 16 + lax.broadcasted_iota(jnp.int32, (16, 5), 0)
        sum_ref[...] += jnp.where(at < 75, x_ref[...], 0).sum(0, keepdims=True)

        @pl.when(k == pl.num_programs(0) - 1)
        def _():
            y_ref[...] = sum_ref[...]

    x = rng.standard_normal((75, 5)).astype(np.float32)
    call = pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((1, 5), jnp.float32),
        grid=(5,),
        in_specs=[pl.BlockSpec((16, 5), lambda k: (k, 0))],
        out_specs=pl.BlockSpec((1, 5), lambda k: (0, 0)),
        scratch_shapes=[pltpu.VMEM((1, 5), jnp.float32)],
    )
    want = x.astype(np.float64).sum(0, keepdims=True)
    np.testing.assert_allclose(tilejax.jit(call)(x), want, rtol=1e-5, atol=1e-5)
