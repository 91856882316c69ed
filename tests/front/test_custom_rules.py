"""Rules that users give: derivatives, batching; they are used, and not seen through."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from tests.front.agreement import check_agreement

X = jnp.linspace(0.5, 2.0, 4)


@jax.custom_jvp
def thrice(x, y):
    return jnp.sin(x) * y


@thrice.defjvp
def _(primals, tangents):
    return thrice(*primals), 3 * tangents[0] + 5 * tangents[1] * primals[0]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled(by, x):
    return x @ x * by


def _scaled_forward(by, x):
    return scaled(by, x), {"x": x}


def _scaled_backward(by, saved, cotangent):
    return (100 * by * cotangent * saved["x"],)


scaled.defvjp(_scaled_forward, _scaled_backward)


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.25, 0.25),))


def test_custom_jvp_agrees_and_is_used():
    def case(jit):
        f = jit(lambda x, y: thrice(x, y).sum())
        g = jax.grad(f, (0, 1))
        return g(X, X), jit(g)(X, X), jax.hessian(f)(X, X), jax.jvp(f, (X, X), (X, X))

    check_agreement(case)
    assert (case(jax.jit)[0][0] == 3).all()


def test_a_jitted_function_with_a_custom_jvp_agrees():
    def case(jit):
        f = jax.custom_jvp(jit(lambda x: x @ x))
        f.defjvp(lambda p, t: (f(*p), jit(lambda x, d: 7 * x @ d)(*p, *t)))
        return jit(jax.grad(f))(X), jax.vmap(jax.grad(f))(jnp.stack([X, X]))

    check_agreement(case)


def test_custom_vjp_agrees_and_is_used():
    def case(jit):
        f = jit(lambda x: scaled(2, jnp.sin(x)))
        return jax.grad(f)(X), jit(jax.grad(f))(X), jax.vmap(jax.grad(f))(X[:, None])

    check_agreement(case)
    want = 200 * jnp.sin(X) * jnp.cos(X)
    assert jnp.allclose(case(jax.jit)[0], want)


def test_a_custom_vjp_refuses_forward_derivatives_as_in_jax():
    def case(jit):
        try:
            return jax.jvp(jit(clipped), (X,), (X,))
        except TypeError as error:
            return str(error)

    check_agreement(case)


def test_custom_vjp_in_loops_and_batches_agrees():
    def case(jit):
        def f(x):
            step = jit(lambda c, _: (clipped(jnp.sin(c) * 2), c))
            return jax.lax.scan(step, x, None, length=3)[0].sum()

        return jax.grad(jit(f))(X), jax.vmap(jit(jax.grad(f)))(jnp.stack([X, -X]))

    check_agreement(case)


def test_a_custom_vjp_that_closes_over_a_tracer_agrees():
    def case(jit):
        def f(x):
            @jax.custom_vjp
            def g(y):
                return y * 2

            g.defvjp(lambda y: (g(y), y), lambda y, ct: (ct * jit(jnp.cos)(y) * 10,))
            return jit(g)(x).sum()

        return jit(jax.grad(f))(X)

    check_agreement(case)


def test_symbolic_zeros_reach_a_custom_rule_as_in_jax():
    def case(jit):
        seen = []

        @jax.custom_jvp
        def f(x, y):
            return x * y

        def rule(primals, tangents):
            seen.append([type(t).__name__ for t in tangents])
            return f(*primals), primals[1]

        f.defjvp(rule, symbolic_zeros=True)
        return jax.jvp(jit(lambda x: f(x, X)), (X,), (X,)), seen

    check_agreement(case)


def test_custom_vmap_agrees_and_is_used():
    def case(jit):
        @custom_vmap
        def f(x, y):
            return x + y

        @f.def_vmap
        def _(size, batched, x, y):
            return x * y + 10 * size, batched[0] or batched[1]

        g = jit(f)
        return g(X, X), jax.vmap(g)(X, X), jit(jax.vmap(g, (0, None)))(X, 2.0)

    check_agreement(case)
    assert jnp.allclose(case(jax.jit)[1], X * X + 40)


def test_custom_jvp_functions_of_jax_keep_their_rules():
    def case(jit):
        f = jit(lambda x: (jax.nn.relu(x) + jax.nn.silu(x)).sum())
        return jax.grad(f)(jnp.zeros(3)), jax.hessian(f)(jnp.zeros(2))

    check_agreement(case)


def test_custom_gradient_and_stop_gradient_agree():
    def case(jit):
        @jax.custom_gradient
        def f(x):
            return x**2, lambda g: g * 11

        h = jit(lambda x: (f(x) * jax.lax.stop_gradient(x @ x)).sum())
        return jax.grad(h)(X)

    check_agreement(case)
