"""Attention kernels against the plain formula, values and gradients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.attention_cases import (
    Sizes,
    check,
    kernels,
    operands,
    reference,
)
from tests.lowering.kernels.pairwise import pairwise
from tilejax.lowering.kernels.attention import AttentionConfig, attention
from tilejax.lowering.kernels.attention_rule import Rule

TILES = AttentionConfig(4, 5)

CASES = pairwise(
    {
        "heads": [(2, 2), (4, 2), (3, 1)],
        "lengths": [(8, 10), (7, 13), (13, 7)],
        "bias": [None, (2, "all"), (1, 1), (1, "all"), (2, 1)],
        "mask": [None, (1, 1), (2, "all")],
        "segments": [False, True],
        "causal": [False, True],
        "window": [None, (3, 2), (0, 4)],
        "soft_cap": [None, 1.5],
        "masked_rows": ["zeros", "uniform"],
    }
)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_attention_and_its_gradients_agree_for_any_two_options(rng, case):
    query_heads, key_heads = case["heads"]
    queries, keys = case["lengths"]

    def leading(pair):
        return pair and (pair[0], query_heads if pair[1] == "all" else 1)

    sizes = Sizes(
        query_heads=query_heads,
        key_heads=key_heads,
        queries=queries,
        keys=keys,
        bias=leading(case["bias"]),
        mask=leading(case["mask"]),
        segments=case["segments"],
    )
    names = ("causal", "window", "soft_cap", "masked_rows")
    check(operands(rng, sizes), {name: case[name] for name in names}, TILES)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_and_its_gradients_agree_in_narrow_types(rng, dtype):
    sizes = Sizes(key_heads=1, bias=(1, 2))
    check(operands(rng, sizes, dtype), {"causal": True}, TILES)


def test_attention_and_its_gradients_agree_in_float64(rng, x64):
    sizes = Sizes(key_heads=1, bias=(1, 2), mask=(2, 1))
    check(operands(rng, sizes, "float64"), {"masked_rows": "uniform"}, TILES)


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(batch=1, query_heads=1, key_heads=1, queries=1, keys=1, depth=1),
        Sizes(queries=1, keys=17),
        Sizes(queries=9, keys=1, value_depth=1),
        Sizes(depth=0, bias=(2, 1)),
        Sizes(value_depth=0),
    ],
    ids=["one", "one query", "one key", "no depth", "no value depth"],
)
def test_attention_and_its_gradients_agree_for_tiny_sizes(rng, sizes):
    check(operands(rng, sizes), {"causal": sizes.queries > 1}, TILES)


@pytest.mark.parametrize(
    "sizes",
    [Sizes(batch=0), Sizes(query_heads=0), Sizes(queries=0), Sizes(keys=0)],
    ids=["batch", "heads", "queries", "keys"],
)
@pytest.mark.parametrize("masked_rows", ["zeros", "uniform"])
def test_attention_of_nothing_gives_zeros(rng, sizes, masked_rows):
    given = operands(rng, sizes)
    o_shape = (*given[0].shape[:3], given[2].shape[3])
    cotangents = jnp.ones(o_shape), jnp.ones(o_shape[:3])
    params = {"scale": 1.0, "masked_rows": masked_rows}
    (o, lse), grads = kernels(given, cotangents, params, TILES, False)
    assert o.shape == o_shape and not np.any(o)
    assert lse.shape == o_shape[:3] and np.isneginf(lse).all()
    assert [g.shape for g in grads[:3]] == [x.shape for x in given[:3]]
    assert not any(map(np.any, grads[:3])) and grads[3] is None


@pytest.mark.parametrize("implementation", ["causal", "masked", "window"])
def test_uniform_masked_rows_are_what_jax_nn_gives(rng, implementation):
    given = operands(rng, Sizes(query_heads=4, mask=(2, 4), queries=20, value_depth=8))
    mask = given[4] if implementation == "masked" else None
    params = {
        "causal": implementation == "causal",
        "window": (2, 1) if implementation == "window" else None,
    }
    o, _ = attention(
        *[*given[:3], None, mask],
        **params,
        scale=0.4,
        masked_rows="uniform",
        config=TILES,
        interpret=True,
    )
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in given[:3])
    want = jax.nn.dot_product_attention(
        *(q, k, v),
        mask=mask,
        scale=0.4,
        is_causal=params["causal"],
        local_window_size=params["window"],
    )
    np.testing.assert_allclose(o, jnp.swapaxes(want, 1, 2), atol=2e-6)


def test_a_bias_of_minus_infinity_hides_a_key(rng):
    given = operands(rng, Sizes(bias=(1, 1), mask=(1, 1)))
    hidden = list(given)
    hidden[3] = jnp.where(given[4], given[3], -jnp.inf)
    hidden[4] = None
    run = jax.jit(partial(attention, scale=0.4, config=TILES, interpret=True))
    for got, want in zip(run(*hidden), run(*given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_nan_in_one_query_and_infinity_in_one_head_stay_there(rng):
    given = operands(rng, Sizes())
    params = {"scale": 0.4, "causal": True}
    cotangents = jnp.ones((2, 2, 11, 5)), jnp.zeros((2, 2, 11))
    run = jax.jit(lambda some: kernels(some, cotangents, params, TILES, True))
    (good, _), good_grads = run(given)
    given[0] = given[0].at[0, 0, 3, 1].set(jnp.nan)
    given[1] = given[1].at[1, 1, 5, 0].set(jnp.inf)
    (bad, _), bad_grads = run(given)
    assert np.isnan(bad[0, 0, 3]).all() and np.isnan(bad_grads[0][0, 0, 3]).all()
    for got, want in zip((bad, *bad_grads[:3]), (good, *good_grads[:3]), strict=True):
        np.testing.assert_array_equal(got[0, 1], want[0, 1])
        np.testing.assert_array_equal(got[1, 0], want[1, 0])
    want, _ = reference(*given, **params)
    np.testing.assert_array_equal(np.isnan(bad), np.isnan(want))


def rule(**given):
    sizes = dict(queries=40, keys=30, tile_queries=8, tile_keys=8)
    options = dict(scale=1.0, soft_cap=None, precision=None)
    return Rule(**{**sizes, **options, "masked": False, "uniform": False, **given})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, (0, 0), (3, 9), (17, 2)])
def test_a_tile_is_skipped_exactly_when_no_pair_in_it_is_seen(causal, window):
    r = rule(causal=causal, window=window)
    i, j = np.arange(40)[:, None], np.arange(32)[None, :]
    seen = np.ones((40, 32), bool)
    if causal:
        seen &= j <= i
    if window is not None:
        seen &= (j >= i - window[0]) & (j <= i + window[1])
    for row in range(5):
        for column in range(4):
            tile = seen[row * 8 :, column * 8 :][:8, :8]
            needed = r.needed(row, column)
            assert (True if needed is None else bool(needed)) == tile.any()


def test_tiles_are_skipped_too_where_a_blind_query_attends_to_all():
    assert not rule(causal=True, window=None, uniform=True, masked=True).needed(0, 3)
    assert not rule(causal=False, window=(2, 2), uniform=True).needed(0, 3)
