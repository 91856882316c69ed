"""Each operation of the table: its value, its jaxpr in a graph, its own errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.ops.samples import arguments
from tilejax import errors, ops
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text
from tilejax.ops.layers import layers
from tilejax.ops.registry import declare, operations

pytestmark = pytest.mark.usefixtures("quick_to_compile")

USES = [
    pytest.param(op, sample, id=f"{op.name}-{at}")
    for op in operations().values()
    for at, sample in enumerate(op.samples)
]
WITH_ORACLE = [
    pytest.param(op, sample, id=f"{op.name}-{at}")
    for op in operations().values()
    for at, sample in enumerate(op.samples)
    if op.oracle is not None
]
# Their oracles are in the files beside this one, or with the primitives.
WITHOUT_ORACLE = {
    *(f"conv{n}d{end}" for n in (1, 2, 3) for end in ("", "_transpose")),
    "conv_general_dilated",
    "max_pool",
    "average_pool",
    "group_norm",
}


def test_every_operation_has_an_oracle_and_a_sample():
    table = operations()
    assert {n for n, op in table.items() if op.oracle is None} == WITHOUT_ORACLE
    assert all(op.samples for op in table.values())


def test_every_operation_is_in_the_library_under_its_name():
    table = operations()
    assert len(table) > 130
    assert all(getattr(ops, name) is op for name, op in table.items())
    there = {n for n, x in vars(ops).items() if isinstance(x, ops.Operation)}
    assert there == set(table)


@pytest.mark.parametrize(("op", "sample"), WITH_ORACLE)
def test_the_value_is_that_of_the_oracle(op, sample, rng):
    args, params = arguments(op, sample, rng)
    found, wanted = op(*args, **params), op.oracle(*args, **params)
    several = isinstance(wanted, tuple | list)
    assert several == isinstance(found, tuple | list)
    pairs = zip(found, wanted, strict=True) if several else [(found, wanted)]
    for a, b in pairs:
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_a_wrong_value_would_be_seen(rng):
    wrong = dataclasses.replace(ops.exp, oracle=np.expm1)
    with pytest.raises(AssertionError):
        test_the_value_is_that_of_the_oracle(wrong, wrong.samples[0], rng)


@pytest.mark.parametrize(("op", "sample"), USES)
def test_a_graph_of_it_is_the_jaxpr_of_a_function_of_it(op, sample, rng):
    args, params = arguments(op, sample, rng)
    leaves, tree = jax.tree.flatten(args)
    is_array = [isinstance(x, np.ndarray) for x in leaves]
    graph = tilejax.GraphBuilder()
    nodes = [
        graph.placeholder(shape=x.shape, dtype=x.dtype) if a else x
        for x, a in zip(leaves, is_array, strict=True)
    ]
    method = functools.partial(graph.apply, op)
    if op.name not in layers():
        method = getattr(graph, op.name)
    out = method(*jax.tree.unflatten(tree, nodes), **params)
    graph.output(*jax.tree.leaves(out))

    def function(*given):
        there = iter(given)
        full = [next(there) if a else x for x, a in zip(leaves, is_array, strict=True)]
        return op(*jax.tree.unflatten(tree, full), **params)

    given = [x for x, a in zip(leaves, is_array, strict=True) if a]
    assert as_text(graph.to_jaxpr()) == as_text(trace(function, *given)[0])


@pytest.mark.parametrize(
    ("plain", "op"),
    [
        (jax.nn.relu, ops.relu),
        (jnp.tanh, ops.tanh),
        (lambda x: jnp.sum(x, 0), lambda x: ops.sum(x, axis=0)),
        (
            lambda x: jnp.mean(x, -1, keepdims=True),
            lambda x: ops.mean(x, axis=-1, keepdims=True),
        ),
        (lambda x: x + 1.0, lambda x: ops.add(x, 1.0)),
        (lambda x: x.reshape(-1), lambda x: ops.reshape(x, (-1,))),
        (
            lambda x: x[1:, ::2],
            lambda x: ops.index(x, index=(slice(1, None), slice(None, None, 2))),
        ),
        (lambda x: jnp.concatenate([x, x]), lambda x: ops.concatenate([x, x])),
    ],
)
def test_ordinary_operations_are_those_of_jax(plain, op):
    x = jnp.ones((4, 6))
    assert as_text(trace(plain, x)[0]) == as_text(trace(op, x)[0])


X, Y, IDS = jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.zeros((2,), jnp.int32)
WRONG = [
    (lambda: ops.add(X, Y), errors.ShapeError, r"add: x is float32\[2,3\].*\[4,3\]"),
    (lambda: ops.where(X > 0, X, Y), errors.ShapeError, "where: .*do not broadcast"),
    (lambda: ops.bitwise_and(X, X), errors.DTypeError, "bitwise_and: .*bits"),
    (lambda: ops.sum(X, axis=2), errors.ParameterError, r"sum: axis=2.*0 to 1"),
    (lambda: ops.sum(X, axis=(0, 0)), errors.ParameterError, "names an axis twice"),
    (lambda: ops.sum(X, axis=0.5), errors.ParameterError, "axes are integers"),
    (lambda: ops.max(X[:0], axis=0), errors.ShapeError, r"max: .*\[0,3\].*no elements"),
    (lambda: ops.reshape(X, (4, 4)), errors.ShapeError, r"reshape\(x=float32\[2,3\]"),
    (lambda: ops.transpose(X, (0,)), errors.ParameterError, "name each axis once"),
    (lambda: ops.squeeze(X, axis=0), errors.ShapeError, "axis 0 has size 2"),
    (lambda: ops.concatenate([X, Y], axis=1), errors.ShapeError, "equal in all axes"),
    (lambda: ops.split(X, parts=2, axis=1), errors.ShapeError, "2 equal parts"),
    (lambda: ops.top_k(X, k=4), errors.ShapeError, "k=4.*3 elements"),
    (lambda: ops.take(X, X), errors.DTypeError, "take: indices .*integer"),
    (lambda: ops.take_along_axis(X, IDS), errors.ShapeError, "give both one rank"),
    (lambda: ops.dense(X, Y), errors.ShapeError, r"dense: .*takes 4"),
    (lambda: ops.dense(X, Y.T, jnp.ones(3)), errors.ShapeError, r"shape \(4,\)"),
    (lambda: ops.conv2d(X, Y), errors.ShapeError, "conv2d: x .*rank must be 4"),
    (
        lambda: ops.max_pool(X[None], window=4),
        errors.ShapeError,
        "larger than the space",
    ),
    (lambda: ops.max_pool(X[None]), errors.ParameterError, "give window="),
    (
        lambda: ops.batch_norm(X, jnp.ones(2), jnp.ones(3)),
        errors.ShapeError,
        "mean .*3 channels",
    ),
    (lambda: ops.dropout(X, rate=1.0), errors.ParameterError, "rate=1.0"),
    (lambda: ops.dropout(X, IDS, rate=0.5), errors.DTypeError, "jax.random.key"),
    (lambda: ops.sin("x"), errors.DTypeError, "no array"),
    (lambda: ops.sum(X, 0), errors.ArgumentError, r"by keyword: sum\(x, axis=None"),
    (lambda: ops.sum(X, axes=0), errors.ArgumentError, "no parameter 'axes'"),
    (lambda: ops.gelu(X, x=X), errors.ArgumentError, "given twice"),
    (lambda: ops.segment_sum(X, IDS[:1], count=2), errors.ShapeError, "one segment"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_a_mistake_is_refused_by_name_with_what_to_do(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_name_is_declared_once():
    with pytest.raises(errors.DeclarationError, match=r"relu.*twice"):
        declare("relu", jax.nn.relu, "Clip.", family="mine")


def test_what_is_traced_where_it_must_be_static_stays_jaxs_error():
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x, n: ops.flip(x, axis=0) if n else x)(X, 1)
