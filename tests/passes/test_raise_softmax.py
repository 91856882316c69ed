"""Softmax as `jax.nn` writes it is raised, and nothing that only looks like it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.passes.raising import check_same, raised, reasons
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text
from tilejax.passes.pipeline import run
from tilejax.passes.raise_softmax import raise_softmax

X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4)), jnp.float32)

RAISED = {
    "the last axis": lambda x: jax.nn.softmax(x),
    "the first axis": lambda x: jax.nn.softmax(x, axis=0),
    "two axes": lambda x: jax.nn.softmax(x, axis=(0, 2)),
    "all axes": lambda x: jax.nn.softmax(x, axis=(0, 1, 2)),
    "its logarithm": lambda x: jax.nn.log_softmax(x),
    "its logarithm over two axes": lambda x: jax.nn.log_softmax(x, axis=(1, -1)),
    "a transpose": lambda x: jax.nn.softmax(x.transpose(2, 0, 1), axis=1),
    "a transpose over two axes": lambda x: jax.nn.softmax(x.T, axis=(0, 2)),
    "mapped": lambda x: jax.vmap(jax.nn.softmax)(x),
    "mapped over the last axis": lambda x: jax.vmap(
        jax.nn.log_softmax, in_axes=2, out_axes=1
    )(x),
    "mapped twice": lambda x: jax.vmap(jax.vmap(jax.nn.softmax, 1), 0)(x),
    "with a temperature": lambda x: jax.nn.softmax(x * 3.0) * 2.0,
    "a mask before": lambda x: jax.nn.softmax(jnp.where(x > 0, x, -jnp.inf)),
    "in bfloat16": lambda x: jax.nn.softmax(x.astype(jnp.bfloat16)),
    "in float16": lambda x: jax.nn.log_softmax(x.astype(jnp.float16), axis=0),
    "in bfloat16, a transpose": lambda x: jax.vmap(jax.nn.softmax, 2)(
        x.astype(jnp.bfloat16)
    ),
    "under checkpoint": lambda x: jax.checkpoint(jax.nn.softmax)(x),
    "in a scan": lambda x: lax.scan(lambda c, a: (c + 1, jax.nn.softmax(a)), 0, x)[1],
    "in a cond": lambda x: lax.cond(x[0, 0, 0] > 0, jax.nn.softmax, jnp.sin, x),
    "in a while": lambda x: lax.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, jax.nn.softmax(s[1])), (0, x)
    )[1],
}
NOT_DIFFERENTIABLE = ("in a while",)


@pytest.mark.parametrize("case", RAISED)
def test_softmax_is_raised_over_or_in(case):
    assert raised(RAISED[case], X) == {"softmax": 1}
    narrow = "float16" in case
    check_same(
        RAISED[case],
        X,
        tolerance=2e-2 if narrow else 1e-5,
        grad=case not in NOT_DIFFERENTIABLE,
    )


def by_hand(x, top, over, total=None):
    e = jnp.exp(x - top)
    return e / jnp.sum(e if total is None else total, over, keepdims=True)


def stopped_max(x, axis):
    return lax.stop_gradient(jnp.max(x, axis, keepdims=True))


NEAR_MISSES = {
    "max without stop_gradient": lambda x: by_hand(
        x, jnp.max(x, -1, keepdims=True), -1
    ),
    "no max": lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x), -1, keepdims=True),
    "a sum over another axis": lambda x: by_hand(x, stopped_max(x, 2), 1),
    "a sum over more axes": lambda x: by_hand(x, stopped_max(x, 2), (1, 2)),
    "a max of something else": lambda x: by_hand(x, stopped_max(x * x, 2), 2),
    "a min": lambda x: by_hand(x, lax.stop_gradient(jnp.min(x, -1, keepdims=True)), -1),
    "a sum of something else": lambda x: by_hand(x, stopped_max(x, 2), 2, jnp.cos(x)),
    "a floor under the max": lambda x: by_hand(
        x, lax.stop_gradient(jnp.max(x, -1, keepdims=True, initial=0.0)), -1
    ),
    "a sum with one more": lambda x: (
        jnp.exp(x - stopped_max(x, 2))
        / (1 + jnp.sum(jnp.exp(x - stopped_max(x, 2)), -1, keepdims=True))
    ),
    "where=": lambda x: jax.nn.softmax(x, where=x > 0),
    "log where=": lambda x: jax.nn.log_softmax(x, where=x > 0),
    "squares": lambda x: x**2 / jnp.sum(x**2, -1, keepdims=True),
    "exp2": lambda x: (
        jnp.exp2(x - stopped_max(x, 2))
        / jnp.sum(jnp.exp2(x - stopped_max(x, 2)), -1, keepdims=True)
    ),
    "exponentials used again": lambda x: (
        lambda e: (e / jnp.sum(e, -1, keepdims=True), e)
    )(jnp.exp(x - stopped_max(x, 2))),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "the wrong way round": lambda x: (
        jnp.sum(jnp.exp(x - stopped_max(x, 2)), -1, keepdims=True)
        / jnp.exp(x - stopped_max(x, 2))
    ),
    "a log of another sum": lambda x: (
        (x - stopped_max(x, 2)) - jnp.log(jnp.sum(jnp.exp(x), -1, keepdims=True))
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_no_softmax_is_seen_in(case):
    assert raised(NEAR_MISSES[case], X) == {}
    check_same(NEAR_MISSES[case], X, grad="where" not in case)


@pytest.mark.parametrize("move", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_a_maximum_of_a_transpose_is_matched_by_its_own_axes(move):
    """JAX maps a reduction without moving its operand; the axes must be x's own."""
    square = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3, 3)), jnp.float32)

    def of(axis):
        def fn(x):
            moved = lax.transpose(x, move)
            top = lax.broadcast_in_dim(jnp.max(x, axis), (3, 3, 1), (0, 1))
            e = jnp.exp(moved - lax.stop_gradient(top))
            return e / jnp.sum(e, -1, keepdims=True)

        return fn

    for axis in range(3):
        check_same(of(axis), square)


