"""Second derivatives over Explicit axes that plain JAX, left alone, finds ambiguous."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from tests.primitives.shardings import mesh_of
from tilejax.primitives import attention, cross_entropy

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def _cross_entropy(logits, labels):
    picked = jnp.sum(logits * jax.nn.one_hot(labels, logits.shape[-1]), -1)
    return jax.nn.logsumexp(logits, -1) - picked


def _attention(q, k, v):
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores, -1), v)


def _gradient(f, *rest):
    return jax.grad(lambda x: jnp.sum(jnp.sin(f(x, *rest))))


def _reverse_twice(f, x, *rest):
    one = _gradient(f, *rest)
    return jax.grad(lambda y: jnp.sum(one(y) * jnp.cos(x)))(x)


def _forward_over_reverse(f, x, *rest):
    return jax.jvp(_gradient(f, *rest), (x,), (jnp.cos(x),))[1]


def _of_many(f, x, *rest):
    return jax.vmap(lambda y: _reverse_twice(f, y, *rest))(jnp.stack([x, 2 * x]))


def _third(f, x, *rest):
    two = lambda y: _forward_over_reverse(f, y, *rest)  # noqa: E731
    return jax.grad(lambda y: jnp.sum(two(y) * jnp.sin(x)))(x)


def _labels(rng):
    return [rng.normal(size=(8, 6)).astype("float32"), rng.integers(0, 6, 8)]


def _heads(rng):
    return [rng.normal(size=(4, 2, 8, 4)).astype("float32") for _ in range(3)]


CASES = {
    "labels": (cross_entropy, _cross_entropy, _labels, (P(), P("x"))),
    "queries": (attention, _attention, _heads, (P(None, None, "x"), P(), P())),
    "batch": (attention, _attention, _heads, (P("x"), P("x"), P("x"))),
}


@pytest.mark.parametrize(
    "derivative", [_reverse_twice, _forward_over_reverse, _of_many, _third]
)
@pytest.mark.parametrize("case", CASES)
def test_a_second_derivative_keeps_its_type(case, derivative, rng, eight_devices):
    ours, plain, make, specs = CASES[case]
    operands = make(rng)
    wanted = jax.jit(lambda *xs: derivative(plain, *xs))(*operands)
    mesh = mesh_of(8, AxisType.Explicit)
    with jax.set_mesh(mesh):
        placed = [
            jax.device_put(x, NamedSharding(mesh, s))
            for x, s in zip(operands, specs, strict=True)
        ]
        got = jax.jit(lambda *xs: derivative(ours, *xs))(*placed)
        if derivative is not _of_many:
            assert jax.typeof(got).sharding.spec == jax.typeof(placed[0]).sharding.spec
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-4, atol=2e-5)
