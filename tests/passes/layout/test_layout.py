"""Transposes and reshapes go where a product or their opposite takes them."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

from tests.passes.raising import check_same
from tilejax._jax.jaxprs import trace, with_
from tilejax.ir import as_text, verify, walk
from tilejax.passes import turned
from tilejax.passes.layout import settle_layouts
from tilejax.passes.pipeline import run


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


A, B, ROW, CUBE = numbers(6, 5), numbers(5, 4), numbers(4), numbers(2, 3, 5)
OPERANDS = (A, B, ROW, CUBE)
LEFT = ("transpose", "reshape")


def views(fn, *args):
    """The transposes and reshapes that are left."""
    program, _ = run(trace(fn, *args)[0])
    verify(program, name="the passes")
    assert as_text(run(program)[0]) == as_text(program)
    found = [visit.eqn for visit in walk(program)]
    # a row in another shape is a row
    whole = [e for e in found if sum(n > 1 for n in e.outvars[0].aval.shape) > 1]
    return [e.primitive.name for e in whole if e.primitive.name in LEFT]


GONE = {
    "an operand": lambda a, b, c, h: b.T @ a.T,
    "both orders": lambda a, b, c, h: (a @ b).T,
    "a mapped matrix times a vector": lambda a, b, c, h: jax.vmap(
        lambda v: b.T @ v + c
    )(a),
    "einsum": lambda a, b, c, h: jnp.einsum("oi,bi->bo", b.T, a) + c,
    "a pair around arithmetic": lambda a, b, c, h: jnp.exp(a.T * 2 + 1).T,
    "a pair around a row": lambda a, b, c, h: (a.T + a[:, 0]).T,
    "a pair around two": lambda a, b, c, h: (jnp.sin(a.T) * jnp.cos(a.T * 3)).T,
    "arithmetic before a product": lambda a, b, c, h: jnp.tanh(a.T + 1).T @ b,
    "arithmetic after a product": lambda a, b, c, h: ((a @ b).T + c[:, None]).T,
    "a transposed operand under arithmetic": lambda a, b, c, h: jnp.exp(b.T) @ a.T,
    "a reshape and back": lambda a, b, c, h: jnp.exp(h.reshape(6, 5)).reshape(2, 3, 5),
    "a reshape around a row": lambda a, b, c, h: (h.reshape(6, 5) * b[:, 0]).reshape(
        2, 3, 5
    ),
    "batches in another order": lambda a, b, c, h: jnp.einsum("xyi,xyj->yxij", h, h),
    "three dimensions": lambda a, b, c, h: jnp.sin(h.transpose(2, 0, 1)).transpose(
        1, 2, 0
    ),
}


@pytest.mark.parametrize("case", GONE)
def test_no_view_is_left_of(case):
    assert views(GONE[case], *OPERANDS) == []
    check_same(GONE[case], *OPERANDS)


KEPT = {
    "a result": lambda a, b, c, h: a.T,
    "one that is read elsewhere": lambda a, b, c, h: (jnp.exp(a.T).T, jnp.exp(a.T)),
    "one side of a sum": lambda a, b, c, h: (h[0].T + h[1].reshape(5, 3)).T,
    "a free order that would change": lambda a, b, c, h: jnp.einsum(
        "ijk,kl->jil", h, b
    ),
    "a sum over rows": lambda a, b, c, h: (a.T - a.T.max(0)).sum(0),
    "a matrix that is added": lambda a, b, c, h: (a @ b).T + b.T[:, :1] + a.T[:4],
    "a reshape of the last dimension": lambda a, b, c, h: (
        h.reshape(2, 15) + jnp.arange(15.0)
    ).reshape(2, 3, 5),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_view_is_kept_of(case):
    assert views(KEPT[case], *OPERANDS)
    check_same(KEPT[case], *OPERANDS)


def test_gradients_of_products_need_no_transposes():
    def step(a, b, c, h):
        return jax.grad(lambda b: jnp.sin(a @ b).sum())(b)

    assert views(step, *OPERANDS) == []
    check_same(step, *OPERANDS, grad=False)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_sharded_values_give_the_same(kind, eight_devices):
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        a = jax.device_put(numbers(8, 4), jax.NamedSharding(mesh, P("x", None)))
        w = jax.device_put(numbers(4, 8), jax.NamedSharding(mesh, P(None, "y")))
        check_same(lambda a, w: (w.T @ a.T).T + jnp.exp(a @ w), a, w)


def test_layout_is_golden(golden):
    def fn(a, b, c, h):
        y = (b.T @ jnp.exp(a).T).T
        return y, (y.T @ y).T, jnp.exp(h.reshape(6, 5)).reshape(2, 3, 5)

    before, _ = run(trace(fn, *OPERANDS)[0], {"layout": False, "fuse": False})
    after = settle_layouts(before)
    golden("layout", as_text(after))
    assert settle_layouts(after) is after


STEPS = st.lists(
    st.tuples(st.sampled_from("tuebprs"), st.integers(0, 5)), min_size=2, max_size=7
)


def _apply(steps, x, w):
    for kind, at in steps:
        if kind == "t":
            order = list(np.random.default_rng(at).permutation(x.ndim))
            x = x.transpose(order)
        elif kind == "u":
            x = jnp.sin(x) * 0.5
        elif kind == "e":
            x = x + jnp.cos(x)
        elif kind == "b":
            x = x + jnp.arange(x.shape[-1], dtype=x.dtype)
        elif kind == "p":
            x = lax.dot_general(
                x, w[: x.shape[at % x.ndim]], (((at % x.ndim,), (0,)), ((), ()))
            )
        elif kind == "r":
            x = (
                x.reshape(-1, x.shape[-1])
                if x.ndim > 2
                else x.reshape(x.shape[0], 2, -1)
            )
        else:
            x = x.sum(at % x.ndim, keepdims=True) + x
    return x


@hypothesis.settings(max_examples=30)
@hypothesis.given(steps=STEPS)
def test_random_views_keep_values(steps, one_by_one):
    given = (numbers(4, 2, 4), numbers(4, 4))
    try:
        before, _ = trace(lambda x, w: _apply(steps, x, w), *given)
    except (TypeError, ValueError):
        hypothesis.assume(False)
        return
    before, _ = run(before, ["inline", "simplify", "raise_lax"])
    after, _ = run(before, ["layout", "simplify", "dce"])
    verify(after, name="layout")
    (got,), (want,) = one_by_one(after, given), one_by_one(before, given)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert run(after, ["layout"])[0] is after


def test_a_product_that_is_turned_wrongly_is_seen(monkeypatch, one_by_one):
    right = turned.reading

    def wrong(eqn, at, x, order):
        made = right(eqn, at, x, order)
        return None if made is None else with_numbers(made, eqn)

    def with_numbers(made, eqn):
        numbers = eqn.params["dimension_numbers"]
        return made.replace(params={**made.params, "dimension_numbers": numbers})

    monkeypatch.setattr("tilejax.passes.layout.reading", wrong)
    square = (numbers(4, 4), numbers(4, 4, seed=1))
    before, _ = run(trace(lambda a, b: a.T @ b, *square)[0], ["inline", "raise_lax"])
    after = settle_layouts(before)
    assert after is not before and with_(after) is not after
    (got,), (want,) = one_by_one(after, square), one_by_one(before, square)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(got, want, rtol=1e-3)
