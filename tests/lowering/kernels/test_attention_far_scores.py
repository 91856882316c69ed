"""Attention where scores are far from zero: rows hidden by a bias, huge magnitudes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.agreement import assert_agree
from tests.lowering.kernels.attention_cases import (
    NAMES,
    Sizes,
    check,
    kernels,
    operands,
)
from tilejax.lowering.kernels.attention import AttentionConfig
from tilejax.primitives import attention_reference

TILES = [AttentionConfig(4, 5), AttentionConfig(3, 4), AttentionConfig(128, 128)]
LOWEST = float(np.finfo(np.float32).min)


def exactly_rounded(given, do, dlse, scale):
    """Values and gradients in float64 NumPy, of scores rounded as float32 rounds them.

    What is lost when a bias of -1e9 is added is lost for everybody; the softmax of what
    is left is well defined, and so are its derivatives.
    """
    q, k, v = (np.asarray(x, np.float64) for x in given[:3])
    bias = np.zeros((1, 1, 1, 1)) if given[3] is None else np.asarray(given[3])
    mask = np.ones(1, bool) if given[4] is None else np.asarray(given[4])
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    product = np.einsum("bhsd,bhtd->bhst", q, k) * scale
    score = (np.float32(product) + bias.astype("f4")).astype(np.float64)
    score = np.where(mask, score, -np.inf)
    top = score.max(axis=3, keepdims=True)
    raised = np.exp(score - np.where(np.isinf(top), 0, top))
    total = raised.sum(axis=3, keepdims=True)
    p = raised / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    spread = np.where(total == 0, 1 / k.shape[2], p)
    o = np.einsum("bhst,bhtd->bhsd", spread, v)
    do, dlse = np.asarray(do, np.float64), np.asarray(dlse, np.float64)
    ds = p * (np.einsum("bhsd,bhtd->bhst", do, v) - (o * do).sum(-1)[..., None])
    ds += p * dlse[..., None]
    dk = np.einsum("bhst,bhsd->bhtd", ds, q) * scale
    dv = np.einsum("bhst,bhsd->bhtd", spread, do)
    shape = (k.shape[0], -1, group, *k.shape[2:3])
    over = tuple(i for i in (0, 1) if bias.shape[i] == 1)
    return (o, lse), [
        np.einsum("bhst,bhtd->bhsd", ds, k) * scale,
        dk.reshape(*shape, q.shape[3]).sum(2),
        dv.reshape(*shape, v.shape[3]).sum(2),
        ds.sum(over, keepdims=True) if over else ds,
    ]


def far(rng, sizes, low):
    """Operands whose bias hides some rows whole, and others in part."""
    given = operands(rng, sizes)
    bias = np.array(given[3])
    hidden = rng.random(bias.shape) < 0.4
    hidden[..., ::3, :] = True
    bias[hidden] = low
    given[3] = jnp.asarray(bias)
    return given


@functools.cache
def jitted(config, scale):
    """The kernels, compiled once for all values."""
    options = {"scale": scale, "masked_rows": "uniform"}
    return jax.jit(lambda a, b: kernels(a, b, options, config, True))


def compare(given, config, scale=0.4, wanted_from=exactly_rounded):
    """Compare the kernels with an oracle, a coordinate of large numbers apart."""
    rng = np.random.default_rng(7)
    do = jnp.asarray(rng.normal(size=(*given[0].shape[:3], given[2].shape[3])), "f4")
    dlse = jnp.asarray(rng.normal(size=do.shape[:3]), "f4")
    out, grads = jitted(config, scale)(given, (do, dlse))
    (o, lse), wanted = wanted_from(given, do, dlse, scale)
    assert_agree(out[0], o, "float32", "o")
    np.testing.assert_allclose(out[1], lse, rtol=4e-6, atol=4e-6)
    for name, got, want in zip(NAMES, grads, wanted, strict=False):
        for part in (slice(0, 1), slice(1, None)):
            if got is not None:
                some = np.asarray(want[..., part])
                assert_agree(got[..., part], some, "float32", f"d{name}")


SIZES = {
    "group": Sizes(query_heads=4, bias=(2, 4)),
    "mask": Sizes(queries=7, keys=17, bias=(1, 1), mask=(2, 1)),
    "one key": Sizes(1, 1, 1, queries=4, keys=1, bias=(1, 1)),
}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        *((name, tile) for name in ("group", "mask") for tile in TILES),
        ("one key", TILES[0]),
    ],
    ids=str,
)
def test_rows_that_a_bias_alone_hides_agree(rng, name, config):
    for low in (-1e6, -1e9, LOWEST, -np.inf):
        compare(far(rng, SIZES[name], low), config)


@functools.partial(jax.jit, static_argnums=3)
def by_reference(given, do, dlse, scale):
    """What the operation gives everywhere else."""
    options = dict(
        scale=scale,
        causal=False,
        window=None,
        soft_cap=None,
        masked_rows="uniform",
        precision=None,
    )
    out = attention_reference.forward(*given, **options)
    grads = attention_reference.backward(given, out, (do, dlse), **options)
    return out, grads[:4]


def test_rows_that_a_bias_alone_hides_are_what_the_reference_gives(rng):
    for low in (-1e9, -np.inf):
        compare(far(rng, SIZES["mask"], low), TILES[0], wanted_from=by_reference)


@pytest.mark.parametrize("params", [{"causal": True, "soft_cap": 1.5}, {}])
def test_rows_that_a_bias_hides_in_part_agree_with_derivatives_by_jax(rng, params):
    given = far(rng, Sizes(bias=(2, 1)), -1e9)
    given[3] = given[3].at[..., 0].set(0.5)
    check(given, params, AttentionConfig(4, 5))


@pytest.mark.parametrize("config", TILES, ids=str)
def test_scores_of_a_million_keep_their_weights(rng, config):
    given = operands(rng, Sizes(query_heads=4, mask=(2, 1)))
    # Quarters, so that a score is exact in float32: ulps are eighths there.
    given[0] = jnp.round(given[0] * 2) / 2
    given[1] = jnp.round(given[1] * 2) / 2
    given[0] = given[0].at[..., 0].set(2.0**20)
    given[1] = given[1].at[..., 0].set(1.0)
    compare(given, config, scale=1.0)
