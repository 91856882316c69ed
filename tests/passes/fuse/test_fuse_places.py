"""Fused products inside transformations, loops and sharded programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

import tilejax
from tests.passes.fuse.test_fuse_products import BIAS, A, B, fused, numbers
from tests.passes.raising import check_same

WEIGHTS = numbers(3, 4, 4, seed=5)


def layer(a, b, c):
    return jax.nn.gelu(a @ b + c)


def scanned(a, b, c):
    return lax.scan(lambda x, w: (layer(x, w, c), None), a @ b, WEIGHTS)[0]


PLACES = {
    "a scan": (scanned, ["", "b gelu_tanh"]),
    "a branch": (
        lambda a, b, c: lax.cond(a[0, 0] > 0, layer, lambda a, b, c: a @ b, a, b, c),
        ["b gelu_tanh", ""],
    ),
    "a checkpoint": (jax.checkpoint(layer), ["b gelu_tanh"]),
    "a checkpoint that saves products": (
        jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable),
        ["b gelu_tanh"],
    ),
    "a map": (lambda a, b, c: jax.vmap(layer, (0, None, None))(a, b, c), None),
    "a map over biases": (
        lambda a, b, c: jax.vmap(layer, (None, None, 0))(a, b, jnp.stack([c, 2 * c])),
        None,
    ),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_product_is_fused_inside(case):
    fn, parts = PLACES[case]
    if parts is not None:
        assert sorted(fused(fn, A, B, BIAS)) == sorted(parts)
    check_same(fn, A, B, BIAS)


def test_what_is_fused_is_mapped_and_differentiated_twice():
    def both(jit):
        f = jit(layer)
        mapped = jax.vmap(f, (0, None, None))(A, B, BIAS)
        each = jax.vmap(f, (None, 0, None))(A, jnp.stack([B, -B]), BIAS)
        twice = jax.jvp(
            jax.grad(lambda c: f(A, B, c).sum()), (BIAS,), (jnp.ones_like(BIAS),)
        )
        return mapped, each, *twice

    for got, want in zip(both(tilejax.jit), both(jax.jit), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def _mesh(kind):
    return jax.make_mesh((2, 4), ("x", "y"), axis_types=(kind,) * 2)


SHARDED = {
    "rows": (P("x", None), P(None, None), P(None)),
    "columns": (P(None, None), P(None, "y"), P("y")),
    "rows and columns": (P("x", None), P(None, "y"), P("y")),
    "what is summed": (P(None, "y"), P("y", None), P(None)),
}


@pytest.mark.parametrize("case", SHARDED)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_sharded_operands_give_the_same(case, kind, eight_devices):
    if case == "what is summed" and kind is AxisType.Explicit:
        specs = (P(None, None), P(None, None), P(None))  # JAX itself refuses the other
    else:
        specs = SHARDED[case]
    mesh = _mesh(kind)
    arrays = (numbers(8, 4), numbers(4, 8, seed=1), numbers(8, seed=2))
    with jax.set_mesh(mesh):
        given = [
            jax.device_put(x, jax.NamedSharding(mesh, s))
            for x, s in zip(arrays, specs, strict=True)
        ]
        parts = fused(layer, *given)
        assert parts == ["b gelu_tanh"]
        check_same(layer, *given)


@pytest.mark.parametrize("activation", ["gelu_tanh", "relu"])
def test_manual_axes_give_the_same(activation, eight_devices):
    mesh = _mesh(AxisType.Auto)
    w = numbers(4, 8, seed=1)

    @jax.shard_map(mesh=mesh, in_specs=(P("x"), P(), P()), out_specs=P("x"))
    def fn(a, w, c):
        z = a @ w + c
        return jax.nn.relu(z) if activation == "relu" else jax.nn.gelu(z)

    given = [
        jax.device_put(x, jax.NamedSharding(mesh, s))
        for x, s in ((numbers(8, 4), P("x")), (w, P()), (numbers(8), P()))
    ]
    assert fused(fn, *given) == [f"b {activation}"]
    check_same(fn, *given)
