import contextlib
import itertools
from functools import partial

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import consts, trace
from tilejax._jax.values import compute
from tilejax.ir import as_text
from tilejax.passes.exact import exactly
from tilejax.passes.fold import fold_constants

TABLE = np.linspace(-1, 1, 5, dtype=np.float32)


def test_fold_computes_what_depends_on_no_input(after, golden):
    def f(x):
        y, _ = lax.scan(lambda c, a: (c * jnp.sqrt(16.0) + a, None), x[0], x)
        return y / lax.rsqrt(4.0), x * lax.abs(TABLE)

    golden("fold", as_text(after(fold_constants, f, jnp.arange(5.0))))


def test_fold_gives_the_value_that_jax_gives(after):
    # A cosine that NumPy and XLA round differently is XLA's.
    program = after(fold_constants, lambda x: x + lax.cos(lax.exp(TABLE)), TABLE)
    assert np.asarray(consts(program)[-1]).tobytes() == (
        np.asarray(lax.cos(lax.exp(TABLE))).tobytes()
    )


def test_fold_keeps_signed_zeros_and_nan(after, names):
    def f(x):
        return x / (0.0 * lax.neg(1.0)), x + lax.log(lax.neg(1.0)), -(x * 0.0)

    assert names(after(fold_constants, f, 1.0)) == ["div", "add", "mul", "neg"]


def test_fold_never_makes_more_of_less(after, names):
    def f(x):
        return x + jnp.arange(4) * jnp.ones((4,), int)

    kept = names(after(fold_constants, f, jnp.zeros(4, int)))
    assert "iota" in kept and "broadcast_in_dim" in kept


def test_fold_keeps_to_its_limit(after, names):
    big = np.ones(100, np.float32)
    kept = after(
        partial(fold_constants, max_elements=99), lambda x: x + lax.neg(big), big
    )
    assert names(kept) == ["neg", "add"]
    done = after(
        partial(fold_constants, max_elements=100), lambda x: x + lax.neg(big), big
    )
    assert names(done) == ["add"]


def test_fold_leaves_random_numbers_and_keys(after, names):
    def f(x):
        key = jax.random.key(0)
        return x + jax.random.uniform(key), x + jax.random.bits(jax.random.PRNGKey(1))

    program, _ = trace(f, jnp.float32(0))
    before = as_text(program)
    for kind in ("random_seed", "random_bits", "random_wrap"):
        assert as_text(fold_constants(program)).count(kind) == before.count(kind)


def test_fold_leaves_effects_and_callbacks(names):
    def f(x):
        jax.debug.print("{}", 1.0)
        return x + jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), 1.0)

    before, _ = trace(f, 1.0)
    assert names(fold_constants(before)) == names(before)


def test_fold_leaves_values_of_an_outer_trace(names):
    seen = []

    @jax.jit
    def outer(y):
        program, _ = trace(lambda x: x + lax.sin(y), 1.0)
        seen.append(names(fold_constants(program)))
        return y

    outer(jnp.float32(1))
    assert "sin" in seen[0] and "add" in seen[0]


def test_fold_leaves_an_array_that_the_user_placed(names, eight_devices):
    placed = jax.device_put(TABLE, eight_devices[1])
    program, _ = trace(lambda x: x + lax.neg(placed), TABLE)
    assert names(fold_constants(program)) == ["neg", "add"]


def test_fold_leaves_collectives_and_places(eight_devices):
    mesh = jax.sharding.Mesh(np.array(eight_devices), ("x",))
    spec = jax.sharding.PartitionSpec("x")

    def f(x):
        return x + lax.axis_index("x") * lax.psum(2, "x") + jnp.sqrt(4.0)

    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    program, _ = trace(mapped, jnp.arange(8.0))
    folded = as_text(fold_constants(program))
    assert folded.count("axis_index") == as_text(program).count("axis_index") == 1


def test_fold_works_under_debug_nans_and_transfer_guard(names):
    with jax.debug_nans(True), jax.transfer_guard("disallow"):
        program, _ = trace(lambda x: x + lax.log(-1.0), jax.ShapeDtypeStruct((), "f4"))
        assert names(fold_constants(program)) == ["add"]


OPERATIONS = [
    *(lax.add, lax.sub, lax.mul, lax.div, lax.eq, lax.ne, lax.lt, lax.le, lax.gt),
    *(lax.ge, lax.neg, lax.sqrt, lax.bitwise_and, lax.bitwise_not),
    *(partial(lax.convert_element_type, new_dtype=t) for t in ("f4", "i4", "?", "i1")),
    lambda a, b: lax.select_n(a > b, a, b),
]
SCALARS = {
    "f4": st.floats(width=32, allow_subnormal=True),
    "i4": st.integers(-(2**31), 2**31 - 1),
    "u1": st.integers(0, 255),
    "?": st.booleans(),
}


@pytest.mark.parametrize("dtype", SCALARS)
@hypothesis.settings(max_examples=15)
@hypothesis.given(data=st.data())
def test_numpy_is_used_only_where_it_agrees_with_jax(dtype, data):
    values = [np.asarray(data.draw(SCALARS[dtype]), dtype) for _ in range(2)]
    for fn, arity in itertools.product(OPERATIONS, (1, 2)):
        with contextlib.suppress(TypeError):  # of another number or type of operands
            _check_exact(fn, values[:arity])


def _check_exact(fn, values):
    program, _ = trace(fn, *values)
    if len(program.eqns) != 1:
        return
    (eqn,) = program.eqns
    exact = exactly(eqn, values)
    if exact is not None:
        (want,) = compute(eqn, values)
        assert exact.dtype == want.dtype
        np.testing.assert_array_equal(exact, want)
        if exact.dtype.kind == "f":
            both_nan = np.isnan(exact) & np.isnan(want)
            assert both_nan or np.signbit(exact) == np.signbit(want)
