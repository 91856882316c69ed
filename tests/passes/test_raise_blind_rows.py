"""A query that a bias of -inf keeps from every key has NaN weights, as in plain JAX."""

import jax
import jax.numpy as jnp
import numpy as np

import tilejax
from tilejax.ir import walk


def _attention(q, k, v):
    rows = jnp.arange(q.shape[2])[:, None]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) + jnp.where(rows > 2, 0.0, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


def test_values_and_gradients_are_nan_where_jax_has_them(rng):
    q, k, v = (rng.normal(size=(2, 3, 6, 4)).astype("float32") for _ in range(3))
    ours = tilejax.jit(_attention)
    names = [visit.eqn.primitive.name for visit in walk(ours.tile(q, k, v).after)]
    assert "tiled_attention" in names
    out, back = jax.vjp(ours, q, k, v)
    wanted, wanted_back = jax.vjp(jax.jit(_attention), q, k, v)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    ones = jnp.ones_like(out)
    for got, want in zip(back(ones), wanted_back(ones), strict=True):
        assert np.isnan(want).any()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
