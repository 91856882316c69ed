"""What is made of constant weights alone is computed once; norms go into weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tilejax
from tests.passes.raising import check_same
from tilejax._jax.jaxprs import consts, trace
from tilejax.ir import as_text, verify
from tilejax.passes import fold_norms as folding
from tilejax.passes.fold_norms import fold_norms
from tilejax.passes.freeze import freeze_weights
from tilejax.passes.pipeline import run


def numbers(*shape, seed=0):
    found = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return jnp.asarray(found)


LARGE = numbers(300, 400)  # more elements than small constants have


def after(fn, *args, **options):
    program, _ = run(trace(fn, *args)[0], **options)
    verify(program, name="the passes")
    again, _ = run(program, **options)
    assert as_text(again) == as_text(program)
    return program


def names(program):
    return [eqn.primitive.name for eqn in program.eqns]


X = numbers(4, 300, seed=1)

FROZEN = {
    "a scale": (lambda x: x @ (LARGE * 2.0), ["tiled_matmul"]),
    "a cast": (
        lambda x: x.astype(jnp.bfloat16) @ LARGE.astype(jnp.bfloat16),
        ["convert_element_type", "tiled_matmul"],
    ),
    "a chain": (
        lambda x: x @ (jnp.tanh(LARGE) / jnp.sqrt((LARGE**2).sum(0))),
        ["tiled_matmul"],
    ),
    "under a transpose": (lambda x: (LARGE * 2.0).T @ x.T, ["tiled_matmul"]),
    "a result": (lambda x: (x, LARGE + 1.0), []),
}


@pytest.mark.parametrize("case", FROZEN)
def test_weights_are_computed_once_with(case):
    fn, left = FROZEN[case]
    assert names(after(fn, X)) == left
    check_same(fn, X, tolerance=2e-2 if case == "a cast" else 1e-5, grad=False)


def test_what_was_made_of_is_dropped_where_nothing_else_reads_it():
    program = after(lambda x: x @ (LARGE * 2.0), X)
    assert [c.shape for c in consts(program)] == [LARGE.shape]


LEFT = {
    "a transpose alone": lambda x: jnp.exp(LARGE.T)[:2, 0] + LARGE.T[:2, 1] + x[0, 0],
    "what grows": lambda x: (LARGE[:, :, None] * numbers(1, 1, 9))[:4, 0] + x[0, 0],
    "what reads an input": lambda x: x @ (LARGE * x.sum()),
    "random numbers": lambda x: x @ jax.random.normal(jax.random.key(0), LARGE.shape),
    "a placed array": lambda x: x @ (jax.device_put(LARGE, jax.devices()[0]) * 2.0),
    "inside a loop": lambda x: lax.fori_loop(
        0, 2, lambda i, y: (y @ (LARGE * 2.0))[:, :300], x
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_no_more_is_computed_with(case):
    fn = LEFT[case]
    if case != "inside a loop":
        assert len(after(fn, X).eqns) > 1
    check_same(fn, X, grad=False)


def test_the_size_of_what_is_computed_is_bounded():
    program, _ = trace(lambda x: x @ (LARGE * 2.0), X)
    assert freeze_weights(program, max_elements=1000) is program
    assert freeze_weights(program, max_bytes=1000) is program
    assert freeze_weights(program) is not program


IMAGE, FILTERS = numbers(2, 6, 6, 4), numbers(3, 3, 4, 8, seed=2)
MEAN, SCALE, SHIFT = (numbers(8, seed=seed) for seed in (3, 4, 5))
VARIANCE = jnp.abs(numbers(8, seed=6)) + 0.1
LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWIO", "NCHW")


def convolve(x, layout=LAST, **more):
    x = x if layout is LAST else x.transpose(0, 3, 1, 2)
    return lax.conv_general_dilated(
        x, more.pop("w", FILTERS), (1, 1), "SAME", dimension_numbers=layout, **more
    )


def norm(z, at=-1):
    def row(v):
        return jnp.expand_dims(v, [d for d in range(z.ndim) if d != at % z.ndim])

    z = (z - row(MEAN)) / jnp.sqrt(row(VARIANCE) + 1e-5)
    return z * row(SCALE) + row(SHIFT)


NORMS = {
    "features last": lambda x: norm(convolve(x)),
    "features first": lambda x: norm(convolve(x, FIRST), 1),
    "groups": lambda x: norm(convolve(x, w=FILTERS[:, :, :2], feature_group_count=2)),
    "one factor": lambda x: convolve(x) * (SCALE * lax.rsqrt(VARIANCE)) + SHIFT,
    "a bias before": lambda x: norm(convolve(x) + SHIFT),
    "a product": lambda x: norm(x @ FILTERS[0, 0]),
    "one number": lambda x: convolve(x) * 0.5 + SHIFT,
}


@pytest.mark.parametrize("case", NORMS)
def test_a_norm_is_folded_after(case):
    fn = NORMS[case]
    program = after(fn, IMAGE, fast_math=True)
    found = names(program)
    assert found.count("mul") == found.count("sub") == found.count("div") == 0
    assert names(after(fn, IMAGE)) != found  # it rounds otherwise
    with tilejax.options(fast_math=True):
        check_same(fn, IMAGE, tolerance=1e-4)


NOT_FOLDED = {
    "statistics of the batch": lambda x: (lambda z: (z - z.mean(0)) / z.std(0))(
        convolve(x)
    ),
    "a scale of the pixels": lambda x: convolve(x) * numbers(1, 6, 6, 1),
    "a sum that is read": lambda x: (lambda z: (norm(z), z))(convolve(x)),
    "an activation between": lambda x: norm(jax.nn.relu(convolve(x))),
    "one divided by it": lambda x: SCALE / convolve(x),
    "weights that are given": lambda x: norm(convolve(x, w=FILTERS * x.mean())),
    "shifts alone": lambda x: convolve(x) + SHIFT - MEAN,
}


@pytest.mark.parametrize("case", NOT_FOLDED)
def test_no_norm_is_folded_with(case):
    before, _ = run(trace(NOT_FOLDED[case], IMAGE)[0], {"fold_norms": False})
    assert fold_norms(before, fast_math=True) is before
    with tilejax.options(fast_math=True):
        check_same(NOT_FOLDED[case], IMAGE, tolerance=1e-4)


def test_weights_scaled_along_another_dimension_are_seen(monkeypatch):
    monkeypatch.setattr(folding, "_features", lambda product: 0)

    def fn(x):
        w = FILTERS[:1, :1].reshape(4, 8)[:, :4]
        return (x @ w) * SCALE[:4]

    with tilejax.options(fast_math=True), pytest.raises(AssertionError):
        check_same(fn, IMAGE, tolerance=1e-4)


def test_fold_norms_is_golden(golden):
    before, _ = run(
        trace(lambda x: jax.nn.relu(norm(convolve(x))), IMAGE)[0],
        {"fold_norms": False, "freeze": False},
    )
    after = fold_norms(before, fast_math=True)
    golden("fold_norms", as_text(after))
    assert fold_norms(after, fast_math=True) is after
    assert fold_norms(before) is before
