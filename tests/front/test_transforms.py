"""Each transformation of each model, under `tilejax.jit` and `jax.jit`."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree

from tests.front.agreement import check_agreement
from tests.front.models import MODELS

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def call(jit, f, p, x):
    return jit(f)(p, x)


def grad(jit, f, p, x):
    return jax.grad(jit(f), argnums=(0, 1))(p, x)


def jitted_grad(jit, f, p, x):
    return jit(jax.value_and_grad(f, argnums=(0, 1)))(p, x)


def jit_of_grad_of_jit(jit, f, p, x):
    return jax.jit(jax.grad(jit(f)))(p, x)


def jit_of_grad_of_jax_jit(jit, f, p, x):
    return jit(jax.grad(jax.jit(f)))(p, x)


def grad_with_aux(jit, f, p, x):
    g = jit(lambda p, x: (f(p, x), {"twice": x * 2, "no": None}))
    return jax.value_and_grad(g, has_aux=True)(p, x)


def jvp(jit, f, p, x):
    tangents = jax.tree.map(jnp.cos, (p, x))
    return jax.jvp(jit(f), (p, x), tangents), jit(partial(jax.jvp, f))((p, x), tangents)


def vjp(jit, f, p, x):
    out, pull = jax.vjp(jit(lambda p, x: f(p, x) * x), p, x)
    return out, pull(jnp.cos(x)), jax.jit(pull)(x)


def jacobians(jit, f, p, x):
    g = jit(lambda x: f(p, x) + x[0])
    return jax.jacfwd(g)(x), jax.jacrev(g)(x), jit(jax.jacfwd(g))(x)


def hessian(jit, f, p, x):
    flat, back = ravel_pytree(p)
    g = jit(lambda flat: f(back(flat), x))
    return jax.hessian(g)(flat)


def reverse_over_reverse(jit, f, p, x):
    g = jax.grad(jit(f), argnums=1)
    return jax.grad(lambda x: jnp.sum(jnp.sin(g(p, x))))(x)


def linearize(jit, f, p, x):
    out, push = jax.linearize(jit(f), p, x)
    return out, push(p, x), jax.vmap(push)(*jax.tree.map(lambda a: a[None], (p, x)))


def vmap(jit, f, p, x):
    xs = jnp.stack([x, x + 1, x * 2])
    over = partial(jax.vmap, in_axes=(None, 0))
    return over(jit(f))(p, xs), jit(over(f))(p, xs), jit(over(jit(f)))(p, xs)


def vmap_of_all(jit, f, p, x):
    ps, xs = jax.tree.map(lambda a: jnp.stack([a, a + 1], axis=-1), (p, x))
    return jax.vmap(jit(f), in_axes=-1)(ps, xs)


def vmap_of_grad(jit, f, p, x):
    xs = jnp.stack([x, x + 1])
    return jax.vmap(jax.grad(jit(f)), in_axes=(None, 0))(p, xs)


def grad_of_vmap(jit, f, p, x):
    xs = jnp.stack([x, x + 1])
    return jax.grad(lambda p: jnp.sum(jax.vmap(jit(f), (None, 0))(p, xs) ** 2))(p)


def remat(jit, f, p, x):
    return jax.grad(jax.checkpoint(jit(f)))(p, x), jit(jax.grad(jax.checkpoint(f)))(
        p, x
    )


def types(jit, f, p, x):
    g = jit(jax.value_and_grad(f))
    shapes = jax.eval_shape(g, p, x), g.eval_shape(p, x)
    made, out = jax.make_jaxpr(g, return_shape=True)(p, x)
    return str(shapes), str(out), [str(v.aval) for v in made.jaxpr.outvars]


ALL = (call, jitted_grad, vmap)
SOME = (
    grad,
    jit_of_grad_of_jit,
    jit_of_grad_of_jax_jit,
    grad_with_aux,
    jvp,
    vjp,
    jacobians,
    hessian,
    reverse_over_reverse,
    linearize,
    vmap_of_all,
    vmap_of_grad,
    grad_of_vmap,
    remat,
    types,
)
# Every model under the first, and each of the others on two models in turn.
NAMES = list(MODELS)
PAIRS = [(t, name) for t in ALL for name in NAMES] + [
    (t, NAMES[(2 * i + j) % len(NAMES)]) for i, t in enumerate(SOME) for j in (0, 3)
]


@pytest.mark.parametrize(("transform", "name"), PAIRS)
def test_a_model_agrees_under_the_transform(transform, name):
    model, args = MODELS[name]
    check_agreement(lambda jit: transform(jit, model, *args), rtol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_agrees_in_other_dtypes(name):
    model, args = MODELS[name]
    dtypes = [jnp.bfloat16, jnp.float16]
    if name == "attended":  # JAX's own asks for a product that no CPU has in float16
        dtypes.pop()

    def case(jit):
        return [jit(jax.value_and_grad(model))(*jax.tree.map(t, args)) for t in dtypes]

    check_agreement(case)


def test_a_model_agrees_in_float64(x64):
    for name in ("dense", "normalised", "convolved"):
        model, args = MODELS[name]
        wide = jax.tree.map(lambda a: a.astype(jnp.float64), args)

        def case(jit, model=model, wide=wide):
            return jit(jax.value_and_grad(model))(*wide)

        check_agreement(case, rtol=1e-13)


def test_linear_transpose_agrees():
    w = MODELS["dense"][1][0]["w"]

    def case(jit):
        x = jax.ShapeDtypeStruct((3, 4), jnp.float32)
        back = jax.linear_transpose(jit(lambda x: {"y": x @ w, "z": 2 * x.T}), x)
        return back({"y": jnp.ones((3, 6)), "z": jnp.ones((4, 3))})

    check_agreement(case)


def test_closures_over_arrays_and_outer_tracers_agree():
    model, (p, x) = MODELS["dense"]

    def case(jit):
        def outer(x, s):
            inner = jit(lambda y: model(p, y * x) * s)
            return jit(lambda: inner(x) + inner(x + 1))()

        g = jax.grad(outer, argnums=(0, 1))
        return g(x, 2.0), jit(g)(x, 2.0), jax.vmap(g, (None, 0))(x, jnp.arange(3.0))

    check_agreement(case, rtol=2e-5)


def test_closures_in_loops_agree():
    def case(jit):
        def outer(x):
            def step(carry, y):
                return jit(lambda c: jnp.sin(c @ x) + y)(carry), carry

            return jax.lax.scan(step, x, jnp.arange(3.0))

        return jit(outer)(jnp.eye(3)), jax.jacrev(outer)(jnp.eye(3))

    check_agreement(case)
