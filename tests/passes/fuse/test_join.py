"""Products that share an operand become one where the model says that it pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.passes.raising import check_same
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text, verify, walk
from tilejax.lowering.modelled import modelled
from tilejax.passes import join
from tilejax.passes.pipeline import run


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = jnp.asarray(numbers(16, 32))
W = [numbers(32, n, seed=n) for n in (8, 8, 24)]
ROWS = [numbers(n, seed=n) for n in (8, 8, 24)]


def products_first(eqns, outs):
    """A model in which products cost one, putting weights together two."""
    del outs
    costs = {"tiled_matmul": 1.0, "concatenate": 2.0}
    return sum(costs.get(eqn.primitive.name, 0.0) for eqn in eqns)


def joined(fn, *args, seconds=products_first):
    program, records = run(trace(fn, *args)[0], seconds=seconds)
    verify(program, name="the passes")
    assert as_text(run(program, seconds=seconds)[0]) == as_text(program)
    names = [visit.eqn.primitive.name for visit in walk(program)]
    notes = [what for r in records if r.name == "join" for what in r.notes]
    return names.count("tiled_matmul"), "; ".join(notes)


def test_constant_weights_are_joined_with_their_biases():
    def fn(x):
        q, k, v = (x @ w + b for w, b in zip(W, ROWS, strict=True))
        return jnp.sin(q) * k, v

    count, said = joined(fn, X)
    assert count == 1
    assert said == "joined 3 products of one operand: 1 s instead of 3 s by the model"
    check_same(fn, X)


def test_other_weights_are_joined_on_one_device_and_cost_a_copy(monkeypatch):
    def fn(x, *ws):
        return [x @ w for w in ws]

    count, said = joined(fn, X, *W)
    assert count == 3 and "many devices" in said
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    count, said = joined(fn, X, *W)
    assert count == 3 and "left 3 products" in said  # one and a copy are no gain
    count, _ = joined(fn, X, *W, *W)
    assert count == 1
    check_same(fn, X, *W, *W)


APART = {
    "another operand": lambda x: [x @ W[0], (x + 1) @ W[1]],
    "another activation": lambda x: [jnp.tanh(x @ W[0]), x @ W[1]],
    "a bias on one side": lambda x: [x @ W[0] + ROWS[0], x @ W[1]],
    "another precision": lambda x: [
        jnp.matmul(x, W[0], precision="highest"),
        x @ W[1],
    ],
    "another dtype": lambda x: [x @ W[0].astype(jnp.bfloat16), x @ W[1]],
    "the other side": lambda x: [x @ W[0], W[1].T @ x.T],
    "weights made of the other's result": lambda x: [
        x @ W[0],
        x @ (W[1] * (x @ W[0]).sum()),
    ],
    "a residual": lambda x: [x @ W[0] + x[:, :8], x @ W[1] + x[:, 8:16]],
}


@pytest.mark.parametrize("case", APART)
def test_products_stay_apart_with(case):
    assert joined(APART[case], X)[0] >= 2
    narrow = case == "another dtype"
    check_same(APART[case], X, tolerance=2e-2 if narrow else 1e-5)


def test_the_model_of_a_target_decides():
    wide = [numbers(512, 512, seed=i) for i in range(3)]
    few, many = (jax.ShapeDtypeStruct((n, 512), jnp.float32) for n in (128, 8192))

    def fn(x):
        q, k, v = (x @ w for w in wide)
        return jnp.sin(q) + k * v

    count, said = joined(fn, few, seconds=modelled("tpu:v5e"))
    assert count == 1 and "us instead of" in said
    # a result that something else than a loop reads is copied out of the joint one
    count, said = joined(
        lambda x: [x @ w for w in wide], many, seconds=modelled("tpu:v5e")
    )
    assert count == 3 and said.startswith("left 3 products of one operand: ")


def test_sums_that_are_cut_elsewhere_are_seen(monkeypatch):
    right = jax.lax.slice_in_dim

    def wrong(x, start, stop, axis):
        return right(x, 0, stop - start, axis=axis)

    monkeypatch.setattr(join.jax.lax, "slice_in_dim", wrong)
    monkeypatch.setattr("tilejax.front.tile.modelled", lambda _: products_first)
    with pytest.raises(AssertionError):
        check_same(lambda x: [x @ w for w in W], X, grad=False)


def test_join_is_golden(golden):
    def fn(x):
        return [x @ w + b for w, b in zip(W, ROWS, strict=True)]

    before, _ = run(trace(fn, X)[0], {"join": False, "freeze": False})
    after = join.join_products(before, seconds=products_first)
    golden("join", as_text(after))
    assert join.join_products(after, seconds=products_first) is after
    assert join.join_products(before) is before
