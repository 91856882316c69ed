"""What JAX can check or change from outside: checkify, NaNs, types, contexts, keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import tilejax
from tests.front.agreement import check_agreement, outcome

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)

ERRORS = {
    "user": checkify.user_checks,
    "nan": checkify.nan_checks,
    "index": checkify.index_checks,
    "div": checkify.div_checks,
    "all": checkify.all_checks,
}


def _checked(x, i):
    checkify.check(x[0, 0] > -2, "first is {a}", a=x[0, 0])
    y = jnp.log(x @ x.T) / x[0, 0]
    return y[i, 0] + jax.nn.softmax(y).sum()


GOOD = (jnp.ones((2, 3)), 1)
BAD = [(X.at[0, 0].set(-3), 0), (-jnp.ones((2, 3)) * jnp.inf, 0), (X, 7), (X * 0, 0)]


def _kind_of_error(text):
    """Say what went wrong, without where: which of several NaNs is first may differ."""
    kinds = ("first is", "nan generated", "out-of-bounds", "division by zero")
    return [k for k in kinds if text and k in text]


@pytest.mark.parametrize("name", ERRORS)
def test_checkify_around_and_inside_agrees(name):
    def case(jit):
        around = checkify.checkify(jit(_checked), errors=ERRORS[name])
        inside = jit(checkify.checkify(_checked, errors=ERRORS[name]))
        found = []
        for args in (GOOD, *BAD):
            for f in (around, inside):
                error, _ = f(*args)
                found.append(_kind_of_error(error.get()))
        return found

    check_agreement(case)


def test_checkify_in_loops_and_batches_agrees():
    def case(jit):
        def step(c, x):
            checkify.check(c < 3, "too far")
            return c + x, c

        f = jit(lambda xs: jax.lax.scan(step, 0.0, xs)[0])
        checked = checkify.checkify(f)
        batched = checkify.checkify(
            jax.vmap(jit(lambda x: jnp.log(x))), errors=ERRORS["nan"]
        )
        return [
            checked(jnp.ones(3))[0].get(),
            _kind_of_error(checked(jnp.ones(9))[0].get()) or "too far",
            _kind_of_error(batched(jnp.array([1.0, -1.0]))[0].get()),
        ]

    check_agreement(case)


def test_a_check_outside_checkify_is_the_same_error():
    def case(jit):
        def f(x):
            checkify.check(x > 0, "no")
            return x

        return outcome(jit(f), 1.0)

    check_agreement(case)


@pytest.mark.parametrize("setting", [jax.debug_nans, jax.debug_infs])
def test_debugging_of_nans_and_infinities_agrees(setting):
    def f(x):
        return jnp.log(x @ x.T) + 1

    bad, zeros = X * jnp.nan, X * 0

    def case(jit):
        with setting(True):
            return (
                outcome(jit(f), bad),
                outcome(jit(lambda x: 1 / x), zeros),
                outcome(jit(jax.grad(lambda x: jnp.sqrt(x))), 0.0),
                jit(f)(jnp.ones((2, 3))),
            )

    check_agreement(case)
    assert "FloatingPointError" in case(tilejax.jit)


def test_disable_jit_agrees_and_runs_the_function_itself():
    def case(jit):
        seen = []

        def f(x):
            seen.append(type(x).__name__)
            return jnp.sum(x @ x.T) if x[0, 0] < 0 else x.sum()

        with jax.disable_jit():
            return jit(f)(X), jax.vmap(jit(jnp.sin))(X), jax.grad(jit(jnp.sum))(X), seen

    check_agreement(case)


def test_x64_agrees_and_is_part_of_the_key():
    def case(jit):
        f = jit(lambda x: (x @ x.T, 1.5, jnp.arange(3), x.sum() * 2))
        narrow = f(np.ones((2, 3)))
        with jax.enable_x64(True):
            wide = f(np.ones((2, 3)))
            integers = jit(lambda i: i * 2)(2**40)
        return narrow, wide, integers, f(np.ones((2, 3)))

    check_agreement(case)


def test_integers_that_overflow_agree():
    def case(jit):
        f = jit(lambda x: x + 1)
        big = jnp.array(2**31 - 1)
        return f(big), f(jnp.int8(127)), outcome(f, 2**40), jit(lambda: big * 2)()

    check_agreement(case)


def test_weak_types_agree():
    def f(x, y):
        return x, x * 2.0, x + y, jnp.where(True, x, 1), x**2, jnp.sin(y), 3 * y

    def case(jit):
        half = jnp.ones(2, jnp.float16)
        g = jit(f)
        return g(1.0, half), g(half, 2), g(1, 2), jax.vmap(g, (None, 0))(1, half)

    check_agreement(case)


@pytest.mark.parametrize("precision", ["highest", "bfloat16", "tensorfloat32"])
def test_the_default_precision_reaches_the_product(precision):
    def case(jit):
        f = jit(lambda x: x @ x.T)
        with jax.default_matmul_precision(precision):
            inside = f.lower(X).as_text()
            value = f(X)
        texts = inside, f.lower(X).as_text()
        kinds = "HIGHEST", "HIGH,", "DEFAULT"
        return value, [[kind in text for kind in kinds] for text in texts]

    check_agreement(case)


def test_precision_and_preferred_types_of_a_product_agree():
    def case(jit):
        small = X.astype(jnp.bfloat16)

        def f(x, y):
            return (
                jnp.matmul(x, y.T, precision="highest"),
                jax.lax.dot(y, y.T, preferred_element_type=jnp.float32),
                jnp.einsum("ij,kj->ik", y, y, preferred_element_type=jnp.float32),
            )

        text = jit(f).lower(X, small).as_text()
        return jit(f)(X, small), text.count("HIGHEST")

    check_agreement(case)


def test_prng_keys_agree():
    def f(key):
        one, two = jax.random.split(key)
        drop = jax.random.bernoulli(two, 0.5, (3,))
        return one, jax.random.normal(one, (2, 3)), drop, jax.random.fold_in(key, 3)

    def case(jit):
        keys = jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(1, impl="rbg")
        g = jit(f)
        many = jax.random.split(keys[0], 3)

        def step(key, _):
            key, drawn = jax.random.split(key)
            return key, drawn

        loop = jit(lambda k: jax.lax.scan(step, k, None, 3))
        return [g(k) for k in keys], jax.vmap(g)(many), loop(keys[0])

    check_agreement(case)


def test_leaked_tracers_are_found_as_in_jax():
    def case(jit):
        kept = []

        def f(x):
            kept.append(x * 2)
            return x

        with jax.check_tracer_leaks():
            clean = jit(lambda x: jax.grad(lambda y: y @ x)(x))(X[0])
            leaking = outcome(jit(f), 1.0)
            kept.clear()
        jit(f)(2.0)
        return clean, leaking, outcome(lambda: kept[0] + 1)

    check_agreement(case)


def test_concrete_values_are_refused_as_in_jax():
    def case(jit):
        fs = [
            lambda x: 1 if x[0, 0] > 0 else 2,
            lambda x: range(x[0, 0].astype(int)),
            lambda x: np.asarray(x),
            lambda x: jnp.ones(x.sum().astype(int)),
            lambda x: x[x > 0],
            lambda x: float(x.sum()),
        ]
        return [outcome(jit(f), X) for f in fs]

    check_agreement(case)
