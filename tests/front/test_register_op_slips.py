"""Functions of a declaration that return the wrong thing, refused at first use."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tilejax import errors

NUMBERS = itertools.count()
X = jnp.arange(6.0).reshape(2, 3)


def register(reference=lambda x: 2 * x, **declared):
    """Register under a name of its own, since names are for good."""
    return tilejax.register_op(f"slip_{next(NUMBERS)}", reference=reference, **declared)


def refused(message):
    return pytest.raises(errors.DeclarationError, match=f"slip_[0-9]+: .*{message}")


@pytest.mark.parametrize("returned", [3, None, {"flops": 3}, (1.0, 2.0)], ids=str)
def test_a_cost_that_is_no_cost(returned):
    op = register(cost=lambda x: returned)
    assert op(X).shape == X.shape
    with refused("cost function returned .*tilejax.targets.Cost"):
        tilejax.explain(op, X)


@pytest.mark.parametrize(
    "returned",
    [{"y": X}, None, 2.0, 3, True, "text", (X, None), [X, 1], (X, (X,)), (), object],
    ids=repr,
)
def test_a_reference_that_returns_no_arrays(returned):
    op = register(lambda x: returned)
    for use in (op, jax.jit(op), tilejax.jit(op)):
        with refused("reference returns .*tuple of arrays"):
            use(X)


def test_a_reference_may_return_arrays_of_numpy_and_lists():
    op = register(lambda x: [np.ones(3, np.float32), x, np.float32(2)])
    assert [y.shape for y in op(X)] == [(3,), (2, 3), ()]


@pytest.mark.parametrize(
    "returned",
    [None, 4, {}, {8: 1}, pytest.param(iter([8]), id="iterator"), b"8"],
    ids=repr,
)
def test_a_config_space_that_is_no_list(returned):
    op = register(
        kernels={"tpu": lambda x, *, config: x},
        config_space=lambda target, x: returned,
    )
    assert op(X).shape == X.shape
    with refused("config_space returned .* for tpu:v5e; .*list of configs"):
        tilejax.explain(op, X, target="tpu:v5e")


@pytest.mark.parametrize("found", [(8, 16), [8], "too narrow", []], ids=repr)
def test_a_config_space_that_is_one(found):
    op = register(
        kernels={"tpu": lambda x, *, config: x}, config_space=lambda target, x: found
    )
    (record,) = tilejax.explain(op, X, target="tpu:v5e").kernels
    assert (record.impl == "native") == (found in ((8, 16), [8]))
    assert found != "too narrow" or record.reason == found


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "sharding function returned None.*factor rule"),
        (("m n", "m n"), "sharding function returned"),
        (2, "sharding function returned 2"),
        ("m n", "'m n' cannot be used"),
        ("m -> n", "appear in a result"),
    ],
)
def test_a_sharding_function_that_gives_no_rule(returned, message):
    with refused(message):
        register(sharding=lambda types, params: returned)(X)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "NoneType, not a tuple"),
        (X, "not a tuple"),
        ((), "0 gradients for 2 operands"),
        ((X,), "1 gradients for 2 operands"),
        ((X, X, X), "3 gradients for 2 operands"),
        ((X, X[0]), r"shape \(3,\) for operand 1 of shape \(2, 3\)"),
        ((X, 0.0), "0.0 for operand 1"),
        ((None, X), "None for operand 0"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_backward_that_returns_other_gradients(returned, message):
    op = register(lambda x, y: x * y, backward=lambda operands, saved, cts: returned)
    loss = jax.grad(lambda x, y: jnp.sum(op(x, y)), (0, 1))
    for use in (loss, jax.jit(loss), tilejax.jit(loss)):
        with refused(f"backward returned .*{message}"):
            use(X, X + 1)


AROUND = {
    "jit": lambda f: jax.jit(f)(X),
    "tilejax.jit": lambda f: tilejax.jit(f)(X),
    "vmap": lambda f: jax.vmap(f)(X),
    "grad": lambda f: jax.grad(lambda y: jnp.sum(f(y)))(X),
    "scan": lambda f: jax.lax.scan(lambda c, y: (c, f(y)), 0, X),
}


@pytest.mark.parametrize("way", AROUND)
def test_a_reference_that_closes_over_a_traced_value(way):
    with refused("reference uses a traced value .*float32.*as an operand"):
        AROUND[way](lambda y: register(lambda x: x * y)(X[0]))


@pytest.mark.parametrize("way", AROUND)
def test_a_backward_that_closes_over_a_traced_value(way):
    def use(y):
        op = register(backward=lambda operands, saved, cts: (cts[0] * y,))
        return jax.grad(lambda x: jnp.sum(op(x)))(y)

    with refused("backward uses a traced value .*float32.*as an operand"):
        AROUND[way](use)


def test_a_function_may_close_over_arrays_and_be_traced_around():
    table = jnp.ones(3)
    op = register(lambda x: jax.jit(lambda z: z * table)(x))
    want = np.asarray(X)
    for f in (op, jax.jit(op), tilejax.jit(op), jax.vmap(op)):
        np.testing.assert_array_equal(f(X), want)


def test_an_error_of_a_declared_function_itself_passes_as_it_is():
    def wrong(*operands, **params):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tilejax.explain(register(cost=wrong), X)
    with pytest.raises(KeyError, match="mine"):
        register(sharding=wrong)(X)
