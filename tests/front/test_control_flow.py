"""Loops and branches: `tilejax.jit` around them, inside them, and both."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.front.agreement import check_agreement

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = jnp.linspace(-1.0, 1.0, 9).reshape(3, 3)


def scan(jit, x):
    def step(carry, row):
        carry = jnp.tanh(carry @ x + row)
        return carry, (carry.sum(), row)

    return lax.scan(step, x[0], x, unroll=2), lax.scan(step, x[0], x, reverse=True)


def scan_of_jit(jit, x):
    return lax.scan(jit(lambda c, row: (jnp.sin(c @ x), c * row)), x[0], x)


def while_loop(jit, x):
    return lax.while_loop(
        lambda s: (s[0] < 3) | ((s[1].sum() < 9) & (s[0] < 6)),
        lambda s: (s[0] + 1, s[1] @ x * 0.5 + 1),
        (0, x),
    )


def while_of_jit(jit, x):
    less = jit(lambda s: s[0] < 4)
    return lax.while_loop(less, jit(lambda s: (s[0] + 1, jnp.cos(s[1] @ x))), (0, x))


def fori_loop(jit, x):
    return lax.fori_loop(0, 3, jit(lambda i, c: c @ x + i), x)


def fori_loop_to_a_traced_bound(jit, x):
    return lax.fori_loop(0, x.sum().astype(int) + 2, lambda i, c: c * 2, 1)


def cond(jit, x):
    yes, no = jit(lambda x: x @ x), jit(lambda x: jax.nn.softmax(x))
    return lax.cond(x.sum() > 1, yes, no, x), lax.cond(x[0, 0] < 0, yes, no, x)


def cond_of_a_constant(jit, x):
    return lax.cond(jnp.bool_(True), lambda: x + 1, lambda: x - 1)


def switch(jit, x):
    branches = [jit(lambda x, k=k: x @ x * k) for k in range(3)]
    at = jnp.array([-4, 0, 1, 9])
    return jax.vmap(lambda i: lax.switch(i, branches, x))(at), lax.switch(
        1, branches, x
    )


def lax_map(jit, x):
    return lax.map(jit(lambda r: r @ x), x), lax.map(jnp.sin, x, batch_size=2)


def associative_scan(jit, x):
    return lax.associative_scan(jit(lambda a, b: a @ b), jnp.stack([x] * 5))


def nested_loops(jit, x):
    def outer(c, row):
        inner = lax.fori_loop(0, 2, lambda i, v: jit(lambda v: v @ x)(v), row)
        return lax.cond(c.sum() > 0, lambda: c + inner, lambda: c - inner), inner

    return lax.scan(outer, x[0], x)


def root(jit, x):
    return lax.custom_root(
        jit(lambda y: y**3 - x.sum() - 2),
        1.0,
        lambda f, y: lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2), y),
        lambda g, y: y / g(1.0),
    )


FORWARD_ONLY = (while_loop, while_of_jit, fori_loop_to_a_traced_bound)
REVERSIBLE = (
    scan,
    scan_of_jit,
    fori_loop,
    cond,
    cond_of_a_constant,
    switch,
    lax_map,
    associative_scan,
    nested_loops,
    root,
)


@pytest.mark.parametrize("loop", FORWARD_ONLY + REVERSIBLE)
def test_control_flow_agrees(loop):
    def case(jit):
        f = jit(lambda x: loop(jit, x))
        return jax.vmap(f)(jnp.stack([X, -X])), jax.jvp(f, [X], [X])

    check_agreement(case, rtol=1e-5)


@pytest.mark.parametrize("loop", REVERSIBLE)
def test_derivatives_of_control_flow_agree(loop):
    def total(jit):
        def run(x):
            leaves = jax.tree.leaves(loop(jit, x))
            return sum(jnp.sum(jnp.sin(y)) for y in leaves)

        return run

    def case(jit):
        f = total(jit)
        return jax.grad(f)(X), jit(jax.grad(f))(X)

    check_agreement(case, rtol=1e-5)


def test_a_reverse_derivative_of_a_while_loop_is_the_same_error():
    def case(jit):
        f = jit(lambda x: while_loop(jit, x)[1].sum())
        with pytest.raises(ValueError, match=r"[Rr]everse-mode") as error:
            jax.grad(f)(X)
        return type(error.value).__name__

    check_agreement(case)


def test_carries_that_change_their_type_are_the_same_error():
    def case(jit):
        with pytest.raises(TypeError) as error:
            jit(lambda x: lax.scan(lambda c, _: (c[0], None), x, None, length=2))(X)
        return str(error.value).splitlines()[0]

    check_agreement(case)
