"""Cross-entropy kernels, the vocabulary in one tile and in several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax.targets
from tests.lowering.kernels.agreement import (
    DTYPES,
    assert_agree,
    exact_cotangents,
    exactly,
    tiles_of,
)
from tilejax.lowering.kernels.cross_entropy import CrossEntropyConfig, cross_entropy
from tilejax.lowering.kernels.cross_entropy_backward import cross_entropy_backward
from tilejax.lowering.kernels.row_configs import cross_entropy_configs

WHOLE, TILED = CrossEntropyConfig(4, 64), CrossEntropyConfig(4, 5)


def reference(logits, labels):
    lse = jax.nn.logsumexp(logits, axis=1)
    columns = jnp.arange(logits.shape[1])
    picked = jnp.sum(jnp.where(columns[None] == labels[:, None], logits, 0.0), axis=1)
    known = (labels >= 0) & (labels < logits.shape[1])
    return jnp.where(known, lse - picked, jnp.nan), lse


def check(logits, labels, config, interpret=True):
    rng = np.random.default_rng(0)
    dloss, dlse = (
        jnp.asarray(rng.normal(size=labels.shape), "float32") for _ in range(2)
    )

    def kernels(logits, labels, dloss, dlse):
        loss, lse = cross_entropy(logits, labels, config=config, interpret=interpret)
        dlogits = cross_entropy_backward(
            logits, labels, lse, dloss, dlse, config=config, interpret=interpret
        )
        return loss, lse, dlogits

    loss, lse, dlogits = jax.jit(kernels)(logits, labels, dloss, dlse)
    is_wide = jnp.zeros(()).dtype == "f8"
    assert loss.dtype == lse.dtype == (logits.dtype if is_wide else "f4")
    assert dlogits.dtype == logits.dtype
    wide = jnp.dtype(loss.dtype)
    want_loss, want_lse = exactly(reference, logits, labels)
    assert_agree(loss, want_loss, wide, "loss")
    assert_agree(lse, want_lse, wide, "lse")
    want, _ = exact_cotangents(reference, (dloss, dlse), logits, labels)
    assert_agree(dlogits, want, logits.dtype, "dlogits")


def operands(rng, rows, columns, dtype="float32"):
    logits = jnp.asarray(rng.normal(size=(rows, columns)) * 3, dtype)
    return logits, jnp.asarray(rng.integers(0, columns, rows), "int32")


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
@pytest.mark.parametrize("shape", [(8, 10), (7, 13), (1, 1), (1, 17), (9, 1)])
def test_cross_entropy_and_its_gradient_agree_for_every_shape(rng, shape, config):
    check(*operands(rng, *shape), config)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_cross_entropy_and_its_gradient_agree_in_narrow_types(rng, dtype):
    check(*operands(rng, 7, 13, dtype), TILED)


def test_cross_entropy_and_its_gradient_agree_in_float64(rng, x64):
    check(*operands(rng, 7, 13, "float64"), TILED)


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
def test_a_label_outside_the_vocabulary_gives_nan_and_no_gradient_of_its_own(
    rng, config
):
    logits, labels = operands(rng, 7, 13)
    # 13 and 14 lie in the last tile's padding, where they must not be found.
    labels = labels.at[:4].set(jnp.array([-1, 13, 14, 2**31 - 1], "int32"))
    loss, lse = cross_entropy(logits, labels, config=config, interpret=True)
    assert np.isnan(loss[:4]).all() and np.isfinite(loss[4:]).all()
    ones, zeros = jnp.ones(7), jnp.zeros(7)
    dlogits = cross_entropy_backward(
        logits, labels, lse, ones, zeros, config=config, interpret=True
    )
    np.testing.assert_allclose(dlogits[:4].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(dlogits[4:].sum(axis=1), 0, atol=1e-5)


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
def test_cross_entropy_treats_infinities_and_nan_as_jax_does(rng, config):
    logits, labels = operands(rng, 6, 13)
    logits = logits.at[0].set(-jnp.inf).at[1, :7].set(-jnp.inf)
    logits = logits.at[2, 3].set(jnp.inf).at[3, 11].set(jnp.nan).at[4].set(1e38)
    labels = labels.at[:4].set(jnp.array([0, 8, 0, 11], "int32"))
    loss, lse = cross_entropy(logits, labels, config=config, interpret=True)
    want_loss, want_lse = reference(logits, labels)
    assert_agree(loss, np.asarray(want_loss, np.float64), "float32", "loss")
    assert_agree(lse, np.asarray(want_lse, np.float64), "float32", "lse")


def test_cross_entropy_of_nothing():
    loss, lse = cross_entropy(jnp.zeros((0, 5)), jnp.zeros(0, "int32"), config=WHOLE)
    assert loss.shape == lse.shape == (0,)
    logits, labels = jnp.zeros((3, 0)), jnp.zeros(3, "int32")
    loss, lse = cross_entropy(logits, labels, config=WHOLE)
    assert np.isnan(loss).all() and np.isneginf(lse).all()
    dlogits = cross_entropy_backward(logits, labels, lse, lse, lse, config=WHOLE)
    assert dlogits.shape == (3, 0)


def test_cross_entropy_has_no_race_and_reads_no_padding(rng, checking):
    check(*operands(rng, 11, 200), CrossEntropyConfig(8, 128), checking)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(40, 300), (4096, 50257), (3, 5)])
def test_cross_entropy_lowers_for_tpu_with_the_proposed_tiles(lower, shape, dtype):
    target = tilejax.targets.get("tpu:v6e")
    logits = jax.ShapeDtypeStruct(shape, dtype)
    labels = jax.ShapeDtypeStruct(shape[:1], "int32")
    row = jax.ShapeDtypeStruct(shape[:1], "float32")
    forward = cross_entropy_configs(target, logits, labels)
    backward = cross_entropy_configs(target, logits, labels, row, row, row)
    assert forward and backward
    for c in tiles_of(target, forward, 4):
        lower(lambda x, y, c=c: cross_entropy(x, y, config=c), logits, labels)
    for c in tiles_of(target, backward, 4):
        lower(
            lambda *a, c=c: cross_entropy_backward(*a, config=c),
            *(logits, labels, row, row, row),
        )
