"""Equations wait until they are needed, where that keeps fewer bytes alive."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.passes.raising import check_same
from tilejax._jax.jaxprs import trace, with_
from tilejax.errors import PassError
from tilejax.ir import verify
from tilejax.passes import order
from tilejax.passes.order import lower_peak, peak_bytes

X = jnp.asarray(np.random.default_rng(0).normal(size=8), jnp.float32)


def outer(x, k):
    """A matrix of `x` that is used as a number."""
    return x[:, None] * (x * k)


def hungry(x):
    """All matrices before any of their sums."""
    matrices = [outer(x, k) for k in range(6)]
    return sum(m.sum() for m in matrices)


def test_each_matrix_is_summed_before_the_next_is_made():
    before, _ = trace(hungry, X)
    after = lower_peak(before)
    verify(after, name="order")
    assert sorted(map(id, after.eqns)) == sorted(map(id, before.eqns))
    assert peak_bytes(before) >= 6 * 256
    assert peak_bytes(after) < 2 * 256 + 200
    assert lower_peak(after) is after
    check_same(hungry, X)


def test_a_good_order_is_left():
    before, _ = trace(lambda x: sum(outer(x, k).sum() for k in range(6)), X)
    assert lower_peak(before) is before


def test_what_is_returned_counts_to_the_end():
    before, _ = trace(lambda x: [outer(x, k) for k in range(6)], X)
    assert peak_bytes(before) >= 6 * 256
    assert lower_peak(before) is before


def test_bodies_are_ordered_too_and_count_while_they_run():
    def fn(x):
        return lax.scan(lambda c, _: (c + hungry(c), None), x, length=2)[0]

    before, _ = trace(fn, X)
    after = lower_peak(before)
    verify(after, name="order")
    assert peak_bytes(after) < peak_bytes(before)
    check_same(fn, X)


def test_nothing_passes_an_effect():
    said = []

    def fn(x):
        a, b = outer(x, 1.0), outer(x, 2.0)
        jax.debug.callback(lambda v: said.append(float(v)), x[0], ordered=True)
        c = a.sum()
        jax.debug.callback(lambda v: said.append(float(v)), c, ordered=True)
        return c + b.sum()

    before, _ = trace(fn, X)
    after = lower_peak(before)
    at = [i for i, eqn in enumerate(before.eqns) if eqn.effects]
    sides = [
        {id(e) for e in before.eqns[: at[0]]},
        {id(e) for e in after.eqns[: at[0]]},
    ]
    assert [bool(e.effects) for e in after.eqns] == [
        bool(e.effects) for e in before.eqns
    ]
    assert sides[0] == sides[1]


STEPS = st.lists(
    st.tuples(st.sampled_from("mosa"), st.integers(0, 9), st.integers(0, 9)),
    min_size=3,
    max_size=14,
)


def _apply(steps, x):
    values = [x]
    for kind, i, j in steps:
        a, b = values[i % len(values)], values[j % len(values)]
        if kind == "o":
            a = a.reshape(-1)[:4]
            values.append(a[:, None] * a)
        elif kind == "s":
            values.append(a.sum())
        elif kind == "m":
            values.append(jnp.sin(a))
        else:
            values.append(a.sum() + b)
    return values[-1], values[len(values) // 2]


@hypothesis.settings(max_examples=50)
@hypothesis.given(steps=STEPS)
def test_random_programs_keep_values_and_never_have_a_higher_peak(
    steps, one_by_one, same_bits
):
    before, _ = trace(lambda x: _apply(steps, x), X)
    after = lower_peak(before)
    verify(after, name="order")
    assert peak_bytes(after) <= peak_bytes(before)
    assert lower_peak(after) is after
    same_bits(one_by_one(after, [X]), one_by_one(before, [X]))


def test_an_order_that_is_worse_is_not_taken(monkeypatch):
    before, _ = trace(lambda x: sum(outer(x, k).sum() for k in range(6)), X)

    def sums_last(self, eqns):
        return sorted(eqns, key=lambda eqn: "sum" in eqn.primitive.name)

    worse = with_(before, eqns=sums_last(None, before.eqns))
    assert peak_bytes(worse) > peak_bytes(before)
    monkeypatch.setattr(order._Alive, "sorted", sums_last)
    assert lower_peak(before) is before


def test_an_order_that_reads_what_is_not_made_yet_is_seen(monkeypatch):
    before, _ = trace(hungry, X)
    monkeypatch.setattr(order._Alive, "sorted", lambda self, eqns: list(eqns)[::-1])
    peaks = iter([3, 2, 2])
    monkeypatch.setattr(order._Alive, "peak", lambda self, eqns: next(peaks))
    with pytest.raises(PassError, match="not defined"):
        verify(lower_peak(before), name="order")
