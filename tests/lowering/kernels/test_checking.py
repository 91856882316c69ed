"""The checks of the other tests see what they are there to see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.lowering.kernels.agreement import assert_agree, exact_cotangents
from tests.lowering.kernels.pairwise import pairwise


def planted(kernel, x, interpret, block=(8, 128), out_index=lambda i: (i, 0)):
    """Run a kernel over blocks of rows on two cores."""
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec(block, lambda i: (i, 0))],
        out_specs=pl.BlockSpec(block, out_index),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x)


PARAMS = pltpu.InterpretParams(
    detect_races=True, uninitialized_memory="nan", num_cores_or_threads=2
)


@pytest.fixture(autouse=True)
def clean_interpreter():
    yield
    pltpu.reset_tpu_interpret_mode_state()


def test_two_cores_that_write_one_block_are_a_race(capfd):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    try:
        planted(kernel, jnp.ones((16, 128)), PARAMS, out_index=lambda i: (0, 0))
        raised = ""
    except Exception as error:  # JAX 0.12 raises, and wraps what it raises
        raised = str(error)
    assert "RACE DETECTED" in raised + "".join(capfd.readouterr())


def test_a_read_past_the_end_of_a_block_is_refused():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(4 * (pl.program_id(0) + 1), 8), :]

    with pytest.raises(Exception, match="Out-of-bounds read"):
        jax.block_until_ready(planted(kernel, jnp.ones((16, 128)), PARAMS))


def test_a_block_past_the_end_of_its_array_holds_nan():
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref) + jnp.sum(x_ref[...])

    out = planted(kernel, jnp.ones((11, 128)), PARAMS)
    assert np.all(out[:8] == 8 * 128) and np.isnan(out[8:]).all()


def test_agreement_sees_a_wrong_value_shape_nan_and_infinity():
    want = np.array([1.0, 2.0, np.nan, np.inf])
    assert_agree(jnp.array(want, "float32"), want, "float32")
    for wrong in ([1.0, 2.1, np.nan, np.inf], [1.0, 2.0, 3.0, np.inf]):
        with pytest.raises(AssertionError):
            assert_agree(jnp.array(wrong), want, "float32")
    with pytest.raises(AssertionError):
        assert_agree(jnp.array([1.0, 2.0, np.nan, -np.inf]), want, "float32")
    with pytest.raises(AssertionError, match="for"):
        assert_agree(jnp.zeros(3), want, "float32")


def test_exact_cotangents_pass_over_integers_and_absent_operands():
    def f(x, index, absent):
        return x[index] ** 2, jnp.sum(x)

    x, index = jnp.array([1.0, 3.0]), jnp.array([1])
    dx, dindex, dabsent = exact_cotangents(f, (jnp.ones(1), None), x, index, None)
    assert dx.dtype == np.float64 and dx.tolist() == [0.0, 6.0]
    assert dindex is dabsent is None


def test_pairwise_meets_every_pair_with_few_cases():
    options = {"a": [1, 2, 3], "b": "xy", "c": [None, [0]], "d": [True, False]}
    cases = pairwise(options)
    assert len(cases) < 10
    for one in options:
        for other in options:
            for x in options[one]:
                for y in options[other]:
                    if one != other:
                        assert any(c[one] == x and c[other] == y for c in cases)
