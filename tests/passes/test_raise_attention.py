"""`jax.nn.dot_product_attention` is raised, whatever it is given and wherever it is."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.passes.raising import check_same, raised, reasons
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text, walk
from tilejax.passes.pipeline import run
from tilejax.passes.raise_attention import raise_attention

attend = jax.nn.dot_product_attention
BATCH, QUERIES, KEYS, HEADS, DEPTH = 2, 3, 5, 4, 6


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


Q = numbers(BATCH, QUERIES, HEADS, DEPTH)
K, V = (numbers(BATCH, KEYS, HEADS, DEPTH, seed=i) for i in (1, 2))
LENGTHS = jnp.array([2, 3]), jnp.array([5, 1])

OPTIONS = {
    "nothing": {},
    "causal": {"is_causal": True},
    "a scale": {"scale": 0.3},
    "a negative scale": {"scale": -2},
    "no scale": {"scale": 0.0},
    "a window": {"local_window_size": (1, 2)},
    "a window to the left": {"local_window_size": (1, 0)},
    "a window and causal": {"local_window_size": 2, "is_causal": True},
    "lengths": {
        "query_seq_lengths": LENGTHS[0],
        "key_value_seq_lengths": LENGTHS[1],
    },
    "lengths of keys": {"key_value_seq_lengths": LENGTHS[1], "is_causal": True},
    "no key visible": {"mask": jnp.zeros((1, 1, QUERIES, KEYS), bool)},
    "some rows without a key": {
        "mask": jnp.ones((1, 1, QUERIES, KEYS), bool).at[..., 1, :].set(False)
    },
    "all": {
        "bias": numbers(BATCH, HEADS, QUERIES, KEYS, seed=4),
        "mask": numbers(BATCH, 1, QUERIES, KEYS, seed=5) > 0,
        "is_causal": True,
        "scale": 0.3,
        "local_window_size": (2, 3),
        "key_value_seq_lengths": LENGTHS[1],
    },
}


@pytest.mark.parametrize("given", OPTIONS)
def test_attention_is_raised_with(given):
    fn = partial(attend, **OPTIONS[given])
    assert raised(fn, Q, K, V) == {"attention": 1}
    check_same(fn, Q, K, V)


SHAPES = [
    (BATCH, HEADS, QUERIES, KEYS),
    (1, HEADS, QUERIES, KEYS),
    (BATCH, 1, QUERIES, KEYS),
    (1, 1, QUERIES, KEYS),
    (1, 1, 1, KEYS),
    (BATCH, HEADS, QUERIES, 1),
    (1, 1, 1, 1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_raised_with_a_bias_and_a_mask_of_shape(shape):
    bias = numbers(*shape, seed=6)

    def fn(q, k, v, bias):
        one = attend(q, k, v, bias)
        other = attend(2 * q, k, v, mask=bias > 0.5)
        return one, other, attend(3 * q, k, v, bias, mask=bias < 0.3)

    assert raised(fn, Q, K, V, bias) == {"attention": 3}
    check_same(fn, Q, K, V, bias)


HIDING = {
    "-inf": -jnp.inf,
    "the least float": float(jnp.finfo(jnp.float32).min),
    "-1e9": -1e9,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("what", HIDING)
def test_rows_that_a_bias_hides_get_what_jax_gives_them(what, causal):
    bias = jnp.zeros((1, 1, QUERIES, KEYS)).at[..., :2].set(HIDING[what])
    bias = bias.at[0, 0, 1].set(HIDING[what])

    def fn(q, k, v):
        return attend(q, k, v, bias, is_causal=causal)

    assert raised(fn, Q, K, V) == {"attention": 1}
    # the gradients of a NaN are NaN, in JAX everywhere that it could reach
    check_same(fn, Q, K, V, grad=what != "-inf")

    def traced(q, k, v, bias):
        return attend(q, k, v, bias, is_causal=causal)

    check_same(traced, Q, K, V, bias, grad=what != "-inf")


def heads_shared(q, k, v, **options):
    return attend(q, k[:, :, :2], v[:, :, :2], **options)


WAYS = {
    "grouped heads": heads_shared,
    "one head of keys": lambda q, k, v: attend(
        q, k[:, :, :1], v[:, :, :1], is_causal=True
    ),
    "grouped heads and a bias": lambda q, k, v: heads_shared(
        q, k, v, bias=numbers(1, HEADS, QUERIES, KEYS), is_causal=True
    ),
    "grouped heads and a mask": lambda q, k, v: heads_shared(
        q, k, v, mask=numbers(1, HEADS, QUERIES, KEYS) > 0
    ),
    "no batch": lambda q, k, v: attend(q[0], k[0], v[0]),
    "one query": lambda q, k, v: attend(q[:, :1], k, v, is_causal=True),
    "one query at the end": lambda q, k, v: attend(
        q[:, :1], k, v, mask=jnp.arange(KEYS)[None, None, None] <= 3
    ),
    "one of all but keys": lambda q, k, v: attend(
        q[:1, :1, :1, :1], k[:1, :, :1, :1], v[:1, :, :1, :1]
    ),
    "no keys": lambda q, k, v: attend(q, k[:, :0], v[:, :0]),
    "no queries": lambda q, k, v: attend(q[:, :0], k, v),
    "no depth": lambda q, k, v: attend(q[..., :0], k[..., :0], v[..., :0], scale=1.0),
    "alibi": lambda q, k, v: attend(
        q,
        k,
        v,
        bias=-(0.5 ** jnp.arange(HEADS, dtype=jnp.float32))[None, :, None, None]
        * jnp.abs(jnp.arange(QUERIES)[:, None] - jnp.arange(KEYS)),
        is_causal=True,
    ),
    "checkpoint": lambda q, k, v: jax.checkpoint(attend)(q, k, v),
    "jit": lambda q, k, v: jax.jit(partial(attend, is_causal=True))(q, k, v),
    "vmap": lambda q, k, v: jax.vmap(attend)(q, k, v),
    "vmap of queries alone": lambda q, k, v: jax.vmap(attend, (2, None, None))(
        q[:, :, None], k, v
    ),
    "vmap of heads": lambda q, k, v: jax.vmap(
        partial(attend, is_causal=True), in_axes=2, out_axes=2
    )(q[:, :, :, None], k[:, :, :, None], v[:, :, :, None]),
    "scan": lambda q, k, v: lax.scan(
        lambda c, _: (attend(c, k, v, is_causal=True), None), q, length=2
    )[0],
    "cond": lambda q, k, v: lax.cond(
        q[0, 0, 0, 0] > 9, lambda *_: q, partial(attend, is_causal=True), q, k, v
    ),
    "custom_vjp": lambda q, k, v: doubled(q, k, v),
}


@jax.custom_vjp
def doubled(q, k, v):
    return attend(q, k, v)


doubled.defvjp(
    lambda q, k, v: jax.vjp(attend, q, k, v),
    lambda pull, g: tuple(2 * x for x in pull(g)),
)


@pytest.mark.parametrize("way", WAYS)
def test_attention_is_raised_in(way):
    assert raised(WAYS[way], Q, K, V)["attention"] >= 1
    check_same(WAYS[way], Q, K, V)


def test_attention_is_raised_in_a_while():
    def fn(q, k, v):
        return lax.while_loop(
            lambda s: s[0] < 2, lambda s: (s[0] + 1, attend(s[1], k, v)), (0, q)
        )[1]

    assert raised(fn, Q, K, V) == {"attention": 1}
    check_same(fn, Q, K, V, grad=False)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_bfloat16_is_as_near_as_bfloat16_is(causal):
    q, k, v = (x.astype(jnp.bfloat16) for x in (Q, K, V))
    fn = partial(attend, is_causal=causal)
    assert raised(fn, q, k, v) == {"attention": 1}
    check_same(fn, q, k, v, tolerance=3e-2)


def test_attention_in_float16_is_raised():
    """Products of float16 as `jax.nn` asks for them do not compile on a CPU."""
    q, k, v = (x.astype(jnp.float16) for x in (Q, K, V))
    assert raised(attend, q, k, v) == {"attention": 1}


def test_attention_in_float64_keeps_the_softmax_in_float32_that_jax_has(x64):
    q, k, v = (x.astype(jnp.float64) for x in (Q, K, V))
    check_same(attend, q, k, v)
    assert "attention" not in raised(attend, q, k, v)
    assert "rounded on the way" in reasons(attend, q, k, v)


def test_a_second_result_of_the_scores_keeps_them():
    fn = partial(attend, return_residual=True)
    assert "attention" not in raised(fn, Q, K, V)
    check_same(fn, Q, K, V)


def test_what_is_a_band_is_no_mask():
    def options(**given):
        after = trace_of(partial(attend, **given))
        (eqn,) = (v.eqn for v in walk(after) if v.eqn.primitive.name.endswith("tion"))
        p = eqn.params
        return p["causal"], p["window"], len(eqn.invars)

    far = max(QUERIES, KEYS)
    assert options(is_causal=True) == (True, None, 3)
    assert options(local_window_size=(1, 2)) == (False, (1, 2), 3)
    assert options(local_window_size=(2, 3), is_causal=True) == (False, (2, 0), 3)
    assert options(mask=OPTIONS["all"]["mask"], is_causal=True) == (True, None, 4)
    assert options(key_value_seq_lengths=LENGTHS[1])[:2] == (False, None)
    assert far == KEYS


def test_a_bias_of_unknown_size_takes_in_the_mask_unless_math_is_fast():
    bias = numbers(1, HEADS, QUERIES, KEYS)
    program, _ = trace(partial(attend, is_causal=True), Q, K, V, bias)

    def causal(**options):
        after, _ = run(program, **options)
        visits = [v.eqn for v in walk(after)]
        return [e.params["causal"] for e in visits if "causal" in e.params]

    assert causal() == [False]
    assert causal(fast_math=True) == [True]


def trace_of(fn):
    return run(trace(fn, Q, K, V)[0])[0]


def test_raise_attention_is_golden(golden):
    fn = partial(attend, is_causal=True, bias=numbers(1, 1, 1, 1))
    before, _ = run(trace(fn, Q, K, V)[0], ["inline", "fold", "simplify", "cse"])
    after, _ = run(before, ["raise_softmax", "raise_attention", "dce", "simplify"])
    golden("raise_attention", as_text(after))
    assert raise_attention(after) is after


def test_attention_is_raised_over_explicit_and_manual_axes(eight_devices):
    kinds = jax.sharding.AxisType
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(kinds.Explicit,) * 2)
    causal = partial(attend, is_causal=True)
    with jax.set_mesh(mesh):
        for spec in (P("a"), P("a", None, "b"), P(None, None, "b")):
            q, k, v = (jax.sharding.reshard(x, spec) for x in (Q, K, V))
            assert raised(causal, q, k, v) == {"attention": 1}
            check_same(causal, q, k, v)
        manual = jax.shard_map(causal, in_specs=P("a"), out_specs=P("a"))
        x, y, z = (jax.sharding.reshard(x, P("a")) for x in (Q, K, V))
        assert raised(manual, x, y, z) == {"attention": 1}
        check_same(manual, x, y, z)
