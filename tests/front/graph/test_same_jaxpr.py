"""Building a graph gives the jaxpr that tracing the same function gives."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.ops.samples import arrays
from tilejax import ops
from tilejax._jax.jaxprs import trace
from tilejax._jax.symbolic import symbols
from tilejax.ir import as_text, source
from tilejax.ops.layers import layers

pytestmark = pytest.mark.usefixtures("quick_to_compile")

LAYERS = [
    pytest.param(layer, text, options, id=f"{layer.name}-{at}")
    for layer in layers().values()
    for at, (text, options) in enumerate(layer.samples)
]


def _block(g, x, mask):
    h = g.layer_norm(x)
    h = g.multi_head_attention(h, heads=2, causal=True)
    x = x + g.dropout(h, rate=0.0)
    h = g.gelu(g.dense(g.rms_norm(x), 16))
    x = x + g.dense(h, 8)
    return g.where(g.expand_dims(mask, axis=-1), x, 0.0)


def _as_function(params, x, mask):
    p = params
    h = ops.layer_norm(x, p["layer_norm"]["scale"], p["layer_norm"]["bias"])
    a = p["multi_head_attention"]
    q, k, v = (
        ops.reshape(ops.dense(h, a[n], a[f"{n}_bias"]), (*h.shape[:-1], 2, 4))
        for n in ("query", "key", "value")
    )
    o = ops.attention(q, k, v, causal=True, layout="bshd")
    o = ops.dense(ops.reshape(o, (*h.shape[:-1], 8)), a["out"], a["out_bias"])
    x = x + o
    h = ops.rms_norm(x, p["rms_norm"]["scale"])
    h = jax.nn.gelu(ops.dense(h, p["dense"]["kernel"], p["dense"]["bias"]))
    x = x + ops.dense(h, p["dense_1"]["kernel"], p["dense_1"]["bias"])
    return jnp.where(jnp.expand_dims(mask, -1), x, 0.0)


@pytest.mark.parametrize("batch", [2, "batch"])
def test_a_transformer_block_is_the_same_both_ways(batch):
    graph = tilejax.GraphBuilder("block")
    x = graph.placeholder("x", shape=(batch, 5, 8))
    mask = graph.placeholder("mask", shape=(batch, 5), dtype=bool)
    graph.output(_block(graph, x, mask))
    size = batch if isinstance(batch, int) else symbols([batch])[batch]
    types = [
        jax.eval_shape(lambda: graph.init(0)),
        jax.ShapeDtypeStruct((size, 5, 8), jnp.float32),
        jax.ShapeDtypeStruct((size, 5), jnp.bool_),
    ]
    assert as_text(graph.to_jaxpr()) == as_text(trace(_as_function, *types)[0])


def test_the_values_and_gradients_are_those_of_the_function(rng):
    graph = tilejax.GraphBuilder("block")
    x = graph.placeholder("x", shape=(2, 5, 8))
    mask = graph.placeholder("mask", shape=(2, 5), dtype=bool)
    graph.output(_block(graph, x, mask))
    params = graph.init(jax.random.key(1))
    given = arrays("f32[2,5,8] bool[2,5]", rng)

    def loss(fun):
        return lambda params: jnp.sum(jnp.sin(fun(params, *given)))

    (ours, d_ours), (theirs, d_theirs) = (
        jax.jit(jax.value_and_grad(loss(fun)))(params)
        for fun in (graph.to_function(), _as_function)
    )
    assert ours == theirs
    jax.tree.map(np.testing.assert_array_equal, d_ours, d_theirs)


@pytest.mark.parametrize(("layer", "text", "options"), LAYERS)
def test_each_layer_makes_parameters_and_runs(layer, text, options, rng):
    graph = tilejax.GraphBuilder()
    given = arrays(text, rng)
    nodes = [graph.placeholder(shape=x.shape, dtype=x.dtype) for x in given]
    out = getattr(graph, layer.name)(*nodes, **options)
    graph.output(out)
    params = graph.init(3)
    assert list(params) == [layer.name]
    found = graph.compile(params=params)(*given)
    assert found.shape == out.shape and found.dtype == out.dtype
    assert np.isfinite(found).all()


def test_an_equation_knows_the_line_of_its_call():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2, 3))
    graph.output(graph.dense(x, 4))
    first = source(graph.to_jaxpr().eqns[0])
    assert first is not None and first.file == __file__
    lines = Path(__file__).read_text().splitlines()
    assert "graph.dense(x, 4)" in lines[first.line - 1]


def test_what_no_output_needs_is_not_traced():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2, 3))
    graph.sin(x)
    graph.output(graph.cos(x))
    assert [eqn.primitive.name for eqn in graph.to_jaxpr().eqns] == ["cos"]
