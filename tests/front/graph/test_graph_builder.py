"""What a graph is built of, what it prints, and what becomes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tilejax
from tilejax import errors, ops


def _mlp(shape=(4, 8)):
    graph = tilejax.GraphBuilder("mlp")
    x = graph.placeholder("x", shape=shape)
    graph.output(graph.dense(graph.relu(graph.dense(x, units=16)), units=3))
    return graph


def test_it_prints_inputs_parameters_and_the_program(golden):
    golden("graph_builder", str(_mlp()))


def test_for_a_target_it_prints_what_the_target_gets():
    graph = _mlp()
    text = str(graph.optimize_for("ascend:910b1"))
    assert "for ascend:910b1" in text.splitlines()[0]
    assert text.count("@ascend:910b1") == 2


@pytest.mark.parametrize("kind", ["ascend", "gpu", "tpu"])
def test_each_kind_of_target_has_a_method(kind):
    graph = _mlp()
    assert getattr(graph, f"apply_{kind}_optimization")() is graph
    assert f" for {kind}:" in str(graph)


def test_what_is_compiled_for_another_machine_says_so_when_called():
    compiled = _mlp().optimize_for("tpu:v5e").compile(key=0)
    with pytest.raises(errors.TargetError, match="tpu:v5e"):
        compiled(jnp.ones((4, 8)))


def test_parameters_have_names_shapes_and_their_initialisers():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=("batch", 8, 8, 3))
    with graph.scope("stem"):
        x = graph.conv2d(x, filters=4, kernel_size=3, kernel_init="ones", bias_init=0.5)
        x = graph.conv2d(x, 4, (1, 2), groups=2, layout="NHWC", use_bias=False)
    graph.output(graph.conv2d(x, 4, 1, name="head"))
    params = graph.init(jax.random.key(0))
    shapes = jax.tree.map(jnp.shape, params)
    assert shapes == {
        "stem": {
            "conv2d": {"kernel": (3, 3, 3, 4), "bias": (4,)},
            "conv2d_1": {"kernel": (1, 2, 2, 4)},
        },
        "head": {"kernel": (1, 1, 4, 4), "bias": (4,)},
    }
    np.testing.assert_array_equal(params["stem"]["conv2d"]["kernel"], 1.0)
    np.testing.assert_array_equal(params["stem"]["conv2d"]["bias"], 0.5)


def test_a_layout_with_features_first_has_kernels_with_outputs_first():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2, 3, 8, 8))
    graph.output(graph.conv2d(x, 64, 3, layout="NCHW"))
    kernel = graph.init(0)["conv2d"]["kernel"]
    assert kernel.shape == (64, 3, 3, 3)
    # he_normal: the variance is 2 over the inputs of an output
    assert abs(float(kernel.var()) * 3 * 9 / 2 - 1) < 0.15


def test_a_parameter_starts_the_same_whatever_else_there_is():
    alone, among = tilejax.GraphBuilder(), _mlp()
    alone.dense(alone.placeholder(shape=(4, 8)), units=16)
    one, other = alone.init(7), among.init(7)
    np.testing.assert_array_equal(one["dense"]["kernel"], other["dense"]["kernel"])
    assert (other["dense"]["kernel"][:, :3] != other["dense_1"]["kernel"][:8]).any()


def test_compiled_it_holds_or_takes_parameters():
    graph = _mlp()
    x = jnp.ones((4, 8))
    one, other = graph.init(0), graph.init(1)
    wanted = [graph.to_function()(params, x) for params in (one, other)]
    compiled = graph.compile(params=one)
    np.testing.assert_allclose(compiled(x), wanted[0], rtol=1e-5)
    np.testing.assert_allclose(compiled(x, params=other), wanted[1], rtol=1e-5)
    np.testing.assert_allclose(compiled(x=x), wanted[0], rtol=1e-5)
    compiled.params = other
    np.testing.assert_allclose(compiled(x), wanted[1], rtol=1e-5)
    with pytest.raises(errors.ParameterError, match=r"graph\.init"):
        graph.compile()(x)
    assert "tiled_matmul" in compiled.lower(x).as_text("tiled")


def test_it_is_trained_with_optax(rng):
    graph = _mlp()
    x = jnp.asarray(rng.standard_normal((4, 8)), jnp.float32)
    y = jnp.asarray(rng.standard_normal((4, 3)), jnp.float32)
    function, optimiser = graph.to_function(), optax.adam(1e-2)
    loss = tilejax.jit(lambda p: jnp.mean((function(p, x) - y) ** 2))
    params = graph.init(0)
    state, first = optimiser.init(params), loss(params)
    for _ in range(40):
        updates, state = optimiser.update(jax.grad(loss)(params), state)
        params = optax.apply_updates(params, updates)
    assert loss(params) < 0.2 * first


def test_batch_norm_trains_by_the_batch_and_keeps_moving_statistics(rng):
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=("batch", 4))
    graph.output(graph.batch_norm(x, training=True, momentum=0.5))
    params = graph.init(0)
    given = jnp.asarray(3 + 2 * rng.standard_normal((64, 4)), jnp.float32)
    out, after = graph.to_function(updates=True)(params, given)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(0), 1, atol=1e-3)
    kept = after["batch_norm"]
    np.testing.assert_allclose(kept["mean"], given.mean(0) / 2, rtol=1e-5)
    np.testing.assert_allclose(kept["variance"], (given.var(0) + 1) / 2, rtol=1e-5)
    grads = jax.grad(lambda p: jnp.sum(graph.to_function()(p, given) ** 2))(params)
    moving = jax.tree.map(lambda g, t: t or not g.any(), grads, graph.trainable())
    assert all(jax.tree.leaves(moving))


def test_without_parameters_the_function_takes_inputs_alone():
    graph = tilejax.GraphBuilder()
    x, y = (graph.placeholder(n, shape=(3,)) for n in "xy")
    graph.output(2 * x + y / 4 - 1, x @ y, -x)
    found = graph.to_function()(jnp.ones(3), jnp.full(3, 4.0))
    assert [f.tolist() for f in found] == [[2.0] * 3, 12.0, [-1.0] * 3]
    found = graph.compile()(jnp.ones(3), y=jnp.full(3, 4.0))
    assert found[1] == 12.0


def test_outputs_may_have_names_and_constants_are_kept():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2,))
    graph.output(more=x + graph.constant([1.0, 2.0]), less=x[0] < x[1])
    found = graph.compile()(jnp.array([3.0, 4.0]))
    assert found["more"].tolist() == [4.0, 6.0] and bool(found["less"])


def test_any_function_of_arrays_can_be_applied():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(5,))
    tree = graph.apply(lambda x, n: {"a": x[:n], "b": (x.sum(),)}, x, 2)
    graph.output(tree["a"], tree["b"][0])
    assert graph.compile()(jnp.arange(5.0))[0].tolist() == [0.0, 1.0]


def test_dropout_takes_a_key_as_an_input():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(1000,))
    key = graph.placeholder("key", shape=(), dtype=jax.random.key(0).dtype)
    graph.output(graph.dropout(x, key, rate=0.5))
    y = graph.compile()(jnp.ones(1000), jax.random.key(3))
    assert 400 < int((y == 0).sum()) < 600


def test_rows_of_a_node_can_be_unpacked():
    graph = tilejax.GraphBuilder()
    first, second = graph.placeholder(shape=(2, 3))
    graph.output(first - second)
    assert graph.compile()(jnp.ones((2, 3))).tolist() == [0.0] * 3


def _node():
    return tilejax.GraphBuilder().placeholder(shape=(2, 3))


WRONG = [
    (lambda g, x: g.dense(x, 0), errors.ParameterError, "dense: units=0"),
    (lambda g, x: g.dense(x), errors.ArgumentError, r"'units'.*dense\(x, units"),
    (lambda g, x: g.dense(x, 3, unit=1), errors.ArgumentError, "unit"),
    (lambda g, x: g.matmul(x, x), errors.ShapeError, r"matmul: .*float32\[2,3\]"),
    (lambda g, x: x @ x, errors.ShapeError, "matmul"),
    (lambda g, x: x + _node(), errors.ArgumentError, "another graph"),
    (lambda g, x: g.output(_node()), errors.ArgumentError, "no node of"),
    (lambda g, x: g.output(jnp.ones(2)), errors.ArgumentError, "no node of"),
    (lambda g, x: bool(x), errors.ArgumentError, r"graph\.where"),
    (lambda g, x: g.sine(x), AttributeError, "sine"),
    (lambda g, x: g.conv2d(x, 3, 3), errors.ShapeError, "layout=NHWC.*4 axes"),
    (lambda g, x: g.dense(x, 3, kernel_init="he"), errors.ParameterError, "he_normal"),
    (lambda g, x: g.dense(x, 3, activation="rely"), errors.ParameterError, "relu"),
    (lambda g, x: g.optimize_for("npu"), errors.TargetError, "npu"),
    (lambda g, x: g.compile(), errors.ParameterError, "no output"),
    (lambda g, x: g.placeholder("x0", shape=()), errors.ParameterError, "x0"),
    (lambda g, x: g.placeholder(shape=(-1,)), errors.ShapeError, "size -1"),
    (lambda g, x: g.placeholder(shape=("a b",)), errors.ShapeError, "'a b'"),
    (lambda g, x: g.parameter("w.x", (2,)), errors.ParameterError, "w.x"),
    (lambda g, x: g.update(x, x), errors.ParameterError, "no parameter"),
    (lambda g, x: tilejax.GraphBuilder("a b"), errors.ParameterError, "a b"),
    (
        lambda g, x: g.multi_head_attention(g.expand_dims(x, axis=0), heads=2),
        errors.ParameterError,
        "2 heads do not divide the width 3",
    ),
    (
        lambda g, x: g.dense(g.placeholder(shape=(2, "n")), 3),
        errors.ShapeError,
        "n, must be a number",
    ),
    (
        lambda g, x: g.apply(
            lambda y: y[: y.shape[0] // 2] if y.shape[0] > 5 else y,
            g.placeholder(shape=("n",)),
        ),
        errors.ShapeError,
        "depends on the value of a size",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_a_mistake_is_an_error_of_its_own_call(call, error, text):
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2, 3))
    before = len(graph._record.steps)
    with pytest.raises(error, match=text):
        call(graph, x)
    assert not [s for s in graph._record.steps[before:] if s.function is ops.matmul]


def test_a_layer_that_fails_leaves_no_parameters_behind():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder(shape=(2, 8, 8, 3))
    with pytest.raises(errors.ParameterError, match="padding='SOME'"):
        graph.conv2d(x, 4, 3, padding="SOME")
    assert graph.init(0) == {}
    graph.conv2d(x, 4, 3)
    assert list(graph.init(0)) == ["conv2d"]


CALLS = [
    (lambda c: c(), errors.ArgumentError, r"its inputs are \(x\)"),
    (lambda c: c(jnp.ones((4, 8)), jnp.ones(3)), errors.ArgumentError, "too many"),
    (
        lambda c: c(jnp.ones((4, 9))),
        errors.ShapeError,
        r"\[4,9\].*must be float32\[4,8\]",
    ),
    (lambda c: c(jnp.ones(4)), errors.ShapeError, r"x is float32\[4\]"),
    (lambda c: c(jnp.ones((4, 8), int)), errors.DTypeError, "x is int32"),
    (lambda c: c(jnp.ones((4, 8)), params={}), errors.ParameterError, "dense.kernel"),
]


@pytest.mark.parametrize(("call", "error", "text"), CALLS)
def test_a_wrong_argument_is_refused_by_name(call, error, text):
    with pytest.raises(error, match=text):
        call(_mlp().compile(key=0))


def test_a_name_is_one_size_in_all_inputs():
    graph = tilejax.GraphBuilder()
    x = graph.placeholder("x", shape=("n", 2))
    y = graph.placeholder("y", shape=("n", 2))
    graph.output(x + y)
    compiled = graph.compile(bucket=None)
    assert compiled(jnp.ones((3, 2)), jnp.ones((3, 2))).shape == (3, 2)
    with pytest.raises(errors.ShapeError, match=r"n is 3 in x, but 1 in y"):
        compiled(jnp.ones((3, 2)), jnp.ones((1, 2)))


def test_one_export_is_for_all_sizes():
    graph = _mlp(("batch", 8))
    params = graph.init(0)
    exported = graph.export()
    assert "batch" in str(exported.in_avals)
    for batch in (1, 5):
        x = jnp.ones((batch, 8))
        wanted = graph.to_function()(params, x)
        np.testing.assert_allclose(exported.call(params, x), wanted, rtol=1e-5)
