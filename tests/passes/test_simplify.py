from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text
from tilejax.passes.dce import drop_dead
from tilejax.passes.record import collecting
from tilejax.passes.simplify import simplify

X = np.array([[-0.0, 0.0, np.inf], [np.nan, -2.5, 7.0]], np.float32)
ONE, ZERO = np.ones_like(X), np.zeros_like(X)
fast = partial(simplify, fast_math=True)

LAWS = {
    "times one": lambda x: x * 1.0,
    "one times": lambda x: 1.0 * x,
    "times ones": lambda x: x * jnp.ones(x.shape, x.dtype),
    "by one": lambda x: x / 1.0,
    "power of one": lambda x: lax.integer_pow(x, 1),
    "float power of one": lambda x: x**1.0,
    "plus minus zero": lambda x: x + -0.0,
    "minus zero": lambda x: x - 0.0,
    "negated twice": lambda x: lax.neg(lax.neg(x)),
    "transposed there and back": lambda x: x.T.T,
    "transposed in the same order": lambda x: lax.transpose(x, (0, 1)),
    "reshaped there and back": lambda x: x.reshape(-1).reshape(x.shape),
    "converted to what it is": lambda x: lax.convert_element_type_p.bind(
        x, new_dtype=x.dtype, weak_type=False, sharding=None
    ),
    "a select by a known predicate": lambda x: lax.select_n(True, -x, x),
    "a select between equals": lambda x: lax.select_n(x > 0, x, x),
}


@pytest.mark.parametrize("law", LAWS)
def test_simplify_uses_the_law_of(law, after):
    program = after(simplify, LAWS[law], X)
    assert program.outvars[0] is program.invars[0]


NOT_LAWS = {
    "plus zero": lambda x: x + 0.0,
    "zero minus": lambda x: 0.0 - x,
    "minus minus zero": lambda x: x - -0.0,
    "times zero": lambda x: x * 0.0,
    "minus itself": lambda x: x - x,
    "by itself": lambda x: x / x,
    "one by": lambda x: 1.0 / x,
    "power of minus one": lambda x: lax.integer_pow(x, -1),
    "log of exp": lambda x: lax.log(lax.exp(x)),
    "to a narrower type and back": lambda x: x.astype(jnp.float16).astype(x.dtype),
    "weakly typed one": lambda x: lax.convert_element_type_p.bind(
        x, new_dtype=x.dtype, weak_type=True, sharding=None
    ),
    "factors": lambda x: (x * 3.0) * 0.1,
    "a select by a predicate of the input": lambda x: lax.select_n(x > 0, x, -x),
    "checkpoint_name": lambda x: checkpoint_name(x, "x"),
}


@pytest.mark.parametrize("law", NOT_LAWS)
def test_simplify_knows_no_law_of(law, after):
    before, _ = trace(NOT_LAWS[law], X)
    assert as_text(after(simplify, NOT_LAWS[law], X)) == as_text(before)


@pytest.mark.parametrize(
    "fn, left",
    [
        (lambda x: x + 0.0, 0),
        (lambda x: 0.0 + x, 0),
        (lambda x: x * 0.0, 1),
        (lambda x: x - x, 1),
        (lambda x: lax.log(lax.exp(x)), 1),  # the exp is dead, not gone
        (lambda x: (x * 3.0) * 0.5, 2),  # and so is the inner product
    ],
)
def test_fast_math_uses_laws_of_real_numbers(fn, left):
    before, _ = trace(fn, jax.ShapeDtypeStruct((2, 3), jnp.float32))
    program = fast(before)
    assert len(program.eqns) == left
    assert [v.aval for v in program.outvars] == [v.aval for v in before.outvars]
    assert fast(program) is program


def test_fast_math_gathers_factors(names, one_by_one):
    program = fast(trace(lambda x: ((x * 2.0) * 3.0) * 4.0, X)[0])
    np.testing.assert_array_equal(one_by_one(program, [ONE])[0], 24 * ONE)


def test_simplify_merges_chains_of_shapes(after, golden):
    def f(x):
        y = x.reshape(3, 2).reshape(1, 6).reshape(6, 1)
        z = x.transpose(1, 0, 2).transpose(2, 1, 0)
        w = jnp.broadcast_to(jnp.broadcast_to(x[0, 0], (2, 1)), (3, 2, 1))
        one = x[:1].sum(0) + x[:1].max(0)
        return y, z, w, one, lax.neg(lax.neg(x / 1.0 * 1.0))

    golden("simplify", as_text(after(simplify, f, X.reshape(1, 2, 3)[..., None][0])))


def test_integers_know_more_laws(after):
    whole = jnp.arange(6, dtype=jnp.int32).reshape(2, 3)
    for fn in (lambda x: x + 0, lambda x: 0 + x, lambda x: x - 0, lambda x: ~~x):
        program = after(simplify, fn, whole)
        assert program.outvars[0] is program.invars[0]


@pytest.mark.parametrize("there", [jnp.float32, jnp.float64])
def test_a_wider_type_and_back_is_nothing(there, after, x64):
    def f(x):
        return x.astype(there).astype(x.dtype)

    for dtype in (jnp.bfloat16, jnp.float16):
        program = after(simplify, f, jnp.asarray(X, dtype))
        assert program.outvars[0] is program.invars[0]


def test_simplify_keeps_a_weak_type(after):
    def f(x):
        return x * 1.0, lax.convert_element_type(2.0, jnp.float32) * x

    after(simplify, f, 3.0)


def test_simplify_works_inside_bodies(after):
    def f(x):
        y, _ = lax.scan(lambda c, _: (c * 1.0 + c, None), x, length=2)
        y = lax.while_loop(
            lambda c: c[0, 1] * 1.0 < 3, lambda c: lax.neg(lax.neg(c)) + 1.0, y
        )
        y = lax.cond(y[0, 1] > 0, lambda c: c / 1.0, lambda c: c - 0.0, y)
        return jax.checkpoint(lambda c: c.T.T)(y)

    with collecting() as notes:
        program = after(simplify, f, X)
    assert notes.total() >= 6
    left = as_text(drop_dead(program))
    assert "neg" not in left and "transpose" not in left


def test_simplify_keeps_sharding_types(eight_devices):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((8, 2)), jax.sharding.PartitionSpec("x"))

        def f(x):
            y = x.T.T.reshape(8, 1, 2).reshape(8, 2) * 1.0
            return jax.reshard(y, jax.sharding.PartitionSpec(None, None))

        before, _ = trace(f, x)
        program = simplify(before)
        assert [v.aval for v in program.outvars] == [v.aval for v in before.outvars]
        assert "mul" not in as_text(program) and "reshard" in as_text(program)
