"""Random kernels, compiled, against Pallas' interpreter.

A kernel is a list of steps. Each makes a tile of the tiles before it: element-wise
chains, reductions and stretches, products, transposes, masks, loops that carry tiles,
branches, tiles that go through scratch. Blocks may pass the end of their arrays.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, note, settings, strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import tilejax
from tilejax.lowering.cpu import host

SIZES = [1, 2, 3, 5, 8, 16, 17, 33, 64]
SEEDS = st.integers(0, 2**32 - 1)
UNARY = {
    "neg": lambda x: -x,
    "abs": jnp.abs,
    "exp": lambda x: jnp.exp(jnp.minimum(x, 5)),
    "tanh": jnp.tanh,
    "square": jnp.square,
    "logistic": jax.nn.sigmoid,
    "rsqrt": lambda x: jax.lax.rsqrt(jnp.abs(x) + 1),
    "floor": jnp.floor,
}
BINARY = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "max": jnp.maximum,
    "div": lambda x, y: x / (jnp.abs(y) + 1),
    "where": lambda x, y: jnp.where(x > y, x, y * 2),
}
REDUCE = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}


@dataclass(frozen=True)
class Step:
    """What makes a tile of the last one: a kind, its name, another tile, a number."""

    kind: str
    name: str
    takes: int
    number: int


def _unary(step, x, y, scratch):
    return UNARY[step.name](x)


def _binary(step, x, y, scratch):
    return BINARY[step.name](x, y)


def _reduce(step, x, y, scratch):
    axis = step.number % 2
    return x - REDUCE[step.name](y, axis=axis, keepdims=True) / x.shape[axis]


def _dot(step, x, y, scratch):
    if step.number % 2:
        inner = jnp.dot(x, y.T, preferred_element_type=jnp.float32)
        return jnp.dot(inner, y, preferred_element_type=jnp.float32) / x.size
    inner = jax.lax.dot_general(x, y, (((0,), (0,)), ((), ())))
    return jnp.dot(x, inner, preferred_element_type=jnp.float32) / x.size


def _turn(step, x, y, scratch):
    return (x.T + 1).T * y if step.number % 2 else jnp.transpose(x.T)


def _mask(step, x, y, scratch):
    place = jax.lax.broadcasted_iota(jnp.int32, x.shape, step.number % 2)
    return jnp.where(place <= step.number * 3, x, y)


def _loop(step, x, y, scratch):
    """A static number of trips is a `scan`, another a `while`."""
    trips = jnp.int32(step.number) if step.number % 2 else step.number

    def body(i, pair):
        a, b = pair
        return b * 0.5 + a, a - i

    return jax.lax.fori_loop(0, trips, body, (x, y))[0]


def _branch(step, x, y, scratch):
    return jax.lax.cond(x[0, 0] > 0, lambda: x + y, lambda: x * 0.5)


def _scratch(step, x, y, scratch):
    """What was read before a write must stay what it was."""
    scratch[...] = x
    before = scratch[...] * 2
    scratch[step.number % x.shape[0]] = y[0]
    return before + scratch[...]


def _rows(step, x, y, scratch):
    return jnp.concatenate([x[:1], y[1:]], axis=0)


# Every kind gives a tile of the block's shape again, and the names it may have.
KINDS = {
    "unary": (_unary, sorted(UNARY)),
    "binary": (_binary, sorted(BINARY)),
    "reduce": (_reduce, sorted(REDUCE)),
    "dot": (_dot, ("-",)),
    "turn": (_turn, ("-",)),
    "mask": (_mask, ("-",)),
    "loop": (_loop, ("-",)),
    "branch": (_branch, ("-",)),
    "scratch": (_scratch, ("-",)),
    "rows": (_rows, ("-",)),
}


def _case(seed: int) -> tuple[int, int, int, int, list[Step]]:
    """Rows, columns, blocks, what the last block lacks, and the steps.

    Drawn by a seed: hypothesis itself repeats some choices and forgets others.
    """
    rng = np.random.default_rng(seed)
    rows, columns = (int(rng.choice(SIZES)) for _ in range(2))
    steps = []
    for _ in range(rng.integers(2, 7)):
        kind = str(rng.choice(list(KINDS)))
        name = str(rng.choice(KINDS[kind][1]))
        steps.append(Step(kind, name, int(rng.integers(10)), int(rng.integers(4))))
    return rows, columns, int(rng.integers(1, 4)), int(rng.integers(4)), steps


def _kernel(steps, x, y, out, scratch):
    tiles = [x[...], y[...]]
    for step in steps:
        apply, _ = KINDS[step.kind]
        other = tiles[step.takes % len(tiles)]
        tiles.append(apply(step, tiles[-1], other, scratch))
    out[...] = tiles[-1]


def _run(case, x, y, **options):
    rows, columns, _, _, steps = case
    spec = pl.BlockSpec((rows, columns), lambda i: (i, 0))
    return pl.pallas_call(
        partial(_kernel, steps),
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], rows),),
        in_specs=[spec, spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((rows, columns), jnp.float32)],
        **options,
    )(x, y)


def _operands(case):
    rows, columns, blocks, ragged, _ = case
    length = max(rows * blocks - ragged % rows, 1)
    rng = np.random.default_rng(length * 100 + columns)
    return [
        jnp.asarray(rng.uniform(-2, 2, (length, columns)), jnp.float32)
        for _ in range(2)
    ]


def _whole_rows(case) -> bool:
    """Whether a row of the result depends on no other, so that padding cannot show."""
    return all(
        s.kind not in ("dot", "scratch", "rows", "branch")
        and not (s.kind == "reduce" and s.number % 2 == 0)
        for s in case[4]
    )


def _agree(seed):
    case = _case(seed)
    note(f"{case}")
    x, y = _operands(case)
    if not _whole_rows(case):
        rows = case[0]
        x, y = (jnp.pad(a, ((0, -len(a) % rows), (0, 0)), mode="wrap") for a in (x, y))
    got = jax.jit(lambda x, y: _run(case, x, y))(x, y)
    want = _run(case, x, y, interpret=True)
    # an element that a comparison decides may turn out on the other side
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@settings(max_examples=40)
@given(SEEDS)
def test_a_compiled_kernel_agrees_with_the_interpreter(seed):
    with tilejax.native_pallas():
        _agree(seed)


@pytest.mark.parametrize("name", ["avx2", "plain"])
@settings(max_examples=8)
@given(seed=SEEDS)
def test_it_agrees_on_lesser_cpus(name, seed):
    if not host.NAMED[name].runs_here:
        pytest.skip(f"this CPU cannot run code for {name}")
    with tilejax.native_pallas(), host.forced(name):
        _agree(seed)