def test_softmax_keeps_infinities_and_nan_as_jax_has_them():
    x = jnp.array([[0.0, -jnp.inf], [-jnp.inf, -jnp.inf], [jnp.inf, 0], [jnp.nan, 0]])
    assert raised(jax.nn.softmax, x) == {"softmax": 1}
    check_same(jax.nn.softmax, x, grad=False)
    check_same(jax.nn.log_softmax, x, grad=False)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1,), (1, 1)])
def test_softmax_of_nothing_or_one_number(shape):
    check_same(jax.nn.softmax, jnp.zeros(shape))
    check_same(jax.nn.log_softmax, jnp.zeros(shape))


def test_softmax_in_float64(x64):
    x = X.astype(jnp.float64)
    assert raised(jax.nn.softmax, x) == {"softmax": 1}
    check_same(jax.nn.softmax, x, tolerance=1e-13)


def test_a_derivative_that_needs_the_exponentials_keeps_them():
    def fn(x):
        return jax.grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2))(x)

    check_same(fn, X)
    if raised(fn, X) == {}:
        assert "exponentials are used elsewhere" in reasons(fn, X)


def test_dead_readers_of_the_exponentials_do_not_count():
    def fn(x):
        e = jnp.exp(x - stopped_max(x, 2))
        jnp.sin(e)
        return e / jnp.sum(e, -1, keepdims=True)

    assert raised(fn, X) == {"softmax": 1}


def test_raise_softmax_is_golden(golden):
    def fn(x):
        return jax.nn.softmax(x), jax.nn.log_softmax(x, axis=0)

    before, _ = run(trace(fn, jnp.ones((2, 3)))[0], ["inline", "simplify", "cse"])
    after, _ = run(before, ["raise_softmax", "dce"])
    golden("raise_softmax", as_text(after))
    assert raise_softmax(after) is after


def test_softmax_is_raised_under_a_mesh(eight_devices):
    kinds = jax.sharding.AxisType
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(kinds.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.sharding.reshard(
            jnp.arange(64.0).reshape(8, 8), jax.sharding.PartitionSpec("a", None)
        )
        assert raised(jax.nn.softmax, x) == {"softmax": 1}
        check_same(jax.nn.softmax, x)
        manual = jax.shard_map(
            partial(jax.nn.softmax, axis=1),
            in_specs=jax.sharding.PartitionSpec("a"),
            out_specs=jax.sharding.PartitionSpec("a"),
        )
        assert raised(manual, x) == {"softmax": 1}
        check_same(manual, x)
