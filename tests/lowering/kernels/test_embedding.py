"""Lookups in a table, bags of them, and their gradients."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.lowering.kernels.agreement import (
    DTYPES,
    assert_agree,
    exact_cotangents,
    exactly,
)
from tests.lowering.kernels.pairwise import pairwise
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.lowering.kernels import (
    embedding as embedding_file,
    embedding_bag as bag_file,
    scattering,
)
from tilejax.lowering.kernels.embedding import EmbeddingConfig, embedding
from tilejax.lowering.kernels.embedding_backward import (
    embedding_bag_table_grad,
    embedding_bag_weights_grad,
    embedding_grad,
)
from tilejax.lowering.kernels.embedding_bag import embedding_bag
from tilejax.lowering.kernels.scattering import list_items

CONFIG = EmbeddingConfig(rows=4, group=8, columns=5, vocabulary=6)


def lookup(ids, rows, out_of_range):
    def f(table):
        near = table[jnp.clip(ids, 0, rows - 1)]
        if out_of_range == "clip":
            return near
        known = (ids >= 0) & (ids < rows)
        return jnp.where(known[..., None], near, jnp.nan)

    return f


def bags(ids, rows, mode, out_of_range):
    def f(table, weights):
        weights = jnp.ones(ids.shape) if weights is None else weights
        if out_of_range == "drop":
            weights = jnp.where((ids >= 0) & (ids < rows), weights, 0)
            found = lookup(ids, rows, "clip")(table)
        else:
            found = lookup(ids, rows, out_of_range)(table)
        total = weights.sum(1, keepdims=True)
        out = jnp.einsum("bl,bld->bd", weights, found)
        if mode == "sum":
            return out
        return jnp.where(total == 0, 0, out / jnp.where(total == 0, 1, total))

    return f


@pytest.mark.parametrize(
    "case",
    pairwise(
        {
            "shape": [(21, 10), (16, 5), (1, 1), (3, 7)],
            "count": [13, 1, 8],
            "dtype": DTYPES,
            "out_of_range": ["clip", "fill"],
            "group": [8, 1],
        }
    ),
    ids=str,
)
def test_lookup_and_gradient_agree(rng, case):
    (rows, columns), config = case["shape"], EmbeddingConfig(4, case["group"], 5, 6)
    table = jnp.asarray(rng.normal(size=(rows, columns)), case["dtype"])
    ids = jnp.asarray(rng.integers(-2, rows + 2, case["count"]))
    rest = {
        "out_of_range": case["out_of_range"],
        "config": config,
        "interpret": True,
    }
    plain = lookup(ids, rows, case["out_of_range"])
    got = embedding(table, ids, **rest)
    assert got.dtype == table.dtype
    np.testing.assert_array_equal(np.asarray(got, float), exactly(plain, table))
    ct = jnp.asarray(rng.normal(size=got.shape), case["dtype"])
    grad = embedding_grad(ids, ct, rows=rows, **rest)
    assert grad.dtype == table.dtype
    (want,) = exact_cotangents(plain, ct, table)
    assert_agree(grad, want, case["dtype"])


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_integer_tables_are_looked_up_and_filled_as_jax_does(rng, dtype):
    table = jnp.asarray(rng.integers(0, 100, (9, 7)), dtype)
    ids = jnp.array([8, 9, 0, 3, -1], "int8")
    got = embedding(table, ids, config=CONFIG, interpret=True)
    want = table.at[jnp.where(ids < 0, 99, ids)].get(mode="fill")
    np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("x64")
def test_double_precision_and_wide_numbers_are_kept(rng):
    table = jnp.asarray(rng.normal(size=(9, 7)))
    ids = jnp.array([8, 2**32, 0, -(2**32)])
    got = embedding(table, ids, config=CONFIG, interpret=True)
    np.testing.assert_array_equal(got, lookup(ids, 9, "fill")(table))
    ct = jnp.asarray(rng.normal(size=(4, 7)))
    grad = embedding_grad(ids, ct, rows=9, config=CONFIG, interpret=True)
    np.testing.assert_array_equal(
        grad, jnp.zeros((9, 7)).at[8].set(ct[0]).at[0].set(ct[2])
    )


BAGS = pairwise(
    {
        "shape": [(11, 5), (1, 1), (8, 3)],
        "columns": [10, 3],
        "dtype": DTYPES,
        "weighted": [True, False],
        "mode": ["sum", "mean"],
        "out_of_range": ["clip", "fill", "drop"],
    }
)


@pytest.mark.parametrize("case", BAGS, ids=str)
def test_bags_and_their_gradients_agree(rng, case):
    dtype, rows = case["dtype"], 13
    table = jnp.asarray(rng.normal(size=(rows, case["columns"])), dtype)
    ids = jnp.asarray(rng.integers(-2, rows + 2, case["shape"]))
    weights = None
    if case["weighted"]:
        weights = jnp.asarray(rng.uniform(0.5, 1.5, case["shape"]), dtype)
    options = {name: case[name] for name in ("mode", "out_of_range")}
    rest = {**options, "config": CONFIG, "interpret": True}
    plain = bags(ids, rows, **options)
    got = embedding_bag(table, ids, weights, **rest)
    assert got.dtype == table.dtype
    assert_agree(got, exactly(plain, table, weights), dtype, "bags")
    ct = jnp.asarray(rng.normal(size=got.shape), dtype)
    want, want_weights = exact_cotangents(plain, ct, table, weights)
    grad = embedding_bag_table_grad(ids, weights, ct, rows=rows, **rest)
    assert_agree(grad, want, dtype, "table")
    if weights is not None:
        grad = embedding_bag_weights_grad(table, ids, weights, ct, **rest)
        assert_agree(grad, want_weights, dtype, "weights")


def test_nan_stays_in_its_own_row_of_the_gradient():
    ct = jnp.ones((3, 2)).at[1, 0].set(jnp.nan)
    ids = jnp.array([2, 0, 2])
    grad = embedding_grad(ids, ct, rows=3, config=CONFIG, interpret=True)
    np.testing.assert_array_equal(grad, [[jnp.nan, 1], [0, 0], [2, 2]])


def test_more_numbers_than_scalar_memory_holds_take_several_calls(rng, monkeypatch):
    for file in (embedding_file, bag_file, scattering):
        monkeypatch.setattr(file, "MOST_PREFETCHED", 8)
    table, ids = jnp.asarray(rng.normal(size=(5, 3)), "float32"), jnp.arange(20) % 7 - 1
    rest = {"config": CONFIG, "interpret": True}
    got = embedding(table, ids, **rest)
    np.testing.assert_array_equal(got, lookup(ids, 5, "fill")(table))
    grad = embedding_grad(ids, jnp.ones((20, 3)), rows=5, **rest)
    want = np.bincount(np.asarray(ids)[(ids >= 0) & (ids < 5)], minlength=5)
    np.testing.assert_array_equal(grad, np.repeat(want[:, None], 3, 1))
    pairs = ids.reshape(10, 2)
    got = embedding_bag(table, pairs, out_of_range="drop", **rest)
    assert_agree(got, exactly(bags(pairs, 5, "sum", "drop"), table, None), "float32")


@pytest.mark.parametrize(
    ("rows", "columns", "count"), [(0, 3, 2), (4, 0, 2), (4, 3, 0)]
)
def test_empty_lookups_have_the_right_shape(rows, columns, count):
    table, ids = jnp.ones((rows, columns)), jnp.zeros(count, "int32")
    rest = {"config": CONFIG, "interpret": True}
    got = embedding(table, ids, **rest)
    assert got.shape == (count, columns) and jnp.isnan(got).all()
    ct = jnp.ones((count, columns))
    grad = embedding_grad(ids, ct, rows=rows, **rest)
    np.testing.assert_array_equal(grad, np.full((rows, columns), 0))
    for shape in ((count, 0), (0, count), (count, 1)):
        ids, ct = jnp.zeros(shape, "int32"), jnp.ones((shape[0], columns))
        got = embedding_bag(table, ids, mode="mean", **rest)
        want = jnp.nan if rows == 0 and shape[1] else 0
        assert got.shape == ct.shape
        np.testing.assert_array_equal(got, jnp.full(ct.shape, want))
        grad = embedding_bag_table_grad(ids, None, ct, rows=rows, **rest)
        assert grad.shape == table.shape and (grad == 0).all()
        weights = jnp.ones(shape)
        grad = embedding_bag_weights_grad(table, ids, weights, ct, **rest)
        assert grad.shape == shape


@settings(max_examples=25)
@given(
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    rows=st.integers(1, 25),
    block=st.integers(1, 9),
    stretch=st.integers(1, 9),
)
def test_every_contribution_is_in_one_item_and_every_block_in_a_run_of_them(
    keys, rows, block, stretch
):
    key = jnp.asarray(sorted(keys), "int32")
    owner, piece, first, last = map(np.asarray, list_items(key, rows, block, stretch))
    taken = [
        (int(p) * stretch + i, int(o))
        for o, p, low, high in zip(owner, piece, first, last, strict=True)
        for i in range(low, high)
    ]
    want = [(i, k // block) for i, k in enumerate(sorted(keys)) if k < rows]
    assert taken == want
    assert (np.diff(owner) >= 0).all()
    assert set(owner) == set(range(-(-rows // block)))


def test_operands_that_do_not_fit_are_refused():
    table, ids = jnp.ones((4, 3)), jnp.zeros(2, "int32")
    rest = {"config": CONFIG, "interpret": True}
    with pytest.raises(ShapeError, match=r"ids\[n\].*\[2, 1\]"):
        embedding(table, ids[:, None], **rest)
    with pytest.raises(DTypeError, match=r"integers, got float32\[2\]"):
        embedding(table, jnp.ones(2), **rest)
    with pytest.raises(DTypeError, match="complex64"):
        embedding(table.astype("complex64"), ids, **rest)
    with pytest.raises(ParameterError, match="clip, fill, got 'wrap'"):
        embedding(table, ids, out_of_range="wrap", **rest)
    with pytest.raises(ShapeError, match="cannot clip to a table"):
        embedding(table[:0], ids, out_of_range="clip", **rest)
    with pytest.raises(ShapeError, match="ct"):
        embedding_grad(ids, jnp.ones((3, 3)), rows=4, **rest)
    with pytest.raises(ShapeError, match="weights of the shape of ids"):
        embedding_bag(table, ids[None], jnp.ones((1, 3)), **rest)
    with pytest.raises(ParameterError, match="sum or mean, got 'max'"):
        embedding_bag(table, ids[None], mode="max", **rest)
    with pytest.raises(DTypeError, match="table of floats, got int32"):
        embedding_bag(table.astype("int32"), ids[None], **rest)
