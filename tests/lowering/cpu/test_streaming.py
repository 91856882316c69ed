"""Large outputs go past the caches where each of their vectors is aligned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import tilejax
from tilejax.lowering.cpu import streaming
from tilejax.lowering.cpu.host import detect

PAST = {True: "vmovnt", False: "stnp"}


@pytest.fixture(autouse=True)
def all_is_large(monkeypatch):
    monkeypatch.setattr(streaming, "LARGE", 1)


def _run(name, shape, blocks, dtype="float32", kernel=None, **options):
    """Call a kernel on random numbers; whether it streams, its result and `x + 1`."""

    def add_one(x_ref, y_ref):
        y_ref[...] = x_ref[...] + 1

    spec = pl.BlockSpec(blocks, lambda *at: (*at, *[0] * (len(shape) - len(at))))
    grid = options.pop("grid", None) or (pl.cdiv(shape[0], blocks[0]),)
    call = pl.pallas_call(
        kernel or add_one,
        jax.ShapeDtypeStruct(shape, dtype),
        grid=grid,
        in_specs=[spec],
        out_specs=spec,
        name=name,
        **options,
    )
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)
    lowered = tilejax.jit(call).lower(x)
    streams = PAST[detect().is_x86] in lowered.as_text("asm")
    return streams, lowered.compile()(x), x + 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "float64"])
def test_whole_rows_go_past_the_caches(dtype):
    with jax.enable_x64(dtype == "float64"):
        got = _run(f"whole_{dtype}", (24, 128), (8, 128), dtype)
    assert got[0]
    np.testing.assert_array_equal(*got[1:])


def test_a_row_may_end_in_part_of_a_vector():
    streams, found, want = _run("tail", (1, 1000), (1, 1000))
    assert streams
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    "shape, blocks",
    [
        ((24, 100), (8, 100)),  # rows start anywhere
        ((5, 24, 7), (1, 24, 7)),
        ((8, 1), (4, 1)),
    ],
)
def test_what_is_not_aligned_stays_in_the_caches(shape, blocks):
    streams, found, want = _run(f"crooked_{shape[-1]}", shape, blocks)
    assert not streams
    np.testing.assert_array_equal(found, want)


def test_a_block_that_passes_the_end_is_masked():
    _, found, want = _run("ragged", (21, 128), (8, 128))
    np.testing.assert_array_equal(found, want)


def test_columns_of_a_block_are_aligned_too():
    streams, found, want = _run("columns", (16, 256), (8, 32), grid=(2, 8))
    assert streams
    np.testing.assert_array_equal(found, want)
    streams, found, want = _run("narrow", (16, 240), (8, 24), grid=(2, 10))
    assert not streams
    np.testing.assert_array_equal(found, want)


def test_what_is_written_twice_or_read_stays_in_the_caches():
    def twice(x_ref, y_ref):
        y_ref[...] = x_ref[...]
        y_ref[...] = y_ref[...] + 1

    def part(x_ref, y_ref):
        y_ref[0:4] = x_ref[0:4] + 1
        y_ref[4:8] = x_ref[4:8] + 1

    for kernel in (twice, part):
        streams, found, want = _run(kernel.__name__, (8, 128), (8, 128), kernel=kernel)
        assert not streams
        np.testing.assert_array_equal(found, want)


def test_a_block_that_steps_come_back_to_stays_in_the_caches():
    def add(x_ref, y_ref):
        y_ref[...] = x_ref[...] + 1

    block = pl.BlockSpec((8, 128), lambda i, k: (i, 0))
    call = pl.pallas_call(
        add,
        jax.ShapeDtypeStruct((16, 128), jnp.float32),
        grid=(2, 3),
        in_specs=[block],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary")
        ),
    )
    lowered = tilejax.jit(call).lower(jnp.ones((16, 128)))
    assert PAST[detect().is_x86] not in lowered.as_text("asm")


def test_small_outputs_stay_in_the_caches(monkeypatch):
    monkeypatch.setattr(streaming, "LARGE", 24 * 128 * 4 + 1)
    assert not _run("small", (24, 128), (8, 128))[0]
