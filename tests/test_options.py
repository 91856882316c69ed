"""Settings hold inside their block alone, and never reuse what others compiled."""

import threading

import jax
import jax.numpy as jnp
import pytest

import tilejax
from tests.front.agreement import counted
from tilejax.errors import ParameterError, TargetError
from tilejax.options import Options, current


def test_settings_hold_inside_the_block():
    assert current() == Options()
    with tilejax.options(fast_math=True):
        assert current() == Options(fast_math=True)
    assert current() == Options()


def test_an_inner_block_changes_only_what_it_names():
    with tilejax.options(fast_math=True, target="tpu:v5e"):
        with tilejax.options(kernels="reference", fast_math=False):
            assert current() == Options("tpu:v5e", "reference", False)
        assert current() == Options("tpu:v5e", "auto", True)
    assert current() == Options()


def test_an_exception_ends_the_block():
    with pytest.raises(ZeroDivisionError), tilejax.options(fast_math=True):
        raise ZeroDivisionError
    assert current() == Options()


@pytest.mark.parametrize("jit", [tilejax.jit, jax.jit, tilejax.filter_jit])
def test_a_change_traces_anew_and_the_way_back_does_not(jit):
    fn, calls = counted(lambda x: x * 2.0)
    run, x = jit(fn), jnp.ones(2)
    run(x)
    with tilejax.options(fast_math=True):
        run(x)
        run(x + 1)
    run(x + 2)
    assert len(calls) == 2
    with tilejax.options(kernels="reference"):
        run(x)
    assert len(calls) == 3


def test_settings_reach_the_passes_each_time():
    x = jnp.array([-0.0, jnp.inf])
    fn = tilejax.jit(lambda x: x * 0.0)
    assert jnp.isnan(fn(x)[1])
    with tilejax.options(fast_math=True):
        assert fn(x).tolist() == [0.0, 0.0]
    assert jnp.isnan(fn(x)[1])


def test_settings_reach_a_function_inside_another():
    inner = tilejax.jit(lambda x: x * 0.0)
    outer = jax.jit(lambda x: inner(x) + 1)
    assert jnp.isnan(outer(jnp.inf))
    with tilejax.options(fast_math=True):
        assert outer(jnp.inf) == 1.0


def test_the_target_chooses_kernels_in_explain():
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    with tilejax.options(target="tpu:v5e"):
        (kernel,) = tilejax.explain(lambda x: x @ x, x).kernels
        (other,) = tilejax.explain(lambda x: x @ x, x, target="gpu:h100").kernels
    assert (kernel.impl, other.impl) == ("native", "reference")


def test_a_function_for_a_target_is_explained_for_it():
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    fn = tilejax.jit(lambda x: x @ x, target="tpu:v5e")
    (own,) = tilejax.explain(fn, x).kernels
    (other,) = tilejax.explain(fn, x, target="gpu:h100").kernels
    assert (own.impl, other.impl) == ("native", "reference")


def test_a_thread_has_its_own_settings():
    seen = []
    inside = threading.Barrier(2, timeout=30)

    def other():
        seen.append(current())
        inside.wait()
        with tilejax.options(kernels="reference"):
            inside.wait()
            seen.append(current())
            inside.wait()

    with tilejax.options(fast_math=True):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()
        inside.wait()
        assert current() == Options(fast_math=True)
        inside.wait()
        thread.join()
    assert seen == [Options(), Options(kernels="reference")]


WRONG = {
    "a name that there is not": ({"fastmath": True}, "fastmath.*known are.*fast_math"),
    "kernels": ({"kernels": "fast"}, "auto, native, reference"),
    "kernels that are no text": ({"kernels": True}, "auto, native, reference"),
    "fast_math": ({"fast_math": "yes"}, "True or False"),
    "a target that is no text": ({"target": 3}, "name of a target"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_refused_in(case):
    given, message = WRONG[case]
    with pytest.raises(ParameterError, match=message), tilejax.options(**given):
        pass
    assert current() == Options()


def test_an_unknown_target_is_refused_when_something_is_traced():
    with tilejax.options(target="abacus"), pytest.raises(TargetError, match="abacus"):
        tilejax.jit(jnp.sin)(1.0)
