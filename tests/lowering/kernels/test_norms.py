"""Layer, RMS and group normalisation kernels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax.targets
from tests.lowering.kernels.agreement import (
    DTYPES,
    assert_agree,
    exact_cotangents,
    exactly,
    tiles_of,
)
from tilejax.lowering.kernels.norms import NormConfig, layer_norm, rms_norm
from tilejax.lowering.kernels.norms_backward import (
    layer_norm_backward,
    rms_norm_backward,
)
from tilejax.lowering.kernels.row_configs import norm_backward_configs, norm_configs

EPS = 1e-5


def reference(centre, x, scale, bias):
    mean = jnp.mean(x, axis=1) if centre else jnp.zeros(x.shape[0], x.dtype)
    off = x - mean[:, None]
    rstd = 1 / jnp.sqrt(jnp.mean(off * off, axis=1) + EPS)
    y = off * rstd[:, None]
    y = y if scale is None else y * scale
    y = y if bias is None else y + bias
    return (y, mean, rstd) if centre else (y, rstd)


def run(centre, operands, cotangents, config, interpret):
    x, scale, bias = operands
    options = dict(config=config, interpret=interpret)
    if not centre:
        y, rstd = rms_norm(x, scale, eps=EPS, **options)
        dy, drstd = cotangents
        return (y, rstd), rms_norm_backward(x, scale, rstd, dy, drstd, **options)
    y, mean, rstd = layer_norm(x, scale, bias, eps=EPS, **options)
    dy, dmean, drstd = cotangents
    return (y, mean, rstd), layer_norm_backward(
        x, scale, bias, mean, rstd, dy, dmean, drstd, **options
    )


def check(centre, operands, config, interpret=True, with_statistics=True):
    rng = np.random.default_rng(0)
    x = operands[0]
    wide = "float64" if x.dtype == jnp.float64 else "float32"
    dy = jnp.asarray(rng.normal(size=x.shape), x.dtype)
    count = 2 if centre else 1
    others = [jnp.asarray(rng.normal(size=x.shape[0]), wide) for _ in range(count)]
    others = others if with_statistics else [None] * count

    out, grads = jax.jit(lambda a, b: run(centre, a, b, config, interpret))(
        operands, [dy, *others]
    )
    assert out[0].dtype == grads[0].dtype == x.dtype
    assert all(o.dtype == wide for o in out[1:])

    def plain(*some):
        return reference(centre, *some)

    for got, want in zip(out, exactly(plain, *operands), strict=True):
        assert_agree(got, want, x.dtype, "out")
    wanted = exact_cotangents(plain, (dy, *others), *operands)
    for name, got, want in zip(("dx", "dscale", "dbias"), grads, wanted, strict=False):
        assert (got is None) == (want is None)
        if got is not None:
            assert_agree(got, want, x.dtype, name)


def arrays(rng, shape, dtype="float32", scale=True, bias=True, offset=0.0):
    x = jnp.asarray(rng.normal(size=shape) + offset, dtype)
    vectors = [jnp.asarray(rng.normal(size=shape[1]), dtype) for _ in range(2)]
    return x, vectors[0] if scale else None, vectors[1] if bias else None


SHAPES = ((8, 10), (7, 13), (1, 1), (1, 17), (13, 2))


@pytest.mark.parametrize(("number", "shape"), list(enumerate(SHAPES)))
def test_layer_norm_and_its_gradients_agree_for_every_shape(rng, number, shape):
    config = NormConfig(2, splits=1 + number % 3)
    check(True, arrays(rng, shape), config, with_statistics=number % 2 == 0)


@pytest.mark.parametrize(("number", "shape"), list(enumerate(SHAPES)))
def test_rms_norm_and_its_gradients_agree_for_every_shape(rng, number, shape):
    config = NormConfig(3, splits=1 + number % 3)
    operands = arrays(rng, shape, bias=False)
    check(False, operands, config, with_statistics=number % 2 == 0)


@pytest.mark.parametrize("centre", [True, False], ids=["layer", "rms"])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_norms_and_their_gradients_agree_in_narrow_types(rng, dtype, centre):
    check(centre, arrays(rng, (7, 13), dtype, bias=centre), NormConfig(4))


def test_layer_norm_and_its_gradients_agree_in_float64(rng, x64):
    check(True, arrays(rng, (7, 13), "float64"), NormConfig(4))


@pytest.mark.parametrize(("scale", "bias"), [(False, False), (True, False)])
def test_layer_norm_needs_neither_scale_nor_bias(rng, scale, bias):
    check(True, arrays(rng, (7, 13), scale=scale, bias=bias), NormConfig(4))


def test_rms_norm_needs_no_scale(rng):
    check(False, arrays(rng, (7, 13), scale=False, bias=False), NormConfig(4))


def test_layer_norm_keeps_a_small_variance_beside_a_large_mean(rng):
    """A variance taken as mean(x**2) - mean**2 would be noise here."""
    x, _, _ = arrays(rng, (4, 64), offset=4096.0)
    y, mean, rstd = layer_norm(x, eps=EPS, config=NormConfig(4), interpret=True)
    want = exactly(lambda x: reference(True, x, None, None), x)
    np.testing.assert_allclose(rstd, want[2], rtol=1e-3)
    np.testing.assert_allclose(y, want[0], atol=2e-3)
    np.testing.assert_allclose(mean, want[1], rtol=1e-6)


def test_a_row_with_nan_or_infinity_spoils_no_other(rng):
    x, scale, bias = arrays(rng, (6, 9))
    spoilt = x.at[1, 2].set(jnp.nan).at[4, 0].set(jnp.inf)
    options: Any = dict(eps=EPS, config=NormConfig(4), interpret=True)
    good, bad = (layer_norm(x, scale, bias, **options)[0] for x in (x, spoilt))
    others = np.array([0, 2, 3, 5])
    np.testing.assert_array_equal(good[others], bad[others])
    assert np.isnan(bad[1]).all() and np.isnan(bad[4]).all()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_norms_of_nothing(shape):
    x, vector = jnp.zeros(shape), jnp.ones(shape[1])
    y, mean, rstd = layer_norm(x, vector, vector, eps=EPS, config=NormConfig(4))
    assert y.shape == shape and mean.shape == rstd.shape == shape[:1]
    grads = layer_norm_backward(x, vector, vector, mean, rstd, y, config=NormConfig(4))
    assert [g.shape for g in grads if g is not None] == [shape, shape[1:], shape[1:]]
    assert not np.any(grads[1]) and not np.any(grads[2])
    y, rstd = rms_norm(x, vector, eps=EPS, config=NormConfig(4))
    assert rms_norm_backward(x, vector, rstd, y, config=NormConfig(4))[0].shape == shape


@pytest.mark.parametrize("centre", [True, False], ids=["layer", "rms"])
def test_norms_have_no_race_and_read_no_padding(rng, checking, centre):
    operands = arrays(rng, (27, 20), bias=centre)
    check(centre, operands, NormConfig(8, splits=2), checking)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(40, 300), (4096, 1024), (3, 5)])
def test_norms_lower_for_tpu_with_the_proposed_tiles(lower, shape, dtype):
    target = tilejax.targets.get("tpu:v4")
    x, vector = (jax.ShapeDtypeStruct(s, dtype) for s in (shape, shape[1:]))
    row = jax.ShapeDtypeStruct(shape[:1], "float32")
    forward, backward = norm_configs(target, x), norm_backward_configs(target, x)
    assert forward and backward
    for c in tiles_of(target, forward, 3):
        lower(lambda *a, c=c: layer_norm(*a, eps=EPS, config=c), x, vector, vector)
        lower(lambda *a, c=c: rms_norm(*a, eps=EPS, config=c), x, vector)
    for c in tiles_of(target, backward, 4):
        operands = (x, vector, vector, row, row, x, row, row)
        lower(lambda *a, c=c: layer_norm_backward(*a, config=c), *operands)
        operands = (x, vector, row, x, row)
        lower(lambda *a, c=c: rms_norm_backward(*a, config=c), *operands)
