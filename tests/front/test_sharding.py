"""Jitted functions over several devices: automatic, explicit and manual axes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tilejax
from tests.front.agreement import check_agreement, outcome
from tests.front.models import MODELS

X = jnp.arange(64.0).reshape(8, 8) / 64


def auto(*sizes):
    names = ("a", "b")[: len(sizes)]
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(sizes))


def collectives(text):
    names = "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute"
    return {name: text.count(f" {name}(") for name in names}


def mlp(w, x):
    return jnp.sum(jax.nn.softmax(jnp.tanh(x @ w) @ w.T) ** 2, axis=-1)


@pytest.mark.parametrize("sizes", [(4,), (8,), (2, 4)])
def test_shardings_of_arguments_and_results_agree(sizes):
    mesh = auto(*sizes)
    rows, columns = NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "a"))

    def case(jit):
        given = jit(mlp, in_shardings=(columns, rows), out_shardings=rows)
        placed = jit(mlp)(jax.device_put(X, columns), jax.device_put(X, rows))
        inner = jit(lambda x: lax.with_sharding_constraint(x @ x, rows) * 2)
        return given(X, X), placed, inner(X)

    def moved(jit):
        given = jit(mlp, in_shardings=(columns, rows), out_shardings=rows)
        return collectives(given.lower(X, X).compile().as_text())

    check_agreement(case)
    # a matrix and its transpose need not both be gathered
    ours, theirs = moved(tilejax.jit), moved(jax.jit)
    assert all(ours[name] <= theirs[name] for name in theirs)


def test_gradients_of_sharded_functions_agree():
    mesh = auto(8)
    rows = NamedSharding(mesh, P("a"))

    def case(jit):
        f = jit(lambda w, x: mlp(w, x).sum(), in_shardings=(None, rows))
        x = jax.device_put(X, rows)
        compiled = jit(jax.grad(f, (0, 1))).lower(X, x).compile()
        return compiled(X, x), collectives(compiled.as_text())

    check_agreement(case, rtol=1e-5)


def test_a_sharding_that_does_not_fit_is_the_same_error():
    rows = NamedSharding(auto(8), P("a"))

    def case(jit):
        return outcome(jit(mlp, in_shardings=rows), X[:7], X[:7])

    check_agreement(case)


@pytest.mark.parametrize("size", [4, 8])
def test_manual_axes_agree(size):
    mesh = auto(size)

    def case(jit):
        @partial(jax.shard_map, mesh=mesh, in_specs=(P(None, "a"), P()), out_specs=P())
        @jit
        def summed(x, w):
            return lax.psum(jnp.tanh(x) @ x.T, "a") @ w

        @partial(jax.shard_map, mesh=mesh, in_specs=P("a"), out_specs=(P("a"), P("a")))
        def mixed(x):
            whole = jit(lambda x: lax.all_gather(x, "a", tiled=True))(x)
            moved = lax.ppermute(x, "a", [(i, (i + 1) % size) for i in range(size)])
            scaled = x * lax.axis_index("a")
            return jit(lambda w, x: jax.nn.softmax(x @ w))(whole, moved), scaled

        total = jit(lambda x, w: jnp.sum(summed(x, w) ** 2))
        return (
            jit(summed)(X, X),
            jax.grad(total, (0, 1))(X, X),
            jit(mixed)(X),
            jax.vmap(mixed)(jnp.stack([X, X])),
        )

    check_agreement(case, rtol=1e-5)


def test_varying_values_may_not_leave_as_replicated():
    mesh = auto(4)

    def case(jit):
        f = jax.shard_map(
            jit(lambda x: x @ x.T), mesh=mesh, in_specs=P("a"), out_specs=P()
        )
        return outcome(f, X), outcome(jit(f), X)

    check_agreement(case)


@pytest.mark.parametrize("name", ["dense", "normalised", "attended", "looked_up"])
def test_models_on_manual_axes_agree(name):
    model, (p, x) = MODELS[name]
    mesh = auto(4)

    def case(jit):
        @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("a")), out_specs=P())
        def loss(p, xs):
            return lax.pmean(jit(lambda p, xs: model(p, xs[0]))(p, xs), "a")

        xs = jnp.stack([x, x + 1, x * 2, x - 1])
        return jax.value_and_grad(loss, (0, 1))(p, xs), jit(jax.grad(loss))(p, xs)

    check_agreement(case, rtol=2e-5)


def test_explicit_axes_agree():
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)

    def case(jit):
        with jax.set_mesh(mesh):
            x, w = jax.device_put(X, P("a", None)), jax.device_put(X, P(None, "b"))
            f = jit(lambda x, w: jax.nn.softmax(jnp.tanh(x @ w), axis=0))
            kinds = []

            @jit
            def g(x, w):
                y = x @ w
                kinds.append([str(jax.typeof(v)) for v in (x, w, y, jnp.sin(y))])
                return y.sum()

            bad = outcome(jit(lambda x: x @ x.T), jax.device_put(X, P(None, "a")))
            return f(x, w), jax.grad(g, (0, 1))(x, w), kinds[0], bad

    check_agreement(case, rtol=1e-5)


@pytest.mark.parametrize("how", [{}, {"axis_name": "i"}])
def test_batches_over_devices_agree(how):
    mesh = auto(4)

    def case(jit):
        with jax.set_mesh(mesh):
            rows = NamedSharding(mesh, P("a"))
            inner = jit(lambda x: lax.with_sharding_constraint(x @ X[:2].T, P(None)))
            f = jit(jax.vmap(inner, spmd_axis_name="a", **how))
            return f(jax.device_put(jnp.stack([X] * 4), rows))

    check_agreement(case)


def test_named_axes_of_batches_agree():
    def f(x):
        return (
            x - lax.pmean(x, "i"),
            lax.psum(x @ x, "i"),
            lax.all_gather(x, "i"),
            lax.axis_index("i"),
            lax.psum(1, "i"),
        )

    def case(jit):
        over = partial(jax.vmap, axis_name="i")
        twice = over(
            jax.vmap(jit(lambda x: lax.psum(x, ("i", "j")) * x), axis_name="j")
        )
        summed = jit(lambda x: over(jit(f))(x)[1].sum())
        return over(jit(f))(X), jit(over(f))(X), jax.grad(summed)(X), twice(X)

    check_agreement(case)


def test_an_unbound_axis_is_the_same_error():
    check_agreement(lambda jit: outcome(jit(lambda x: lax.psum(x, "nowhere")), X))


def test_arrays_on_other_devices_stay_there(eight_devices):
    def case(jit):
        there = jax.device_put(np.arange(3.0), eight_devices[5])
        mixed = outcome(jit(jnp.add), there, jax.device_put(1.0, eight_devices[2]))
        with jax.default_device(eight_devices[3]):
            made = jit(lambda: jnp.ones(2))()
        return jit(lambda x: x @ x)(there), jit(lambda: there * 2)(), made, mixed

    check_agreement(case)


def test_products_of_reduced_operands_agree():
    mesh = jax.make_mesh((4,), ("a",), axis_types=(AxisType.Explicit,))

    def case(jit):
        with jax.set_mesh(mesh):
            x = jax.device_put(X, P("a", None))
            w = jax.device_put(X, P(None, None, reduced=frozenset("a")))
            f = jit(lambda w, x: jnp.sum(x @ w))
            g = jax.jit(lambda w, x: jax.sharding.reshard(jax.grad(f)(w, x), P()))
            return g(w, x)

    check_agreement(case)
