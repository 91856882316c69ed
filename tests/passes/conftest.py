"""What the tests of passes share: an evaluator of their own, a check of a pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilejax._jax.jaxprs import consts, is_literal, trace
from tilejax._jax.nested import nested, scan_parts
from tilejax.ir import as_text, verify


def interpret(program, args, constants=None):
    """Run a program equation by equation, loops unrolled, so that XLA fuses nothing."""
    env = dict(zip(program.invars, args, strict=True))
    constants = consts(program) if constants is None else constants
    env |= zip(program.constvars, constants, strict=True)

    def read(atom):
        return atom.val if is_literal(atom) else env[atom]

    for eqn in program.eqns:
        operands = [read(v) for v in eqn.invars]
        special = _SPECIAL.get(eqn.primitive.name)
        if special:
            outs = special(eqn, operands)
        else:
            params = eqn.primitive.get_bind_params(eqn.params)
            outs = eqn.primitive.bind(*operands, **params)
            outs = outs if eqn.primitive.multiple_results else [outs]
        env |= zip(eqn.outvars, outs, strict=True)
    return [read(v) for v in program.outvars]


def _call(eqn, operands):
    ((_, body),) = nested(eqn)
    return interpret(body, operands)


def _scan(eqn, operands):
    ((_, body),) = nested(eqn)
    n, m = scan_parts(eqn)
    fixed, carry, xs = operands[:n], operands[n : n + m], operands[n + m :]
    order = range(eqn.params["length"])
    rows: list[Any] = [None] * len(order)
    for i in reversed(order) if eqn.params["reverse"] else order:
        outs = interpret(body, [*fixed, *carry, *(jnp.asarray(x)[i] for x in xs)])
        carry, rows[i] = outs[:m], outs[m:]
    return [*carry, *(jnp.stack(column) for column in zip(*rows, strict=True))]


def _while(eqn, operands):
    (_, condition), (_, body) = nested(eqn)
    n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    for_condition, for_body = operands[:n], operands[n : n + m]
    carry = operands[n + m :]
    while interpret(condition, [*for_condition, *carry])[0]:
        carry = interpret(body, [*for_body, *carry])
    return carry


def _cond(eqn, operands):
    branches = [body for _, body in nested(eqn)]
    which = min(max(int(operands[0]), 0), len(branches) - 1)
    return interpret(branches[which], operands[1:])


_SPECIAL = {
    "jit": _call,
    "remat2": _call,
    "custom_jvp_call": _call,
    "custom_vjp_call": _call,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def assert_same_bits(got, want):
    """Compare values bit by bit, all NaN alike, and their types, weak or not."""
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert jax.typeof(g) == jax.typeof(w), f"output {i}"
        g, w = np.asarray(g), np.asarray(w)
        if g.dtype.kind in "fc" or g.dtype.name == "bfloat16":
            assert (np.isnan(g) == np.isnan(w)).all(), f"output {i}: {g} against {w}"
            zero = np.zeros((), g.dtype)
            g, w = np.where(np.isnan(g), zero, g), np.where(np.isnan(w), zero, w)
        assert g.tobytes() == w.tobytes(), f"output {i}: {g} against {w}"


@pytest.fixture(scope="session")
def same_bits() -> Callable:
    return assert_same_bits


@pytest.fixture(scope="session")
def one_by_one() -> Callable:
    return interpret


@pytest.fixture(scope="session")
def after() -> Callable:
    """Run a pass on a function; check validity, values and a second run."""

    def check(change: Callable, fn: Callable, *args):
        before, _ = trace(fn, *args)
        text = as_text(before)
        program = change(before)
        verify(program, name="the pass")
        assert as_text(before) == text, "the pass changed its argument"
        leaves = jax.tree.leaves(args)
        assert_same_bits(interpret(program, leaves), interpret(before, leaves))
        assert change(program) is program, "a second run changed something"
        return program

    return check


@pytest.fixture(scope="session")
def names() -> Callable:
    """The primitives of a program, in order, bodies apart."""
    return lambda program: [eqn.primitive.name for eqn in program.eqns]
