"""Random programs around products keep their values through the passes that fuse."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text, verify
from tilejax.passes import epilogue
from tilejax.passes.pipeline import run


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


OPERANDS = (numbers(4, 6), numbers(6, 4), numbers(4), numbers(4, 4, seed=1))

# What may follow a product, in the order of an epilogue or not.
STEPS = {
    "bias": lambda z, c, r: z + c,
    "column": lambda z, c, r: z + r[:, :1],
    "number": lambda z, c, r: 0.5 + z,
    "scale": lambda z, c, r: z * c,
    "half": lambda z, c, r: 0.5 * z,
    "residual": lambda z, c, r: r + z,
    "gate": lambda z, c, r: z * r,
    "relu": lambda z, c, r: jax.nn.relu(z),
    "maximum": lambda z, c, r: jnp.maximum(z, 0),
    "gelu": lambda z, c, r: jax.nn.gelu(z),
    "silu": lambda z, c, r: jax.nn.silu(z),
    "tanh": lambda z, c, r: jnp.tanh(z),
    "turn": lambda z, c, r: z.T,
    "fold": lambda z, c, r: (z.reshape(2, 2, 4) + c).reshape(4, 4),
    "narrow": lambda z, c, r: z.astype(jnp.bfloat16).astype(jnp.float32),
    "product": lambda z, c, r: z @ r,
    "shared": lambda z, c, r: z @ r + (z @ r.T + c),
}
NAMES = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6)


def _apply(steps, twice, a, b, c, r):
    values = [a @ b]
    for step in steps:
        values.append(STEPS[step](values[-1], c, r))
    return values[-1], values[twice % len(values)]


def _agree(steps, twice, is_returned, one_by_one, change=run):
    def fn(*args):
        outs = _apply(steps, twice, *args)
        return outs if is_returned else outs[0]

    before, _ = run(trace(fn, *OPERANDS)[0], ["inline", "simplify", "raise_lax"])
    after, _ = change(before)
    verify(after, name="fuse")
    loose = 3e-2 if "narrow" in steps else 1e-4
    got, want = one_by_one(after, OPERANDS), one_by_one(before, OPERANDS)
    for x, y in zip(got, want, strict=True):
        scale = max(1.0, float(jnp.abs(y).max()))
        np.testing.assert_allclose(x, y, rtol=loose, atol=loose * scale)
    assert as_text(change(after)[0]) == as_text(after)


@hypothesis.settings(max_examples=40)
@hypothesis.given(steps=NAMES, twice=st.integers(0, 6), is_returned=st.booleans())
def test_random_epilogues_keep_values(steps, twice, is_returned, one_by_one):
    _agree(steps, twice, is_returned, one_by_one)


@pytest.mark.parametrize(
    "steps", [["residual", "bias", "relu"], ["gelu", "scale"], ["relu", "bias"]]
)
def test_an_epilogue_in_another_order_is_seen(steps, monkeypatch, one_by_one):
    _agree(steps, 0, False, one_by_one)
    right = epilogue.Finder._took

    def forgets(self, found, what, *eqns):
        done = right(self, found, what, *eqns)
        found.stage = 0
        return done

    monkeypatch.setattr(epilogue.Finder, "_took", forgets)
    with pytest.raises(AssertionError):
        _agree(steps, 0, False, one_by_one)
