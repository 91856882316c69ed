"""Padded programs give what the real arrays give, whatever is in the padding."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.ops.samples import arrays
from tests.passes.padding import check_gradients, check_values, poisoned
from tilejax import errors, primitives
from tilejax.passes.padded.program import padded

pytestmark = pytest.mark.usefixtures("quick_to_compile")

B, BS, BF, BSF = ("b",), ("b", "s"), ("b", None), ("b", "s", None)
NONE1, NONE2 = (None,), (None, None)


def norm(x, scale):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * scale


def attend(x, wq, wk, wv):
    q, k, v = (jnp.reshape(x @ w, (*x.shape[:2], 2, 2)) for w in (wq, wk, wv))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)


def attend_by_hand(x, w):
    q = x @ w
    scores = jnp.einsum("bsf,btf->bst", q, x) / 2
    mask = jnp.tril(jnp.ones(scores.shape[1:], bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9), -1) @ x


def recurrent(x, w):
    def step(h, row):
        h = jnp.tanh(h @ w + row)
        return h, h.sum(-1)

    return jax.lax.scan(step, jnp.zeros_like(x[:, 0]), jnp.swapaxes(x, 0, 1))


def loss_of_tokens(table, ids):
    logits = table[ids] @ table.T
    rows = jax.nn.log_softmax(logits.reshape(-1, logits.shape[-1]))
    picked = jnp.take_along_axis(rows, jnp.roll(ids, 1, 0).reshape(-1, 1), 1)
    return -jnp.mean(picked)


def trained(w, x, labels):
    def loss(w):
        losses = optax.softmax_cross_entropy_with_integer_labels(x @ w, labels)
        return losses.mean()

    value, grad = jax.value_and_grad(loss)(w)
    return value, w - 0.1 * grad


CASES = {
    "mean": (lambda x: jnp.mean(x, 0), [BF], "f32[5,4]"),
    "mean of all": (jnp.mean, [BS], "f32[5,3]"),
    "variance": (lambda x: jnp.var(x, 0), [BF], "f32[5,4]"),
    "extremes": (lambda x: (x.max(0), x.min(0), jnp.prod(x, 0)), [BF], "f32[5,4]"),
    "argmax": (lambda x: (x.argmax(0), jnp.argmin(x, 0)), [BF], "f32[5,4]"),
    "truth": (lambda x: ((x > 0).all(0), (x > 0).any(0)), [BF], "f32[5,4]"),
    "softmax": (lambda x: jax.nn.softmax(x, 0), [BF], "f32[5,4]"),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 0), [BF], "f32[5,4]"),
    "accumulated": (
        lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x[::-1], 0)),
        [BF],
        "f32[5,4]",
    ),
    "count": (lambda x: x.shape[0] * jnp.sum(x), [BF], "f32[5,4]"),
    "positions": (lambda x: x * jnp.arange(x.shape[0])[:, None], [BF], "f32[5,4]"),
    "dense": (lambda x, w: jax.nn.relu(x @ w), [BF, NONE2], "f32[5,4] f32[4,3]"),
    "bias": (lambda x, c: jnp.tanh(x + c), [BF, NONE1], "f32[5,4] f32[4]"),
    "gram": (lambda x: x.T @ x, [BF], "f32[5,4]"),
    "pairs": (
        lambda x: jnp.exp(-((x[:, None] - x[None]) ** 2)).sum(),
        [BF],
        "f32[5,4]",
    ),
    "batch norm": (
        lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5),
        [BF],
        "f32[5,4]",
    ),
    "layer norm": (norm, [BSF, NONE1], "f32[5,3,4] f32[4]"),
    "norm of padded": (lambda x: norm(x, 2.0), [BS], "f32[5,3]"),
    "attention": (
        attend,
        [BSF, NONE2, NONE2, NONE2],
        "f32[5,3,4] f32[4,4] f32[4,4] f32[4,4]",
    ),
    "attention by hand": (attend_by_hand, [BSF, NONE2], "f32[5,3,4] f32[4,4]"),
    "recurrence": (recurrent, [BSF, NONE2], "f32[5,3,4] f32[4,4]"),
    "last row": (lambda x: x[-1] + x[:, -1].sum(), [BF], "f32[5,4]"),
    "shifted": (lambda x: (x[1:] - x[:-1], x[1:].sum(0)), [BF], "f32[5,4]"),
    "every other": (lambda x: x[::2] * 2, [BF], "f32[5,4]"),
    "joined": (
        lambda x, y: jnp.concatenate([y, x, x + 1, y]).sum(1).cumsum(),
        [BF, NONE2],
        "f32[5,4] f32[2,4]",
    ),
    "padded": (
        lambda x: jnp.pad(x, ((1, 2), (0, 0)), constant_values=3).cumsum(0),
        [BF],
        "f32[5,4]",
    ),
    "reversed": (lambda x: (jnp.flip(x, 0), x[::-1].cumsum(0)), [BF], "f32[5,4]"),
    "rolled": (lambda x: jnp.roll(x, 2, 0), [BF], "f32[5,4]"),
    "sorted": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 0)), [BF], "f32[5,4]"),
    "largest": (lambda x: jax.lax.top_k(x.T, 2), [BF], "f32[5,4]"),
    "merged": (lambda x: x.reshape(-1, 4).mean(0), [BSF], "f32[5,3,4]"),
    "merged and kept": (lambda x: jnp.tanh(x.reshape(-1, 4)), [BSF], "f32[5,3,4]"),
    "merged and back": (
        lambda x: (x.reshape(-1, 4) @ x[0, 0][:, None]).reshape(x.shape[:2]),
        [BSF],
        "f32[5,3,4]",
    ),
    "merged and shifted": (
        lambda x, c: jnp.tanh(x.reshape(-1, 4) * c).mean(0),
        [BSF, NONE1],
        "f32[5,3,4] f32[4]",
    ),
    "weights a row": (
        lambda x, w: jnp.einsum(
            "bf,bfg->bg", x, jnp.broadcast_to(w, (x.shape[0], *w.shape))
        ),
        [BF, NONE2],
        "f32[5,4] f32[4,3]",
    ),
    "sums so far": (lambda x: jnp.cumsum(x, 0) / x[-1], [BF], "f32[5,4]"),
    "halves": (lambda x: 1 / x[: x.shape[0] // 2], [BF], "f32[5,4]"),
    "back half": (lambda x: 1 / x[x.shape[0] // 2 :].cumsum(0), [BF], "f32[5,4]"),
    "chosen rows": (lambda x, i: jnp.exp(x[i]).sum(0), [BF, B], "f32[5,4] i32[5]<5"),
    "learnt start": (
        lambda x, h: jax.lax.scan(
            lambda c, r: (jnp.tanh(c + r), c.sum()),
            jnp.broadcast_to(h, x[:, 0].shape),
            x.swapaxes(0, 1),
        ),
        [BSF, NONE1],
        "f32[5,3,4] f32[4]",
    ),
    "split": (lambda x: x.reshape(x.shape[0], 2, 2).sum(0), [BF], "f32[5,4]"),
    "flat": (lambda x: x.reshape(-1), [BF], "f32[5,4]"),
    "convolution": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        [("b", None, None, None), (None,) * 4],
        "f32[5,6,6,2] f32[3,3,2,3]",
    ),
    "convolution of padded": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        ).mean((0, 1)),
        [BSF, (None,) * 3],
        "f32[5,3,4] f32[3,4,2]",
    ),
    "pooling": (
        lambda x: jax.lax.reduce_window(
            x, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        ),
        [("b", None, None, None)],
        "f32[5,6,6,2]",
    ),
    "lookup": (lambda t, i: t[i].sum(0), [NONE2, B], "f32[7,4] i32[5]<7"),
    "rows of padded": (
        lambda x, i: jnp.take(x, i, 0, mode="fill"),
        [BF, NONE1],
        "f32[5,4] i32[6]<9",
    ),
    "clipped rows": (
        lambda x, i: jnp.take(x, i, 0, mode="clip"),
        [BF, NONE1],
        "f32[5,4] i32[6]<9",
    ),
    "added at": (
        lambda x, i: jnp.zeros((7, 4)).at[i].add(x),
        [BF, B],
        "f32[5,4] i32[5]<7",
    ),
    "set at": (
        lambda x, i: (
            jnp.zeros((7, 4))
            .at[jnp.sort(i) + jnp.arange(i.shape[0])]
            .set(x, mode="drop")
        ),
        [BF, B],
        "f32[5,4] i32[5]<2",
    ),
    "put in": (
        lambda x, y: jax.lax.dynamic_update_slice(x, y, (4, 0)).cumsum(0),
        [BF, NONE2],
        "f32[5,4] f32[2,4]",
    ),
    "tokens": (loss_of_tokens, [NONE2, BS], "f32[7,4] i32[5,3]<7"),
    "branch": (
        lambda x: jax.lax.cond(jnp.sum(x) > 0, jnp.sin, lambda y: 0 * y, x).sum(),
        [BF],
        "f32[5,4]",
    ),
    "loop": (
        lambda x: jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + c[1].mean(0)), (0, x)
        )[1],
        [BF],
        "f32[5,4]",
    ),
    "checkpoint": (
        lambda x, w: jax.checkpoint(lambda y: jnp.sin(y @ w))(x).sum(0),
        [BF, NONE2],
        "f32[5,4] f32[4,3]",
    ),
    "matmul": (
        lambda x, w, c: primitives.matmul(x, w, bias=c, activation="gelu"),
        [BSF, NONE2, NONE1],
        "f32[5,3,4] f32[4,2] f32[2]",
    ),
    "contracted matmul": (
        lambda x, y: primitives.matmul(x.T, y),
        [BF, BF],
        "f32[5,4] f32[5,3]",
    ),
    "tiled norm": (
        primitives.layer_norm,
        [BSF, NONE1, NONE1],
        "f32[5,3,4] f32[4] f32[4]",
    ),
    "tiled norm of padded": (primitives.rms_norm, [BS], "f32[5,3]"),
    "tiled softmax of padded": (lambda x: primitives.softmax(x, 0), [BF], "f32[5,4]"),
    "tiled attention": (
        lambda q, k, v: primitives.attention(q, k, v, causal=True, layout="bshd"),
        [("b", "s", None, None)] * 3,
        "f32[5,3,2,4] f32[5,3,2,4] f32[5,3,2,4]",
    ),
    "masked attention": (
        lambda q, k, m: primitives.attention(
            q,
            k,
            k,
            mask=m[:, None, None, :] & jnp.ones((1, 1, q.shape[2], 1), bool),
            masked_rows="uniform",
        ),
        [("b", None, "s", None)] * 2 + [BS],
        "f32[5,2,3,4] f32[5,2,3,4] bool[5,3]",
    ),
    "tiled embedding": (
        lambda t, i: primitives.embedding(t, i).mean((0, 1)),
        [NONE2, BS],
        "f32[7,4] i32[5,3]<7",
    ),
    "tiled bag": (
        lambda t, i: primitives.embedding_bag(t, i, mode="mean"),
        [NONE2, BS],
        "f32[7,4] i32[5,3]<7",
    ),
    "tiled cross entropy": (
        lambda x, i: primitives.cross_entropy(x, i).mean(),
        [BF, B],
        "f32[5,4] i32[5]<4",
    ),
    "train step": (trained, [NONE2, BF, B], "f32[4,3] f32[5,4] i32[5]<3"),
}
WITHOUT_GRADIENT = {
    "argmax",
    "truth",
    "train step",
    "largest",
    "loop",
    "rows of padded",
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_real_arrays(name, rng):
    fun, names, text = CASES[name]
    check_values(fun, arrays(text, rng), names)


@pytest.mark.parametrize("name", sorted(set(CASES) - WITHOUT_GRADIENT))
def test_gradients_are_those_of_the_real_arrays(name, rng):
    fun, names, text = CASES[name]
    check_gradients(fun, arrays(text, rng), names)


@pytest.mark.parametrize(("size", "bucket"), [(1, 1), (1, 8), (8, 8), (7, 8)])
def test_sizes_of_one_and_of_the_bucket_itself_do(size, bucket, rng):
    (x,) = arrays(f"f32[{size},4]", rng)
    sizes, buckets = {"b": size}, {"b": bucket}
    args = ([x], [BF])
    check_values(lambda x: norm(x.T, 1.0), *args, sizes=sizes, buckets=buckets)
    check_values(lambda x: x[::-1], *args, sizes=sizes, buckets=buckets)


REFUSED = {
    "python": (lambda x: x if x.shape[0] > 6 else -x, "depends on the value"),
    "order of merged": (lambda x: jnp.cumsum(x.T.reshape(-1)), "no order along"),
    "place in merged": (lambda x: jnp.argmax(x.T.reshape(-1)), "counts what is not"),
    "unlike": (lambda x: x.T.reshape(-1) + x.reshape(-1), "beside each other"),
    "random": (
        lambda x: x + jax.random.uniform(jax.random.key(0), x.T.shape).T,
        "random numbers along a padded axis",
    ),
    "transform": (lambda x: jnp.fft.fft(x, axis=0).real, "no rule"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused_with_the_reason(name):
    fun, text = REFUSED[name]
    x = np.ones((8, 4), np.float32)
    inner = padded(fun, gated=False, bounds={"b": (1, 8)})
    run = jax.jit(lambda n, x: inner([BF], {"b": n}, [x], {}))
    with pytest.raises(errors.BucketError, match=text):
        run(np.int32(5), x)


def test_a_custom_derivative_is_kept(rng):
    @jax.custom_jvp
    def f(x):
        return x * 2

    f.defjvp(lambda p, t: (f(*p), 10 * t[0]))
    (x,) = arrays("f32[5,4]", rng)
    check_gradients(lambda x: f(x).sum(0), [x], [BF])


def test_a_reverse_rule_of_its_own_is_refused_outside_and_kept_inside(rng):
    @jax.custom_vjp
    def f(x, w):
        return x @ w

    f.defvjp(lambda x, w: (x @ w, (x, w)), lambda r, c: (c @ r[1].T, 3 * r[0].T @ c))
    args, names = arrays("f32[5,4] f32[4,3]", rng), [BF, NONE2]
    check_values(f, args, names)
    with pytest.raises(errors.BucketError, match=r"jax\.grad\s+inside"):
        check_gradients(f, args, names)
    check_values(lambda x, w: jax.grad(lambda w: f(x, w).sum())(w), args, names)


def test_a_missing_mask_would_be_seen(rng, monkeypatch):
    from tilejax.passes.padded import summing

    fun, names, text = CASES["gram"]
    args = arrays(text, rng)
    check_values(fun, args, names)
    monkeypatch.setattr(summing, "mask", lambda frame, value, *rest: value.x)
    with pytest.raises(AssertionError):
        check_values(fun, args, names)


def test_a_missing_gate_would_be_seen(rng, monkeypatch):
    from tilejax.passes.padded import run

    fun, names, text = CASES["sums so far"]
    args = arrays(text, rng)
    check_gradients(fun, args, names)
    monkeypatch.setattr(run, "gate", lambda frame, value, shape: value)
    with pytest.raises(AssertionError):
        check_gradients(fun, args, names)


def test_poison_is_in_the_padding():
    x = poisoned(np.ones((5, 3), np.float32), BS, {"b": 8, "s": 4})
    assert np.isnan(x).sum() == 8 * 4 - 5 * 3
