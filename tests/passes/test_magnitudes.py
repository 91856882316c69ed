"""What is said of how large a value can be holds, and is said of the usual biases."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import consts, trace
from tilejax.passes.magnitudes import magnitude
from tilejax.passes.rules import Definitions

X = jnp.array([1.0, -300.0])
BIG = np.array([3.0, -7.0], np.float32)

CASES = {
    "an input": (lambda x: x, math.inf),
    "a constant": (lambda x: jnp.asarray(BIG) * 2.0, 14.0),
    "a literal": (lambda x: jnp.full(3, -2.0), 2.0),
    "iota": (lambda x: jnp.arange(5.0), 5.0),
    "a sum": (lambda x: jnp.arange(5.0) - BIG[0], 8.0),
    "a select": (lambda x: jnp.where(x > 0, 2.0, -3.0), 3.0),
    "a select of -inf": (lambda x: jnp.where(x > 0, 0.0, -jnp.inf), math.inf),
    "out of range": (lambda x: (jnp.arange(9.0) * 1e5).astype(jnp.float16), math.inf),
    "integers that wrap": (
        lambda x: (jnp.arange(9) * 2**30).astype(jnp.float32),
        2.0**31,
    ),
    "nan": (lambda x: jnp.full(3, jnp.nan), math.inf),
    "infinity times nothing": (lambda x: x * 0.0, math.inf),
    "a division": (lambda x: 1.0 / x, math.inf),
    "truth values": (lambda x: (jnp.arange(3) * 7).astype(bool) * 1.0, 1.0),
    "a select by a mask that is broadcast": (
        lambda x: jnp.where(jnp.array([[True], [False]]), jnp.arange(5.0), -7.0),
        7.0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_magnitude_of(case):
    fn, want = CASES[case]
    program, _ = trace(fn, X)
    definitions = Definitions()
    program = _inlined(program)
    for eqn in program.eqns:
        definitions.add(eqn)
    known = dict(zip(program.constvars, consts(program), strict=True))
    found = magnitude(program.outvars[0], definitions, known)
    largest = np.max(np.abs(np.asarray(fn(X), np.float64)))
    assert found == want
    assert found >= largest or math.isnan(largest)


def test_the_magnitude_of_a_constant_on_a_device_is_unknown():
    placed = jax.device_put(jnp.ones(3), jax.devices()[1])
    program, _ = trace(lambda: lax.neg(placed))
    definitions = Definitions()
    definitions.add(program.eqns[0])
    known = dict(zip(program.constvars, consts(program), strict=True))
    assert magnitude(program.outvars[0], definitions, known) == math.inf


def _inlined(program):
    from tilejax.passes.inline import inline_calls

    return inline_calls(program)
