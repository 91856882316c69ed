"""Checked code is apart from unchecked code, computes the same, and raises likewise."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu, triton as plgpu

import tilejax
from tests.lowering.cpu.faulty import (
    BEFORE_RUNNING,
    F32,
    X,
    call,
    like,
    read_past,
    semantics,
)
from tilejax.errors import KernelFault, ParameterError
from tilejax.lowering.kernels.matmul import MatmulConfig, matmul
from tilejax.lowering.kernels.softmax import SoftmaxConfig, softmax
from tilejax.options import current


def _same_checked(fun, *arrays) -> list[np.ndarray]:
    """The results of a function, which are the same bits checked and unchecked."""
    run = tilejax.jit(fun)
    wanted = [np.asarray(x) for x in jax.tree.leaves(run(*arrays))]
    with tilejax.checked():
        found = [np.asarray(x) for x in jax.tree.leaves(run(*arrays))]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return found


def test_plain_jax_raises_its_own_error_with_the_same_text():
    run = jax.jit(read_past(17))
    with tilejax.checked(), pytest.raises(KernelFault) as own:
        tilejax.jit(read_past(17))(X)
    with (
        tilejax.native_pallas(),
        tilejax.checked(),
        pytest.raises((jax.errors.JaxRuntimeError, ValueError)) as theirs,
    ):
        jax.block_until_ready(run(X))
    assert str(own.value) in str(theirs.value)


def test_plain_jax_is_told_of_blocks_before_it_runs():
    make, right, wrong, told = BEFORE_RUNNING["outside"]
    with tilejax.native_pallas(), tilejax.checked(static_only=True):
        np.testing.assert_array_equal(jax.jit(make(right))(X), X)
        with pytest.raises(KernelFault, match=told):
            jax.jit(make(wrong)).lower(X)
    with tilejax.native_pallas():
        jax.jit(make(wrong)).lower(X)


def test_filter_jit_raises_as_jit_does():
    with tilejax.checked(), pytest.raises(KernelFault, match="index 32 "):
        tilejax.filter_jit(read_past(17))(X)


def test_what_was_compiled_ahead_raises_wherever_it_is_called():
    with tilejax.checked():
        compiled = tilejax.jit(read_past(17)).lower(X).compile()
    with pytest.raises(KernelFault, match="index 32 "):
        compiled(X)
    with pytest.raises(TypeError, match="types differ"):
        compiled(X.astype(np.int32))


def test_a_call_after_a_fault_is_clean():
    run, good = tilejax.jit(read_past(17)), np.arange(64, dtype=np.float32)
    with tilejax.checked():
        for _ in range(3):
            with pytest.raises(KernelFault):
                run(X)
            np.testing.assert_array_equal(run(good), good[17:33])


def test_checked_and_unchecked_code_do_not_mix():
    run = tilejax.jit(read_past(16))
    texts = [run.lower(X).as_text() for _ in range(2)]
    with tilejax.checked():
        texts.append(run.lower(X).as_text())
    with tilejax.checked(static_only=True):
        texts.append(run.lower(X).as_text())
    unchecked, again, checked, static = (
        text.split("call_target_name" if "call_target_name" in text else "@tilejax_")[1]
        for text in texts
    )
    assert unchecked == again == static != checked


def test_a_jitted_function_is_checked_only_inside_of_the_block():
    long, run = np.arange(40, dtype=np.float32), tilejax.jit(read_past(17))

    def first(x):
        return run(x)[:1].tolist()

    short = long[:32]
    assert first(long) == [17]
    with tilejax.checked(), pytest.raises(KernelFault):
        run(short)
    assert first(short) == [17]  # and unspecified elements at its end
    with tilejax.checked(static_only=True):
        assert first(short) == [17]


def test_settings_go_on_and_off_for_the_process():
    try:
        tilejax.checked.enable()
        assert current().checked == "full"
        with tilejax.checked(static_only=True):
            assert current().checked == "static"
        tilejax.checked.enable(static_only=True)
        assert current().checked == "static"
    finally:
        tilejax.checked.disable()
    assert current().checked == "off"
    with pytest.raises(ParameterError, match="off, static, full"):
        with tilejax.options(checked=True):
            pass


_PROCESS = """
import tilejax
from tests.lowering.cpu.faulty import X, read_past
from tilejax.errors import KernelFault
run = tilejax.jit(read_past(17))
def told():
    try:
        return run(X)[0].item()
    except KernelFault:
        return "fault"
