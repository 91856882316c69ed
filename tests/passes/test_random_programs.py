"""Random programs through the passes: values, validity and a second run."""

from collections.abc import Callable
from functools import partial

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import trace, with_
from tilejax._jax.values import literal as literal_of
from tilejax.ir import as_text, verify
from tilejax.passes import PASSES, run

# Few shapes and types, so that the operations compile once for all examples.
LITERALS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.nan, np.inf, -np.inf]
INPUTS = (
    np.array([1.0, -0.0, np.inf], np.float32),
    np.array([[0.5, -2.0, 0.0], [np.nan, 3.0, -1.0]], np.float32),
    np.float32(2.0),
    np.array([1, 0, -3], np.int32),
)


def _like(x, value):
    return jnp.asarray(value).astype(x.dtype)


def _binary(op: Callable) -> Callable:
    def apply(x, y, literal):
        y = y if y.shape == x.shape and y.dtype == x.dtype else _like(x, literal)
        return op(x, jnp.broadcast_to(y, x.shape))

    return apply


def _literal(op: Callable) -> Callable:
    def apply(x, y, literal):
        whole = x.dtype == jnp.int32
        return op(x, _like(x, np.nan_to_num(literal)) if whole else literal)

    return apply


def _unary(op: Callable) -> Callable:
    return lambda x, y, literal: op(x)


def _float(op: Callable) -> Callable:
    return lambda x, y, literal: op(x.astype(jnp.float32))


def _scan(x, y, literal):
    def step(carry, row):
        return carry * 1.0 + row.sum() * literal, (row - 0.0, carry)

    rows = x.astype(jnp.float32).reshape(-1, x.shape[-1] if x.ndim else 1)
    carry, (out, _) = lax.scan(step, jnp.float32(literal), rows)
    return out.reshape(x.shape) + carry


def _while(x, y, literal):
    def body(carry):
        i, value = carry
        return i + 1, lax.neg(lax.neg(value)) + _like(value, np.nan_to_num(literal))

    return lax.while_loop(lambda carry: carry[0] < 2, body, (0, x))[1]


def _cond(x, y, literal):
    return lax.cond(x.sum() > 0, lambda v: v * _like(v, 1), lambda v: v.T.T + v, x)


def _select(x, y, literal):
    other = y if y.shape == x.shape and y.dtype == x.dtype else x
    return jnp.where(x > _like(x, 0), x, other)


def _constant_select(x, y, literal):
    return lax.select_n(np.bool_(literal > 0), x, x * _like(x, 1))


def _dot(x, y, literal):
    x = x.astype(jnp.float32).reshape(-1, x.shape[-1] if x.ndim else 1)
    return lax.dot(x, x.T)[:1, 0]


OPERATIONS = [
    *map(_binary, (lax.add, lax.sub, lax.mul, lax.max, lax.min)),
    *map(_literal, (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: b * a)),
    *map(_literal, (lambda a, b: b - a, lambda a, b: jnp.minimum(a, b))),
    *map(_float, (lambda a: a / 1.0, lambda a: a / -0.0, lax.exp, jnp.sqrt)),
    *map(_float, (lambda a: a.astype(jnp.float16).astype(a.dtype), jax.nn.relu)),
    *map(_unary, (lax.neg, lambda a: a.T, lambda a: a.reshape(-1), jnp.square)),
    *map(_unary, (lambda a: a.sum(), lambda a: a[None].max(0), lambda a: a[None])),
    *map(
        _unary,
        (jax.jit(lambda a: lax.neg(lax.neg(a)) * _like(a, 1)), lambda a: a.astype(int)),
    ),
    *map(_unary, (jax.checkpoint(lambda a: a.reshape(-1).reshape(a.shape) + a),)),
    lambda x, y, literal: jnp.full(x.shape, _like(x, np.nan_to_num(literal))),
    *(_scan, _while, _cond, _select, _constant_select, _dot),
]

STEPS = st.lists(
    st.tuples(
        st.integers(0, len(OPERATIONS) - 1),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from(LITERALS),
    ),
    min_size=1,
    max_size=7,
)


def _build(steps, depth, *inputs):
    values = [*inputs]
    for which, first, second, literal in steps:
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        if x.size <= 12 and x.ndim < 4:
            values.append(OPERATIONS[which](x, y, literal))
    outs = values[len(inputs) :]
    if depth and outs:  # the same once more, inside a call and a loop
        inner = partial(_build, steps[:2], 0)
        outs += jax.jit(inner)(*inputs)
        outs += lax.scan(lambda c, _: (c, inner(*inputs)), 0, length=2)[1]
    return outs


def _program(steps, depth):
    return trace(partial(_build, steps, depth), *INPUTS)[0]


CHANGES = {
    **{name: partial(run, passes=[name]) for name, _ in PASSES},
    "all": run,
}


@pytest.mark.parametrize("name", CHANGES)
@hypothesis.settings(max_examples=12)
@hypothesis.given(steps=STEPS, nested=st.booleans())
def test_passes_keep_values(name, steps, nested, same_bits, one_by_one):
    with np.errstate(all="ignore"):
        before = _program(steps, nested)
        text = as_text(before)
        after, _ = CHANGES[name](before)
        verify(after, name=name)
        assert as_text(before) == text
        same_bits(one_by_one(after, INPUTS), one_by_one(before, INPUTS))
        assert CHANGES[name](after)[0] is after
        alone = dict(PASSES).get(name)
        assert alone is None or alone(after) is after


@hypothesis.settings(max_examples=60)
@hypothesis.given(steps=STEPS, nested=st.booleans(), fast=st.booleans())
def test_programs_stay_valid_and_a_second_run_changes_nothing(steps, nested, fast):
    with np.errstate(all="ignore"):
        before = _program(steps, nested)
    after, _ = run(before, fast_math=fast)
    verify(after, name="all")
    assert [v.aval for v in after.outvars] == [v.aval for v in before.outvars]
    again, _ = run(after, fast_math=fast)
    assert again is after


def _adds_where_it_should_subtract(program):
    swap = {"add": lax.sub_p}
    eqns = [
        e.replace(primitive=swap.get(e.primitive.name, e.primitive))
        for e in program.eqns
    ]
    return with_(program, eqns=eqns)


def _takes_minus_zero_for_zero(program):
    return with_(program, outvars=[literal_of(0.0, v.aval) for v in program.outvars])


@pytest.mark.parametrize(
    "wrong, fn, arg",
    [
        (_adds_where_it_should_subtract, lambda x: x + 1.0, 2.0),
        (_takes_minus_zero_for_zero, lambda x: x * 1.0, -0.0),
    ],
)
def test_the_check_of_values_sees_a_wrong_pass(wrong, fn, arg, after):
    with pytest.raises(AssertionError):
        after(wrong, fn, arg)
