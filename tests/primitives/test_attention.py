"""What the shared tests do not see of attention: lse, blocks of queries, raising."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilejax.primitives import attention_reference
from tilejax.primitives.attention import attention, attention_op

PARAMS = {
    "scale": 0.5,
    "causal": False,
    "window": None,
    "soft_cap": None,
    "masked_rows": "zeros",
    "precision": None,
}


def _operands(rng, s=7, t=6, heads=4):
    shapes = (2, heads, s, 3), (2, 2, t, 3), (2, 2, t, 5), (1, heads, s, t)
    q, k, v, bias = (jnp.asarray(rng.normal(size=x), jnp.float32) for x in shapes)
    mask = jnp.asarray(rng.random((2, 1, s, t)) < 0.7).at[:, :, 2].set(False)
    segments = jnp.asarray(rng.integers(0, 2, (2, s))), jnp.zeros((2, t), jnp.int32)
    return q, k, v, bias, mask, *segments


def test_gradients_flow_through_the_logsumexp(rng):
    q, k, v, *_ = _operands(rng, heads=2)

    def ours(q, k):
        lse = attention_op(q, k, v, None, None, None, None, **PARAMS)[1]
        return jnp.sum(jnp.sin(lse))

    def theirs(q, k):
        scores = 0.5 * jnp.einsum("bhsd,bhtd->bhst", q, k)
        return jnp.sum(jnp.sin(jax.nn.logsumexp(scores, axis=-1)))

    got, want = (_hessian_product(f, (q, k)) for f in (ours, theirs))
    _close(got, want)


def _hessian_product(loss, operands):
    """The gradient, and its derivative along the cosine of the operands."""
    gradient = jax.grad(loss, tuple(range(len(operands))))
    along = tuple(jnp.cos(x) for x in operands)
    return jax.jit(lambda *xs: jax.jvp(gradient, xs, along))(*operands)


def _close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), got, want)


@pytest.mark.parametrize("rows", ["zeros", "uniform"])
def test_a_query_that_sees_nothing_has_no_nan_anywhere(rows):
    q = k = v = jnp.ones((1, 1, 2, 3))
    mask = jnp.zeros((1, 1, 2, 2), bool)
    params = {**PARAMS, "masked_rows": rows}

    def loss(q, k, v):
        o, lse = attention_op(q, k, v, None, mask, None, None, **params)
        return jnp.sum(o) + jnp.sum(jnp.where(lse == -jnp.inf, 0.0, lse))

    o, lse = attention_op(q, k, v, None, mask, None, None, **params)
    assert np.all(np.asarray(o) == (rows == "uniform"))
    assert np.all(np.asarray(lse) == -np.inf)
    (dq, dk, dv), second = _hessian_product(loss, (q, k, v))
    assert not dq.any() and not dk.any()
    np.testing.assert_allclose(dv, np.ones((1, 1, 2, 3)) * (rows == "uniform"))
    assert not any(x.any() for x in second)


@pytest.mark.parametrize("block", [1, 3])
def test_blocks_of_queries_change_nothing(rng, monkeypatch, block):
    operands = _operands(rng)
    params = {**PARAMS, "causal": True, "window": (4, 1), "soft_cap": 3.0}

    def results():
        def loss(*moving):
            o, lse = attention_op(*moving, *operands[4:], **params)
            return jnp.sum(jnp.sin(o)) + jnp.sum(jnp.where(lse > -1e9, lse, 0.0))

        jax.clear_caches()
        text = jax.jit(loss).lower(*operands[:4]).as_text()
        return _hessian_product(loss, operands[:4]), "stablehlo.while" in text

    whole, looped = results()
    assert not looped
    monkeypatch.setattr(attention_reference, "BLOCK", block * 2 * 4 * 6)
    parts, looped = results()
    assert looped
    _close(parts, whole)
    jax.clear_caches()


def test_blocks_of_queries_work_on_parts_with_varying_axes(rng, monkeypatch):
    q, k, v, *_ = _operands(rng)
    spec = jax.sharding.PartitionSpec("x")
    mesh = jax.make_mesh(
        (2,),
        ("x",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.devices()[:2],
    )

    def loss(q, k):
        def part(q, k, v):
            return attention(q, k, v, causal=True)

        mapped = jax.shard_map(part, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)
        return jnp.sum(jnp.sin(mapped(q, k, v)))

    want = _hessian_product(loss, (q, k))
    jax.clear_caches()
    monkeypatch.setattr(attention_reference, "BLOCK", 2 * 1 * 4 * 6)
    got = _hessian_product(loss, (q, k))
    jax.clear_caches()
    _close(got, want)


def test_it_is_what_jax_computes_where_both_are_defined(rng):
    q, k, v, bias, mask, *_ = _operands(rng, s=6)
    q, k, v = (jnp.swapaxes(x, 1, 2)[..., :3] for x in (q, k, v))
    want = jax.nn.dot_product_attention(
        q, k, v, bias, mask, is_causal=True, local_window_size=(3, 1)
    )
    got = attention(
        q,
        k,
        v,
        bias,
        mask,
        causal=True,
        window=(3, 1),
        layout="bshd",
        masked_rows="uniform",
    )
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_bias_or_mask_may_have_fewer_axes(rng):
    q, k, v, bias, mask, *_ = _operands(rng)
    got = attention(q, k, v, bias[0], mask[0, 0])
    want = attention(q, k, v, bias, mask[:1])
    np.testing.assert_array_equal(got, want)


def test_the_cost_counts_what_is_visible():
    def cost(**changed):
        q, k, v = (jax.ShapeDtypeStruct((2, 4, 8, 16), "bfloat16"),) * 3
        more = (None,) * 4
        assert attention_op.cost is not None
        return attention_op.cost(q, k, v, *more, **{**PARAMS, **changed})

    pairs = 2 * 4 * 8 * 8
    assert sum(cost().flops.values()) == 4 * 16 * pairs
    assert sum(cost(causal=True).flops.values()) == 4 * 16 * pairs * 36 / 64
    assert cost(soft_cap=1.0).transcendentals == cost().transcendentals + pairs