first = told()
with tilejax.checked():
    second = told()
print(first, second, told())
"""


def test_a_fresh_process_with_jaxs_disk_cache_keeps_them_apart(tmp_path):
    setting = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    setting["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    setting["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS],
            env=os.environ | setting,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["17.0", "fault", "17.0"]


def test_products_of_our_own_are_the_same_checked(rng):
    a, b = rng.normal(size=(2, 2, 70, 70)).astype(np.float32)
    config = MatmulConfig(32, 128, 128)
    (found,) = _same_checked(lambda a, b: matmul(a, b, config=config), a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)


def test_softmax_of_our_own_is_the_same_checked(rng):
    x = rng.normal(size=(37, 300)).astype(np.float32)
    config = SoftmaxConfig(16, 128)
    (found,) = _same_checked(lambda x: softmax(x, config=config), x)
    np.testing.assert_allclose(found, jax.nn.softmax(x), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_jaxs_attention_for_gpus_is_the_same_checked(rng):
    from jax.experimental.pallas.ops.gpu import attention

    q, k, v = rng.normal(size=(3, 1, 128, 2, 64)).astype(np.float32)
    (found,) = _same_checked(
        lambda q, k, v: attention.mha(q, k, v, None, causal=True), q, k, v
    )
    wanted = attention.mha_reference(q, k, v, None, causal=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_scalar_arithmetic_is_rounded_alike(rng):
    """Checks between a product and a sum must not keep them from being one, nor so."""

    def scalars(x_ref, y_ref):
        i = pl.program_id(0)
        product, last = x_ref[i, 0] * x_ref[i, 1], x_ref[i, 2]
        y_ref[i, :] = x_ref[i, :]
        y_ref[i, 0] = product + last
        y_ref[i, pl.ds(1, 1)] = product + x_ref[i, pl.ds(3, 1)]

    x = rng.normal(size=(64, 4)).astype(np.float32)
    _same_checked(call(scalars, like(64, 4), grid=(64,)), x)


def test_a_ragged_block_may_pass_the_end_of_its_array(rng):
    def double(x_ref, y_ref):
        y_ref[...] = 2 * x_ref[...]

    spec = pl.BlockSpec((16, 128), lambda i, j: (i, j))
    fun = call(double, like(37, 200), grid=(3, 2), in_specs=[spec], out_specs=spec)
    x = rng.normal(size=(37, 200)).astype(np.float32)
    (found,) = _same_checked(fun, x)
    np.testing.assert_array_equal(found, 2 * x)


def test_a_padded_block_may_start_before_its_array():
    def add(x_ref, y_ref):
        y_ref[...] = x_ref[pl.ds(0, 8)] + x_ref[pl.ds(1, 8)]

    fun = call(
        add,
        like(32),
        grid=(4,),
        in_specs=[pl.BlockSpec((pl.Element(9, (1, 0)),), lambda i: (8 * i,))],
        out_specs=pl.BlockSpec((8,), lambda i: (i,)),
    )
    (found,) = _same_checked(fun, X)
    np.testing.assert_array_equal(found[1:], X[1:] + X[:-1])


def test_known_indices_below_zero_count_from_the_end():
    def last(x_ref, y_ref):
        y_ref[...] = x_ref[:, -1] + x_ref[-2, -3]

    x = X.reshape(4, 8)
    (found,) = _same_checked(call(last, like(4)), x)
    np.testing.assert_array_equal(found, x[:, -1] + x[-2, -3])


def test_a_grid_of_a_dynamic_size_is_checked():
    def copy(x_ref, y_ref):
        y_ref[...] = x_ref[...]

    @tilejax.jit
    def fun(n, x):
        spec = pl.BlockSpec((8,), lambda i: (i,))
        return pl.pallas_call(
            copy, like(32), grid=(n,), in_specs=[spec], out_specs=spec
        )(x)

    with tilejax.checked():
        np.testing.assert_array_equal(fun(4, X), X)
        with pytest.raises(KernelFault, match=r"block of the .* starts at 32"):
            fun(5, X)
        with pytest.raises(KernelFault, match=r"element \(24\) is never written"):
            fun(3, X)


def _added(words, **settings):
    def add(x_ref, old_ref, y_ref):
        del old_ref
        plgpu.atomic_add(y_ref, (pl.ds(0, 8),), x_ref[...])

    spec = pl.BlockSpec((8,), lambda i: (i,))
    whole = pl.BlockSpec((8,), lambda i: (0,))
    return call(
        add,
        like(8),
        grid=(4,),
        in_specs=[spec, whole],
        out_specs=whole,
        compiler_params=semantics(*words),
        **settings,
    )


@pytest.mark.parametrize("word", ["parallel", "arbitrary"])
def test_atomics_of_parallel_steps_may_meet(word):
    if not hasattr(plgpu, "atomic_add"):
        pytest.skip("this JAX has no atomics in its Triton dialect")
    zeros, ones = np.zeros(8, np.float32), np.ones(32, np.float32)
    with tilejax.checked():
        found = tilejax.jit(_added([word], input_output_aliases={1: 0}))(ones, zeros)
        np.testing.assert_array_equal(found, np.full(8, 4))
        with pytest.raises(KernelFault, match=r"output y_ref.*has not been"):
            tilejax.jit(_added([word]))(ones, zeros)


def _locked(past: int):
    """Steps that add in turn; the last one may read too far while it has the lock."""

    def add(x_ref, lock_in, sum_in, lock_ref, sum_ref):
        del lock_in, sum_in
        i = pl.program_id(0)
        jax.lax.while_loop(
            lambda held: held == 1,
            lambda _: plgpu.atomic_cas(lock_ref, 0, 1),
            jnp.int32(1),
        )
        sum_ref[0] += x_ref[jnp.where(i == 3, i + past, i)]
        plgpu.atomic_xchg(lock_ref, (), 0)

    return call(
        add,
        [like(dtype=jnp.int32), like(1)],
        grid=(4,),
        input_output_aliases={1: 0, 2: 1},
        compiler_params=semantics("parallel"),
    )


def test_steps_with_a_lock_may_write_in_turn_and_a_fault_frees_all():
    if not hasattr(plgpu, "atomic_cas"):
        pytest.skip("this JAX has no atomics in its Triton dialect")
    lock, zero = np.int32(0), np.zeros(1, np.float32)
    with tilejax.checked():
        _, total = tilejax.jit(_locked(0))(X, lock, zero)
        np.testing.assert_array_equal(total, [6])
        with pytest.raises(KernelFault, match=r"input x_ref.*index 32 "):
            tilejax.jit(_locked(29))(X, lock, zero)


def test_an_output_that_shares_an_inputs_memory_need_not_be_written():
    def change(x_ref, y_ref):
        y_ref[pl.ds(0, 4)] = x_ref[pl.ds(0, 4)] + 1

    fun = call(change, like(32), input_output_aliases={0: 0})
    (found,) = _same_checked(fun, X)
    np.testing.assert_array_equal(found, X + (X < 4))


def test_copies_are_checked_as_reads_and_writes():
    def copy(filled):
        def kernel(x_ref, y_ref, scratch_ref, sem):
            if filled:
                pltpu.sync_copy(x_ref, scratch_ref)
            pltpu.async_copy(scratch_ref, y_ref, sem).wait()

        shapes = [pltpu.VMEM((32,), F32), pltpu.SemaphoreType.DMA]
        return call(kernel, like(32), scratch_shapes=shapes)

    np.testing.assert_array_equal(_same_checked(copy(True), X)[0], X)
    with tilejax.checked(), pytest.raises(KernelFault, match="read of the scratch"):
        tilejax.jit(copy(False))(X)


def test_calls_under_vmap_and_in_loops_are_checked():
    def fun(xs):
        step = lambda x, _: (jax.vmap(read_past(0))(x), None)  # noqa: E731
        return jax.lax.scan(step, xs, None, length=3)[0]

    xs = jnp.arange(48.0).reshape(3, 16)
    np.testing.assert_array_equal(_same_checked(fun, xs)[0], xs)
    with tilejax.checked(), pytest.raises(KernelFault, match=r"grid step \([012], 0\)"):
        tilejax.jit(jax.vmap(read_past(1)))(xs)
