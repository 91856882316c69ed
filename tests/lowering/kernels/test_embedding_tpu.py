"""Lookups as a TPU would run them: interpreted with checks, and lowered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax.targets
from tests.lowering.kernels.agreement import (
    assert_agree,
    exact_cotangents,
    exactly,
    tiles_of,
)
from tests.lowering.kernels.test_embedding import bags, lookup
from tilejax.lowering.kernels.embedding import EmbeddingConfig, embedding
from tilejax.lowering.kernels.embedding_backward import (
    embedding_bag_table_grad,
    embedding_bag_weights_grad,
    embedding_grad,
)
from tilejax.lowering.kernels.embedding_bag import embedding_bag
from tilejax.lowering.kernels.embedding_configs import (
    embedding_bag_configs,
    embedding_bag_table_grad_configs,
    embedding_configs,
    embedding_grad_configs,
)

S = jax.ShapeDtypeStruct
CONFIG = EmbeddingConfig(rows=4, group=4, columns=4, vocabulary=6)


def test_lookup_and_gradient_run_without_races_or_stray_accesses(rng, checking):
    table = jnp.asarray(rng.normal(size=(9, 7)), "bfloat16")
    ids = jnp.array([8, 3, 9, 3, 0, -1, 8, 8, 1])
    rest = {"config": CONFIG, "interpret": checking}
    plain = lookup(ids, 9, "fill")
    got = embedding(table, ids, **rest)
    np.testing.assert_array_equal(np.asarray(got, float), exactly(plain, table))
    ct = jnp.asarray(rng.normal(size=got.shape), "float32")
    (want,) = exact_cotangents(plain, ct, table.astype("float32"))
    assert_agree(embedding_grad(ids, ct, rows=9, **rest), want, "float32")


def test_bags_and_their_gradients_run_without_races_or_stray_accesses(rng, checking):
    table = jnp.asarray(rng.normal(size=(9, 7)), "float32")
    ids = jnp.array([[8, 3], [9, 3], [0, -1], [8, 8], [1, 0]])
    weights = jnp.asarray(rng.uniform(1, 2, size=ids.shape), "float32")
    options = {"mode": "mean", "out_of_range": "drop"}
    rest = {**options, "config": CONFIG, "interpret": checking}
    plain = bags(ids, 9, **options)
    got = embedding_bag(table, ids, weights, **rest)
    assert_agree(got, exactly(plain, table, weights), "float32")
    ct = jnp.asarray(rng.normal(size=got.shape), "float32")
    want = exact_cotangents(plain, ct, table, weights)
    grad = embedding_bag_table_grad(ids, weights, ct, rows=9, **rest)
    assert_agree(grad, want[0], "float32")
    grad = embedding_bag_weights_grad(table, ids, weights, ct, **rest)
    assert_agree(grad, want[1], "float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(1001, 300), (5, 100)])
def test_lookups_lower(lower, dtype, shape):
    table, ids = S(shape, dtype), S((77,), "int32")
    config = EmbeddingConfig(16, 32 if dtype == "int8" else 16, 256)
    lower(lambda table, ids: embedding(table, ids, config=config), table, ids)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bags_and_gradients_lower(lower, dtype):
    rows, bag_ids, weights = 1001, S((30, 5), "int32"), S((30, 5), dtype)
    table, ct, config = (
        S((rows, 300), dtype),
        S((30, 300), dtype),
        EmbeddingConfig(16, 16),
    )
    rest = {"mode": "mean", "config": config}

    def f(table, ids, weights, ct):
        return (
            embedding_grad(ids[:, 0], ct, rows=rows, config=config),
            embedding_bag(table, ids, weights, **rest),
            embedding_bag_table_grad(ids, weights, ct, rows=rows, **rest),
            embedding_bag_weights_grad(table, ids, weights, ct, **rest),
        )

    lower(f, table, bag_ids, weights, ct)


@pytest.mark.parametrize("name", ["tpu:v5e", "tpu:v6e"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_proposed_tile_lowers(lower, name, dtype):
    target, rows = tilejax.targets.get(name), 3000
    table, ids, ct = S((rows, 700), dtype), S((64,), "int32"), S((64, 700), dtype)
    configs = embedding_configs(target, table, ids)
    assert configs
    for config in tiles_of(target, configs, 2):
        lower(lambda t, i, c=config: embedding(t, i, config=c), table, ids)
    configs = embedding_grad_configs(target, ids, ct, rows=rows)
    assert configs
    for config in tiles_of(target, configs, 2):
        lower(lambda i, g, c=config: embedding_grad(i, g, rows=rows, config=c), ids, ct)
    some = S((64, 3), "int32")
    for config in tiles_of(target, embedding_bag_configs(target, table, some), 1):
        lower(lambda t, i, c=config: embedding_bag(t, i, config=c), table, some)
    configs = embedding_bag_table_grad_configs(target, some, None, ct, rows=rows)
    for config in tiles_of(target, configs, 1):
        lower(
            lambda i, g, c=config: embedding_bag_table_grad(
                i, None, g, rows=rows, config=c
            ),
            *(some, ct),
        )


def test_no_tile_is_proposed_for_a_type_that_a_tpu_lacks():
    table = S((100, 100), "float16")
    target = tilejax.targets.get("tpu:v6e")
    assert embedding_configs(target, table, S((5,), "int32")) == []
