"""Operations of kernels that move, order and count elements: compiled against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import tilejax
from tilejax.errors import UnsupportedKernel

X = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
WITH_NAN = np.where(np.arange(185).reshape(5, 37) == 40, np.nan, X).astype(np.float32)
WHOLE = np.random.default_rng(1).integers(0, 200, (32, 8)).astype(np.int32)
PLACES = np.random.default_rng(2).integers(0, 37, (5, 11)).astype(np.int32)
BYTES = np.random.default_rng(3).integers(0, 255, (3, 20, 4)).astype(np.uint8)
KEY = np.array([3, 7], np.uint32)


def in_kernel(f, *args):
    """Run a function of whole arrays inside of a kernel."""
    out = jax.eval_shape(f, *args)

    def kernel(*refs):
        refs[-1][...] = f(*[ref[...] for ref in refs[:-1]])

    shape = jax.ShapeDtypeStruct(out.shape, out.dtype)
    with tilejax.native_pallas():
        return pl.pallas_call(kernel, out_shape=shape)(*args)


def _uniform(data):
    return jax.random.uniform(jax.random.wrap_key_data(data), (5, 7))


CASES = {
    "sort along rows": (lambda x: jnp.sort(x, axis=1), WITH_NAN),
    "sort along columns": (lambda x: jnp.sort(x, axis=0), WITH_NAN),
    "places that sort": (lambda x: jnp.argsort(jnp.round(x), axis=1), WITH_NAN),
    "sort by two keys": (
        lambda x: lax.sort((jnp.round(x), x), num_keys=2, dimension=1)[1],
        X,
    ),
    "the greatest elements": (lambda x: lax.top_k(x, 3)[1], X),
    "gather of elements": (lambda x, i: jnp.take_along_axis(x, i, axis=1), X, PLACES),
    "gather of columns": (lambda x, i: jnp.take(x, i, axis=1), X, PLACES),
    "gather past the end": (
        lambda x, i: jnp.take(x, i + 10, axis=1, mode="fill"),
        X,
        PLACES,
    ),
    "windows at places": (
        lambda x, i: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (4,)))(
            x, i[:, 0]
        ),
        X,
        PLACES,
    ),
    "scatter of columns": (lambda x, i: x.at[:, i[0]].set(1.0), X, PLACES),
    "scatter that adds": (lambda x, i: x.at[:, i[0]].add(1.0), X, PLACES),
    "scatter of the greatest": (lambda x, i: x.at[i % 5, i].max(0.2), X, PLACES),
    "bytes as words": (lambda x: lax.bitcast_convert_type(x, jnp.uint32), BYTES),
    "scan of exponentials": (lambda x: lax.cumlogsumexp(x, axis=1), X),
    "random numbers": (_uniform, KEY),
    "sum of whole rows": (lambda x: jnp.sum(x, axis=1), WHOLE),
    "greatest of whole rows": (lambda x: jnp.max(x, axis=1), WHOLE),
    "stack": (lambda x: jnp.stack([x, x + 1], axis=1), X),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operation_gives_what_jax_gives(name):
    f, *args = CASES[name]
    args = [jnp.asarray(x) for x in args]
    want = np.asarray(f(*args))
    np.testing.assert_allclose(in_kernel(f, *args), want, rtol=1e-5, atol=1e-6)


def test_atomic_sums_of_parallel_steps_lose_nothing():
    rng = np.random.default_rng(4)
    places = rng.integers(0, 8, 2048).astype(np.int32)
    values = rng.integers(0, 9, 2048)

    def kernel(at_ref, value_ref, _, sums_ref):
        mask = at_ref[...] != 3
        plgpu.atomic_add(sums_ref, (at_ref[...],), value_ref[...], mask=mask)

    rows = pl.BlockSpec((32,), lambda i: (i,))
    whole = pl.BlockSpec((8,), lambda i: (0,))
    for dtype in (np.int32, np.float32, np.float16):
        call = pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((8,), dtype),
            grid=(64,),
            in_specs=[rows, rows, whole],
            out_specs=whole,
            input_output_aliases={2: 0},
            compiler_params=plgpu.CompilerParams(),
        )
        with tilejax.native_pallas():
            sums = call(places, values.astype(dtype), jnp.ones(8, dtype))
        want = 1 + np.bincount(places, values, 8) * (np.arange(8) != 3)
        np.testing.assert_array_equal(sums, want.astype(dtype))


def test_values_are_printed_in_the_places_of_the_format(capsys):
    def kernel(x_ref, y_ref):
        pl.debug_print("step")
        pl.debug_print("x {} of {}", x_ref[0], x_ref[...])
        jax.debug.print("step {i}", i=pl.program_id(0))
        y_ref[...] = x_ref[...]

    block = pl.BlockSpec((2,), lambda i: (i,))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((2,), jnp.int32),
        grid=(1,),
        in_specs=[block],
        out_specs=block,
    )
    with tilejax.native_pallas():
        run = jax.jit(call)
        jax.block_until_ready(run(jnp.array([4, 5], jnp.int32)))
        text = run.lower(jnp.array([4, 5], jnp.int32)).as_text()
    assert capsys.readouterr().out == "step\nx 4 of [4 5]\nstep 0\n"
    assert "has_side_effect = true" in text


def test_a_padded_block_reads_and_writes_what_is_inside():
    def kernel(x_ref, y_ref):
        x = x_ref[...]
        y_ref[...] = jnp.where(jnp.isnan(x), -1, x) + pl.program_id(0)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8, 4), jnp.float32),
        grid=(2,),
        in_specs=[pl.BlockSpec((pl.Element(4, (2, 2)), 4), lambda i: (4 * i, 0))],
        out_specs=pl.BlockSpec((4, 4), lambda i: (i, 0)),
    )
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    with tilejax.native_pallas():
        y = call(x)
    padded = np.pad(x, ((2, 2), (0, 0)), constant_values=-1)
    np.testing.assert_array_equal(y, np.concatenate([padded[:4], padded[4:8] + 1]))


def test_a_reference_is_written_through_a_bitcast():
    def kernel(x_ref, y_ref):
        y_ref[...] = x_ref[...]
        y_ref.bitcast(jnp.int16)[3:4] = jnp.full((1, 8), 7, jnp.int16)

    x = np.arange(32, dtype=np.int32).reshape(4, 8) + (9 << 16)
    with tilejax.native_pallas():
        y = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    want = x.copy()
    want[1] = (want[1] & 0xFFFF) | (7 << 16)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: (x * (1 + 2j)).real.astype(jnp.float32), "real"),
        (lambda x: x.astype(jnp.int4).astype(jnp.float32), "int4"),
        (lambda x: lax.lgamma(x), "lgamma"),
        (lambda x: jax.pure_callback(lambda v: v, x, x), "pure_callback"),
    ],
)
def test_what_has_no_code_is_refused_by_name_and_line(f, what):
    with pytest.raises(UnsupportedKernel, match=rf"{what}.*test_surface\.py:\d+"):
        in_kernel(f, jnp.asarray(X))
