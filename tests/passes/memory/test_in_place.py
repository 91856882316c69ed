"""Kernels write where an operand lies that nothing needs, and only there."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import tilejax
from tests.passes.raising import check_same
from tilejax._jax.jaxprs import trace
from tilejax.ir import verify
from tilejax.passes import in_place
from tilejax.passes.pipeline import run

X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)), jnp.float32)
ROWS = pl.BlockSpec((2, 8), lambda i: (i, 0))


def double(x_ref, y_ref):
    y_ref[...] = x_ref[...] * 2 + 1


def add(x_ref, y_ref, z_ref):
    z_ref[...] = x_ref[...] + y_ref[...]


def call(kernel, *xs, grid=(4,), ins=None, out=ROWS, shape=None, **options):
    shape = jax.ShapeDtypeStruct(xs[0].shape if shape is None else shape, xs[0].dtype)
    ins = [ROWS] * len(xs) if ins is None else ins
    return pl.pallas_call(
        kernel, shape, grid=grid, in_specs=ins, out_specs=out, **options
    )(*xs)


def aliases(fn, *args, by_name=None, **options):
    program = tilejax.jit(fn, **options).tile(*args, **(by_name or {})).after
    verify(program, name="the passes")
    return [
        tuple(eqn.params["input_output_aliases"])
        for eqn in program.eqns
        if eqn.primitive.name == "pallas_call"
    ]


def test_a_kernel_takes_the_memory_of_a_value_that_dies():
    def fn(x):
        return call(double, call(double, jnp.sin(x)))

    assert aliases(fn, X) == [((0, 0),), ((0, 0),)]
    np.testing.assert_allclose(
        tilejax.jit(fn)(X), (jnp.sin(X) * 2 + 1) * 2 + 1, rtol=1e-6
    )
    text = tilejax.jit(fn).lower(X).as_text()
    assert text.count("output_operand_aliases = [#stablehlo") == 2


def test_an_input_is_taken_only_if_it_is_given_away():
    fn = partial(call, double)
    assert aliases(fn, X) == [()]
    assert aliases(fn, X, donate_argnums=0) == [((0, 0),)]

    def named(x, y):
        return call(add, x, y)

    assert aliases(named, X, X, donate_argnames="y") == [((1, 0),)]
    assert aliases(named, X, X, donate_argnums=(0, 1)) == [((0, 0),)]
    assert aliases(named, X, by_name={"y": X}, donate_argnames="y") == [((1, 0),)]
    assert aliases(named, X, by_name={"y": X}, donate_argnums=1) == [((1, 0),)]
    assert aliases(named, X, by_name={"y": X}) == [()]
    assert aliases(lambda xs: call(add, *xs), (X, X), donate_argnums=-1) == [((0, 0),)]
    given = jnp.array(X)
    got = tilejax.jit(fn, donate_argnums=0)(given)
    np.testing.assert_allclose(got, X * 2 + 1, rtol=1e-6)
    assert given.is_deleted()


def test_the_second_operand_is_taken_where_the_first_lives_on():
    def fn(x):
        y, z = jnp.sin(x), jnp.cos(x)
        return call(add, y, z), y

    assert aliases(fn, X) == [((1, 0),)]


def late_read(x_ref, y_ref):
    y_ref[...] = x_ref[...] * 2
    y_ref[...] = y_ref[...] + x_ref[...]


def read_in_a_branch(x_ref, y_ref):
    y_ref[...] = x_ref[...] * 0

    @pl.when(pl.program_id(0) > 0)
    def _():
        y_ref[...] = x_ref[...]


def whole(x_ref, y_ref):
    y_ref[...] = x_ref[...] + x_ref[0, 0]


EVERY = pl.BlockSpec((8, 8), lambda i: (0, 0))
TURNED = pl.BlockSpec((2, 8), lambda i: (3 - i, 0))
UNSAFE = {
    "a value that is read again": lambda x: (lambda y: call(double, y) + y)(jnp.sin(x)),
    "a value that is returned": lambda x: (lambda y: (call(double, y), y))(jnp.sin(x)),
    "one operand twice": lambda x: (lambda y: call(add, y, y))(jnp.sin(x)),
    "a view of an input": lambda x: call(double, x.reshape(4, 16).reshape(8, 8)),
    "a read after a write": lambda x: call(late_read, jnp.sin(x)),
    "a read in a branch": lambda x: call(read_in_a_branch, jnp.sin(x)),
    "another order of blocks": lambda x: call(double, jnp.sin(x), ins=[TURNED]),
    "blocks that steps share": lambda x: call(
        whole, jnp.sin(x), ins=[EVERY], out=EVERY
    ),
    "two numbers for one block": lambda x: call(
        double,
        jnp.sin(x),
        grid=(4, 2),
        ins=[pl.BlockSpec((2, 8), lambda i, j: (i, 0))],
        out=pl.BlockSpec((2, 8), lambda i, j: (i, 0)),
    ),
    "an interpreted call": lambda x: call(double, jnp.sin(x), interpret=True),
    "another type": lambda x: pl.pallas_call(
        lambda x_ref, y_ref: y_ref.__setitem__(..., x_ref[...].astype(jnp.int32)),
        jax.ShapeDtypeStruct((8, 8), jnp.int32),
    )(jnp.sin(x)),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_no_memory_is_taken_with(case):
    assert aliases(UNSAFE[case], X) == [()]


def test_a_kernel_that_works_in_place_is_still_mapped_and_differentiated():
    def fn(x):
        return call(double, jnp.sin(x))

    jitted = tilejax.jit(fn)
    xs = jnp.stack([X, -X])
    np.testing.assert_allclose(jax.vmap(jitted)(xs), jnp.sin(xs) * 2 + 1, rtol=1e-6)

    def tangent(x):
        return jax.jvp(jitted, (x,), (jnp.ones_like(x),))[1]

    np.testing.assert_allclose(tilejax.jit(tangent)(X), 2 * jnp.cos(X), rtol=1e-5)


def test_aliases_of_the_users_own_stay():
    def fn(x):
        return call(add, jnp.sin(x), jnp.cos(x), input_output_aliases={1: 0})

    assert aliases(fn, X) == [((1, 0),)]


def test_a_wrong_answer_about_safety_is_seen(monkeypatch):
    monkeypatch.setattr(in_place, "is_safe", lambda *_: True)
    fn = UNSAFE["a read after a write"]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(tilejax.jit(fn)(X), jnp.sin(X) * 3, rtol=1e-5)


def test_a_loop_carries_what_it_works_on():
    def fn(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: call(double, y + 1), x)

    def plain(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: (y + 1) * 2 + 1, x)

    program, _ = run(trace(fn, X)[0])
    verify(program, name="the passes")
    np.testing.assert_allclose(tilejax.jit(fn)(X), plain(X), rtol=1e-6)
    check_same(plain, X, grad=False)
