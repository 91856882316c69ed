"""Graphs whose sizes have names: compiled for buckets, for each size, or once."""

import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tilejax import errors

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def _encoder():
    graph = tilejax.GraphBuilder("encoder")
    ids = graph.placeholder("ids", shape=("batch", "length"), dtype="int32")
    x = graph.embedding(ids, vocabulary=11, features=8)
    x = x + graph.multi_head_attention(graph.layer_norm(x), heads=2, causal=True)
    x = x + graph.dense(graph.gelu(graph.dense(graph.rms_norm(x), 16)), 8)
    graph.output(x, graph.mean(x, axis=1))
    return graph


def _classifier():
    graph = tilejax.GraphBuilder("classifier")
    x = graph.placeholder("image", shape=("batch", 8, 8, 3))
    x = graph.relu(graph.batch_norm(graph.conv2d(x, 4, 3, stride=2), training=True))
    x = graph.flatten(graph.max_pool(x, window=2), start=1)
    graph.output(graph.softmax(graph.dense(x, units=5)))
    return graph


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (4, 8), (5, 7)])
def test_an_encoder_is_the_same_for_every_batch_and_length(sizes, rng):
    graph = _encoder()
    params = graph.init(0)
    ids = rng.integers(0, 11, sizes).astype(np.int32)
    found = graph.compile(params=params)(ids)
    wanted = graph.to_function()(params, ids)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [3, 4])
def test_batch_statistics_are_of_the_real_batch(batch, rng):
    graph = _classifier()
    params = graph.init(0)
    x = rng.standard_normal((batch, 8, 8, 3)).astype(np.float32)
    compiled = graph.compile(params=params)
    wanted = graph.to_function()(params, x)
    np.testing.assert_allclose(compiled(x), wanted, rtol=1e-4, atol=1e-6)


def test_each_name_has_its_buckets(rng):
    graph = _encoder()
    compiled = graph.compile(key=0, bucket={"length": [4, 16]})
    text = compiled.lower(np.zeros((3, 5), np.int32)).as_text("jaxpr")
    assert "i32[3,16]" in text
    with pytest.raises(errors.BucketError, match="length is 17"):
        compiled(np.zeros((3, 17), np.int32))
    exact = graph.compile(key=0, bucket=None)
    assert "i32[3,5]" in exact.lower(np.zeros((3, 5), np.int32)).as_text("jaxpr")


def test_sizes_are_symbolic_in_nodes_and_in_print():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder("x", shape=("n", 4))
    y = graph.placeholder("y", shape=("m", "n"))
    z = graph.matmul(y, x)
    assert str(z.shape) == "(m, 4)"
    graph.output(z)
    assert "input y: float32[m,n]" in str(graph)
    assert "f32[m,4]" in str(graph)


def test_shapes_that_may_differ_are_refused_while_building():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=("n", 4))
    y = graph.placeholder(shape=("m", 4))
    with pytest.raises(errors.ShapeError, match=r"add: x is float32\[n,4\]"):
        _ = x + y


def test_an_export_of_named_sizes_serves_all(rng):
    graph = _encoder()
    params = graph.init(0)
    exported = graph.export()
    for sizes in ((2, 3), (1, 6)):
        ids = jnp.asarray(rng.integers(0, 11, sizes), jnp.int32)
        for a, b in zip(
            exported.call(params, ids), graph.to_function()(params, ids), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
