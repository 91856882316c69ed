"""What only looks like attention is left alone, or raised and the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.passes.raising import check_same, raised, reasons

F32 = np.finfo(np.float32)
FILL = -0.7 * float(F32.max)
B, N, T, S, D = 2, 3, 4, 5, 2


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


Q, K, V = numbers(B, N, T, D), numbers(B, N, S, D, seed=1), numbers(B, N, S, D, seed=2)
BIAS, MASK = numbers(N, T, S, seed=3), numbers(T, S, seed=4) > -0.3
EVERY = MASK.at[:, 0].set(True)


def attend(q, k, v, before=lambda s: s, after=lambda p: p, axis=-1):
    scores = jnp.einsum("bntd,bnsd->bnts", q, k)
    p = after(jax.nn.softmax(before(scores), axis))
    return jnp.einsum("bnts,bnsd->bntd", p, v)


def written(**pieces):
    return lambda q, k, v: attend(q, k, v, **pieces)


def masked(s, mask=MASK, fill=FILL):
    return jnp.where(mask, s, fill)


RAISED = {
    "nothing more": written(),
    "a scale": written(before=lambda s: s * 0.5),
    "a division": written(before=lambda s: s / 2.0),
    "two scales": written(before=lambda s: s * 3.0 / 2.0),
    "a scale, a bias and a mask": written(before=lambda s: masked(s * 0.5 + BIAS)),
    "a mask": written(before=masked),
    "a swapped mask": written(before=lambda s: jnp.where(MASK, s, float(F32.min))),
    "two masks": written(before=lambda s: masked(masked(s), BIAS > -1)),
    "a bias from a product": lambda q, k, v: attend(
        q, k, v, lambda s: s + jnp.einsum("bntd,sd->bnts", q, k[0, 0])
    ),
    "keys first": lambda q, k, v: jnp.einsum(
        "bnsd,bnst->btnd",
        v,
        jax.nn.softmax(jnp.einsum("bnsd,bntd->bnst", k, q), axis=-2),
    ),
    "the matrix product": lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(2, 3)) @ v,
    "two dimensions": lambda q, k, v: jax.nn.softmax(q[0, 0] @ k[0, 0].T) @ v[0, 0],
    "a single query": lambda q, k, v: jax.nn.softmax(k[0, 0] @ q[0, 0, 0]) @ v[0, 0],
    "itself": lambda q, k, v: jax.nn.softmax(q[0, 0] @ q[0, 0].T) @ q[0, 0],
    "scores of a row of queries": lambda q, k, v: jnp.einsum(
        "hwj,je->hwe", jax.nn.softmax(jnp.einsum("hwd,jd->hwj", q[0], k[0, 0])), v[0, 0]
    ),
    "scores added to themselves": written(before=lambda s: s + s),
    "a bias that a broadcast mask hides": written(
        before=lambda s: masked(s + jnp.where(EVERY, jnp.sin(BIAS), -jnp.inf), EVERY)
    ),
    "a scalar mask joined to others": lambda q, k, v: attend(
        q, k, v, lambda s: masked(s, (q[0, 0, 0, 0] > -99) & EVERY[None, None])
    ),
}


@pytest.mark.parametrize("case", RAISED)
def test_attention_is_raised_with(case):
    assert raised(RAISED[case], Q, K, V) == {"attention": 1}
    check_same(RAISED[case], Q, K, V)


LEFT = {
    "a softmax over queries": (written(axis=-2), "over another axis"),
    "a mask after": (written(after=lambda p: jnp.where(MASK, p, 0)), ""),
    "a mask of -inf": (written(before=lambda s: masked(s, EVERY, -jnp.inf)), "-inf"),
    "a mask of -1e9": (written(before=lambda s: masked(s, MASK, -1e9)), "-1e+09"),
    "masks that put different numbers": (
        written(before=lambda s: masked(masked(s), BIAS > -1, 0.9 * FILL)),
        "different numbers",
    ),
    "one truth value": (
        written(before=lambda s: jnp.where(s[0, 0, 0, 0] > 0, s, FILL)),
        "",
    ),
    "a scale after a bias": (
        written(before=lambda s: (s + BIAS) * 0.5),
        "scaled after a bias",
    ),
    "a scale after a mask": (written(before=lambda s: masked(s) * 0.5), "not the last"),
    "a bias after a mask": (written(before=lambda s: masked(s) + BIAS), "not the last"),
    "scores times an array": (written(before=lambda s: s * BIAS), "by an array"),
    "scores times themselves": (written(before=lambda s: s * s), "by an array"),
    "two traced biases": (
        lambda q, k, v: attend(
            q, k, v, lambda s: s + q[0, 0, 0, 0] * BIAS + k[0, 0, 0, 0] * BIAS
        ),
        "several biases",
    ),
    "an infinite scale": (written(before=lambda s: s / 0.0), "not finite"),
    "a soft cap": (written(before=lambda s: 5 * jnp.tanh(s / 5)), ""),
    "a temperature after": (written(after=lambda p: p * 2), ""),
    "a power after": (written(after=jnp.square), ""),
    "probabilities returned": (
        lambda q, k, v: (lambda p: (p @ v, p))(jax.nn.softmax(q @ k.swapaxes(2, 3))),
        "used elsewhere",
    ),
    "scores returned": (
        lambda q, k, v: (lambda s: (jax.nn.softmax(s) @ v, s))(q @ k.swapaxes(2, 3)),
        "used elsewhere",
    ),
    "dropout": (
        written(
            after=lambda p: jnp.where(
                jax.random.bernoulli(jax.random.key(0), 0.5, p.shape), p / 0.5, 0
            )
        ),
        "",
    ),
    "a sink": (
        written(
            before=lambda s: jnp.concatenate([s, jnp.zeros((B, N, T, 1))], -1),
            after=lambda p: p[..., :-1],
        ),
        "",
    ),
    "probabilities rounded": (
        written(after=lambda p: p.astype(jnp.float8_e4m3fn).astype(p.dtype)),
        "rounded to another dtype",
    ),
    "probabilities as integers": (
        lambda q, k, v: jnp.einsum(
            "bnts,bnsd->bntd",
            jax.nn.softmax(q @ k.swapaxes(2, 3)).astype(jnp.int32),
            v.astype(jnp.int32),
        ),
        "floating dtype",
    ),
    "scores rounded": (
        written(before=lambda s: s.astype(jnp.bfloat16).astype(s.dtype)),
        "rounded on the way",
    ),
    "values of another dtype": (
        lambda q, k, v: attend(
            q, k, v.astype(jnp.bfloat16), after=lambda p: p.astype(jnp.bfloat16)
        ),
        "one floating dtype",
    ),
    "a wide result of narrow values": (
        lambda q, k, v: jnp.einsum(
            "bnts,bnsd->bntd",
            jax.nn.softmax(
                jnp.einsum(
                    "bntd,bnsd->bnts",
                    q.astype(jnp.bfloat16),
                    k.astype(jnp.bfloat16),
                    preferred_element_type=jnp.float32,
                )
            ).astype(jnp.bfloat16),
            v.astype(jnp.bfloat16),
            preferred_element_type=jnp.float32,
        ),
        "result is of another dtype",
    ),
    "different precisions": (
        lambda q, k, v: jnp.matmul(
            jax.nn.softmax(jnp.matmul(q, k.swapaxes(2, 3), precision="highest")), v
        ),
        "different precisions",
    ),
    "scores over two dimensions": (
        lambda q, k, v: jnp.einsum(
            "ts,sd->td", jax.nn.softmax(jnp.einsum("ntd,nsd->ts", q[0], k[0])), v[0, 0]
        ),
        "over several dimensions",
    ),
    "values without a depth": (
        lambda q, k, v: jnp.einsum(
            "bnts,bns->bnt", jax.nn.softmax(q @ k.swapaxes(2, 3)), v[..., 0]
        ),
        "no vectors",
    ),
    "values that are not batched": (
        lambda q, k, v: jnp.einsum(
            "bnts,sd->bntd", jax.nn.softmax(q @ k.swapaxes(2, 3)), v[0, 0]
        ),
        "",
    ),
    "a band off the diagonal": (
        written(
            before=lambda s: masked(
                s, (jnp.arange(T)[:, None] >= jnp.arange(S)[None] + 1)[None, None]
            )
        ),
        "off the diagonal",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_attention_is_not_raised_with(case):
    fn, reason = LEFT[case]
    assert "attention" not in raised(fn, Q, K, V)
    assert reason in reasons(fn, Q, K, V)
    check_same(fn, Q, K, V, tolerance=2e-2 if "values" in case else 1e-5)


def test_products_of_all_of_the_same_precision_keep_it():
    def fn(q, k, v):
        with jax.default_matmul_precision("highest"):
            return jax.nn.softmax(q @ k.swapaxes(2, 3)) @ v

    assert raised(fn, Q, K, V) == {"attention": 1}
    check_same(fn, Q, K, V)


STEPS = {
    "scale": lambda s: s * 0.7,
    "divide": lambda s: s / 3.0,
    "bias": lambda s: s + BIAS,
    "bias of keys": lambda s: s + BIAS[0, 0],
    "bias of least": lambda s: s + jnp.where(MASK, 0.0, float(F32.min)),
    "mask": masked,
    "mask of keys": lambda s: masked(s, MASK[1][None, None, None]),
    "mask of -inf": lambda s: masked(s, EVERY, -jnp.inf),
    "mask of -1e9": lambda s: masked(s, MASK, -1e9),
    "another fill": lambda s: masked(s, BIAS > 0, 0.9 * FILL),
    "causal": lambda s: masked(s, jnp.tril(jnp.ones((T, S), bool))),
    "window": lambda s: masked(
        s, (jnp.arange(T)[:, None] - 1 <= jnp.arange(S)[None])[None, None]
    ),
    "cap": lambda s: 4 * jnp.tanh(s / 4),
    "wide": lambda s: s.astype(jnp.float32),
    "stop": jax.lax.stop_gradient,
    "transpose twice": lambda s: s.transpose(0, 2, 1, 3).transpose(0, 2, 1, 3),
}
AFTER = {
    "nothing": lambda p: p,
    "mask": lambda p: p * MASK,
    "scale": lambda p: p * 2,
    "cast": lambda p: p.astype(jnp.bfloat16).astype(jnp.float32),
}


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.sampled_from(sorted(AFTER)),
    st.sampled_from([-1, -1, -1, -2, (1, 3)]),
    st.booleans(),
)
def test_whatever_is_done_to_scores_means_the_same(steps, after, axis, again):
    def fn(q, k, v):
        s = jnp.einsum("bntd,bnsd->bnts", q, k)
        for step in steps:
            s = STEPS[step](s)
        p = AFTER[after](jax.nn.softmax(s, axis))
        out = jnp.einsum("bnts,bnsd->btnd", p, v)
        return (out, p) if again else out

    # a row all of whose keys are at -inf is NaN, and so are the gradients
    check_same(fn, Q, K, V, tolerance=1e-4)
