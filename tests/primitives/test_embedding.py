"""What is special to lookups: ids that are out of range, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.sharding import AxisType, PartitionSpec as P

from tilejax._jax.jaxprs import trace
from tilejax._jax.retiled import run
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.passes.inline import inline_calls
from tilejax.primitives import factors, retile
from tilejax.primitives.embedding import embedding, embedding_grad_op, embedding_op
from tilejax.primitives.embedding_bag import embedding_bag, embedding_bag_op

AS_JAX = {
    "fill": {"mode": "fill"},
    "zero": {"mode": "fill", "fill_value": 0},
    "clip": {"mode": "clip"},
    "promise": {"mode": "promise_in_bounds"},
}


def _own(table, ids, name):
    return table.at[ids].get(wrap_negative_indices=False, **AS_JAX[name])


def _loss(fun):
    return lambda *xs: jnp.nansum(jnp.sin(fun(*xs)))


def _same(got, want):
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), got, want
    )


@pytest.mark.parametrize("name", AS_JAX)
def test_ids_out_of_range_do_as_in_jax_with_every_derivative(rng, name):
    table = jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)
    ids = jnp.array([[0, 4, -1, 7], [1, 1, 4, 2]])

    def ours(t):
        return embedding(t, ids, out_of_range=name)

    def theirs(t):
        return _own(t, ids, name)

    for transform in (
        lambda f: f,
        lambda f: jax.grad(_loss(f)),
        lambda f: lambda t: jax.jvp(f, (t,), (jnp.cos(t),))[1],
        lambda f: jax.hessian(_loss(f)),
        lambda f: lambda t: jax.vmap(f, 1, 2)(jnp.stack([t, -t], 1)),
        lambda f: lambda t: jax.vmap(jax.grad(_loss(f)))(jnp.stack([t, -t])),
    ):
        _same(jax.jit(transform(ours))(table), jax.jit(transform(theirs))(table))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "complex64", "bfloat16"])
def test_what_fills_a_missing_row_is_that_of_jax(dtype):
    table = jnp.ones((3, 2), dtype)
    ids = jnp.array([2, 3])
    wide = "complex64" if dtype == "complex64" else "float32"
    np.testing.assert_array_equal(
        embedding(table, ids).astype(wide), _own(table, ids, "fill").astype(wide)
    )


@settings(max_examples=8)
@given(
    st.lists(st.integers(-3, 130), min_size=1, max_size=6),
    st.sampled_from(["int8", "uint8", "int16", "uint32", "int32"]),
    st.sampled_from(["zero", "clip"]),
)
def test_ids_of_any_dtype_are_those_of_jax(ids, dtype, name):
    table = jnp.arange(300.0).reshape(150, 2)
    at = np.array(ids).astype(dtype)
    np.testing.assert_array_equal(
        embedding(table, at, out_of_range=name), _own(table, at, name)
    )
    grads = [
        jax.grad(lambda t, f=f: jnp.sum(f(t) * t[3]))(table)
        for f in (
            lambda t: embedding(t, at, out_of_range=name),
            lambda t: _own(t, at, name),
        )
    ]
    _same(*grads)


def test_a_negative_id_does_not_wrap():
    got = embedding(jnp.arange(3.0), jnp.array([-1]), out_of_range="zero")
    assert got.tolist() == [0.0]


def _names(fun, *operands) -> list[str]:
    return [e.primitive.name for e in jax.make_jaxpr(fun)(*operands).eqns]


def test_gradients_are_operations_that_kernels_can_have():
    table, ids, w = jnp.ones((4, 2)), jnp.zeros((3, 5), int), jnp.ones((3, 5))
    names = _names(jax.grad(lambda t: _loss(embedding)(t, ids)), table)
    assert "tiled_embedding_grad" in names and "scatter-add" not in names
    pull = jax.grad(lambda t, w: _loss(embedding_bag)(t, ids, w), (0, 1))
    names = _names(pull, table, w)
    assert {"tiled_embedding_bag_grad", "tiled_embedding_bag_weights_grad"} <= {*names}
    assert not {"gather", "scatter-add"} & {*names}


def test_vmap_over_ids_or_a_table_is_a_wider_lookup():
    table, ids = jnp.ones((4, 2)), jnp.zeros((3, 5), int)
    assert _names(jax.vmap(embedding, (None, 0)), table, ids) == ["tiled_embedding"]
    (eqn,) = jax.make_jaxpr(jax.vmap(embedding, (None, 1), 1))(table, ids).eqns
    assert eqn.params["call"].levels == ()
    eqns = jax.make_jaxpr(jax.vmap(embedding, (0, None)))(table[None], ids).eqns
    (eqn,) = [e for e in eqns if e.primitive is embedding_op.forward_p]
    assert eqn.params["call"].levels == ()
    bag = jax.vmap(embedding_bag, (None, 0, None))
    eqns = jax.make_jaxpr(bag)(table, ids[None], jnp.ones((3, 5))).eqns
    (eqn,) = [e for e in eqns if e.primitive is embedding_bag_op.forward_p]
    assert eqn.params["call"].levels == ()


@pytest.mark.parametrize(
    ("name", "mode"),
    [("fill", "sum"), ("zero", "mean"), ("clip", "mean"), ("promise", "sum")],
)
def test_bags_out_of_range_do_as_in_jax_with_every_derivative(rng, name, mode):
    table, w = rng.normal(size=(5, 3)), rng.normal(size=(2, 4))
    table, w = table.astype(np.float32), w.astype(np.float32)
    ids = jnp.array([[0, 4, -1, 7], [1, 1, 4, 2]])

    def ours(t, w):
        return embedding_bag(t, ids, w, mode=mode, out_of_range=name)

    def theirs(t, w):
        return getattr(jnp, mode)(_own(t, ids, name) * w[..., None], axis=-2)

    def along(f):
        return lambda t, w: [
            jax.jvp(lambda t: f(t, w), (t,), (jnp.cos(t),))[1],
            jax.jvp(lambda w: f(t, w), (w,), (jnp.cos(w),))[1],
        ]

    for transform in (
        lambda f: f,
        along,
        lambda f: jax.grad(_loss(f), (0, 1)),
        lambda f: jax.hessian(_loss(f), (0, 1)),
        lambda f: (
            lambda t, w: jax.vmap(jax.grad(_loss(f), (0, 1)), (None, 0))(
                t, jnp.stack([w, -w])
            )
        ),
    ):
        got, want = (jax.jit(transform(f))(table, w) for f in (ours, theirs))
        _same(got, want)


def test_an_empty_bag_is_zero():
    got = embedding_bag(jnp.ones((3, 2)), jnp.zeros((1, 0), int), mode="mean")
    assert got.tolist() == [[0.0, 0.0]]


def test_a_bag_of_small_floats_is_summed_in_f32():
    table = jnp.ones((1, 1), jnp.float16) * 0.1
    got = embedding_bag(table, jnp.zeros((1, 3000), int))
    np.testing.assert_allclose(got, 300, rtol=1e-3)


LOOKUPS = {
    "indexing": (lambda t, i: t[i], "promise"),
    "take": (lambda t, i: jnp.take(t, i, axis=0), "fill"),
    "clip": (lambda t, i: jnp.take(t, i, axis=0, mode="clip"), "clip"),
    "zero": (lambda t, i: t.at[i].get(mode="fill", fill_value=0), "zero"),
    "nan by name": (lambda t, i: t.at[i].get(mode="fill", fill_value=jnp.nan), "fill"),
}
OTHERS = {
    "another value": lambda t, i: t.at[i].get(mode="fill", fill_value=7),
    "columns": lambda t, i: jnp.take(t, i, axis=1),
    "part of a row": lambda t, i: t[i, 0],
    "one with another": lambda t, i: jnp.take_along_axis(t, i[:, [0, 1, 0]], axis=0),
    "windows": lambda t, i: jax.vmap(
        lambda s: jax.lax.dynamic_slice(t, (s, 0), (2, 3))
    )(i[0]),
}


def _raised(fun, table, ids):
    """What a lookup in plain JAX becomes, once its gathers are replaced."""
    program, _ = trace(fun, table, ids)
    found = []

    def note(operands, params):
        outs = retile.replacements()[jax.lax.gather_p](operands, params)
        found.append(outs is not None)
        return outs

    out = run(inline_calls(program), {jax.lax.gather_p: note}, table, ids)[0]
    return out, found


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_gather_of_whole_rows_is_an_embedding(rng, name):
    fun, mode = LOOKUPS[name]
    table = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    ids = jnp.array([[0, 3], [2, 9]])
    got, found = _raised(fun, table, ids)
    assert found == [True]
    np.testing.assert_array_equal(got, fun(table, ids))
    eqns = jax.make_jaxpr(lambda t, i: _raised(fun, t, i)[0])(table, ids).eqns
    (eqn,) = [e for e in eqns if e.primitive is embedding_op.forward_p]
    assert eqn.params["out_of_range"] == mode


@pytest.mark.parametrize("name", OTHERS)
def test_another_gather_is_left_alone(name):
    table, ids = jnp.arange(12.0).reshape(4, 3), jnp.array([[0, 2], [1, 1]])
    got, found = _raised(OTHERS[name], table, ids)
    assert not any(found) and found
    np.testing.assert_array_equal(got, OTHERS[name](table, ids))


def test_an_explicit_result_may_be_sharded_at_will():
    mesh = jax.make_mesh(
        (2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=jax.devices()[:4]
    )
    with jax.set_mesh(mesh):
        table = jax.device_put(jnp.arange(32.0).reshape(8, 4), P("x", "y"))
        ids = jax.device_put(jnp.arange(4), P(None))

        def loss(table):
            y = embedding(table, ids, out_sharding=P("x", "y"))
            assert jax.typeof(y).sharding.spec == P("x", "y")
            return jnp.sum(y * y)

        grad = jax.jit(jax.grad(loss))(table)
        assert grad.sharding.spec == P("x", "y")
        want = 2 * np.arange(32.0).reshape(8, 4) * (np.arange(8) < 4)[:, None]
        np.testing.assert_allclose(grad, want)


TABLE, IDS = jnp.ones((3, 2)), jnp.zeros((2, 2), int)
ERRORS = [
    (ShapeError, "needs a dimension of rows", lambda: embedding(1.0, IDS)),
    (DTypeError, "ids are float32", lambda: embedding(TABLE, TABLE)),
    (
        ParameterError,
        "'wrap' is unknown; it takes fill",
        lambda: embedding(TABLE, IDS, out_of_range="wrap"),
    ),
    (ShapeError, "has no rows", lambda: embedding(TABLE[:0], IDS)),
    (ShapeError, "the bag", lambda: embedding_bag(TABLE, 1)),
    (
        ParameterError,
        "mode='max' is unknown",
        lambda: embedding_bag(TABLE, IDS, mode="max"),
    ),
    (DTypeError, "table is int32", lambda: embedding_bag(IDS, IDS)),
    (ShapeError, "one weight an id", lambda: embedding_bag(TABLE, IDS, TABLE)),
    (
        DTypeError,
        "give both one dtype",
        lambda: embedding_bag(TABLE, IDS, IDS.astype(jnp.bfloat16)),
    ),
    (
        ShapeError,
        "must be those of the ids",
        lambda: embedding_grad_op(IDS, TABLE, rows=3, out_sharding=None),
    ),
]


@pytest.mark.parametrize(("error", "says", "call"), ERRORS)
def test_what_does_not_fit_is_named(error, says, call):
    with pytest.raises(error, match=says):
        call()


def _cost(op, *avals, **params):
    assert op.cost is not None
    return op.cost(*avals, **params)


def test_costs_count_rows_that_are_read():
    table, ids, w = jnp.ones((10, 4)), jnp.zeros((2, 3), jnp.int32), jnp.ones((2, 3))
    plain = _cost(embedding_op, table, ids, out_of_range="fill", out_sharding=None)
    assert plain.operations == 0
    assert (plain.bytes_read, plain.bytes_written) == (6 * 16 + 24, 6 * 16)
    bag = _cost(embedding_bag_op, table, ids, w, mode="sum", out_of_range="fill")
    assert (bag.operations, bag.bytes_written) == (2 * 6 * 4, 2 * 16)
    grad = _cost(embedding_grad_op, ids, jnp.ones((2, 3, 4)), rows=10)
    assert (grad.operations, grad.bytes_written) == (24, 160)


def test_a_mean_keeps_its_bags_whole():
    avals = (TABLE, IDS, None)
    for mode, whole in (("sum", {"v"}), ("mean", {"v", "l"})):
        assert callable(embedding_bag_op.sharding)
        rule = factors.parse(embedding_bag_op.sharding(avals, {"mode": mode}))
        assert rule.whole == whole
