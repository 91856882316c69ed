"""Group normalisation kernels."""

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
from tilejax.lowering.kernels.group_norm import GroupNormConfig, group_norm
from tilejax.lowering.kernels.group_norm_backward import group_norm_backward
from tilejax.lowering.kernels.row_configs import (
    group_norm_backward_configs,
    group_norm_configs,
)

EPS = 1e-5


def reference(groups, x, scale, bias):
    batch, positions, channels = x.shape
    split = x.reshape(batch, positions, groups, channels // groups)
    mean = jnp.mean(split, axis=(1, 3))
    off = split - mean[:, None, :, None]
    rstd = 1 / jnp.sqrt(jnp.mean(off * off, axis=(1, 3)) + EPS)
    y = (off * rstd[:, None, :, None]).reshape(x.shape)
    y = y if scale is None else y * scale
    return y if bias is None else y + bias, mean, rstd


def check(operands, groups, config, interpret=True, with_statistics=True):
    rng = np.random.default_rng(0)
    x = operands[0]
    wide = "float64" if x.dtype == jnp.float64 else "float32"
    dy = jnp.asarray(rng.normal(size=x.shape), x.dtype)
    statistic = (x.shape[0], groups)
    others = [jnp.asarray(rng.normal(size=statistic), wide) for _ in range(2)]
    others = others if with_statistics else [None, None]
    options: Any = dict(groups=groups, config=config, interpret=interpret)

    @jax.jit
    def kernels(operands, dy, others):
        out = group_norm(*operands, eps=EPS, **options)
        mean, rstd = out[1:]
        x, scale, bias = operands
        dmean, drstd = others
        return out, group_norm_backward(
            x, scale, bias, mean, rstd, dy, dmean, drstd, **options
        )

    out, grads = kernels(operands, dy, others)
    assert out[0].dtype == grads[0].dtype == x.dtype

    def plain(*some):
        return reference(groups, *some)

    for got, want in zip(out, exactly(plain, *operands), strict=True):
        assert_agree(got, want, x.dtype, "out")
    wanted = exact_cotangents(plain, (dy, *others), *operands)
    for name, got, want in zip(("dx", "dscale", "dbias"), grads, wanted, strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            assert_agree(got, want, x.dtype, name)


def arrays(rng, shape, dtype="float32", scale=True, bias=True):
    x = jnp.asarray(rng.normal(size=shape), dtype)
    vectors = [jnp.asarray(rng.normal(size=shape[2]), dtype) for _ in range(2)]
    return x, vectors[0] if scale else None, vectors[1] if bias else None


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 8, 6), 3), ((1, 7, 5), 1), ((3, 1, 4), 2), ((2, 9, 4), 4), ((1, 1, 2), 1)],
)
def test_group_norm_and_its_gradients_agree_for_every_shape(rng, shape, groups):
    check(arrays(rng, shape), groups, GroupNormConfig(4))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_group_norm_and_its_gradients_agree_in_narrow_types(rng, dtype):
    check(arrays(rng, (2, 7, 6), dtype), 2, GroupNormConfig(3), with_statistics=False)


def test_group_norm_and_its_gradients_agree_in_float64(rng, x64):
    check(arrays(rng, (2, 7, 6), "float64"), 2, GroupNormConfig(16))


def test_group_norm_needs_neither_scale_nor_bias(rng):
    check(arrays(rng, (2, 7, 6), scale=False, bias=False), 2, GroupNormConfig(3))


def test_group_norm_keeps_a_small_variance_beside_a_large_mean(rng):
    x = jnp.asarray(rng.normal(size=(1, 64, 4)) + 4096, "float32")
    config = GroupNormConfig(8)
    _, _, rstd = group_norm(x, groups=2, eps=EPS, config=config, interpret=True)
    want = exactly(lambda x: reference(2, x, None, None), x)
    np.testing.assert_allclose(rstd, want[2], rtol=1e-3)


@pytest.mark.parametrize("shape", [(0, 5, 4), (2, 0, 4)])
def test_group_norm_of_nothing(shape):
    x, vector, config = jnp.zeros(shape), jnp.ones(4), GroupNormConfig(4)
    y, mean, rstd = group_norm(x, vector, vector, groups=2, eps=EPS, config=config)
    assert y.shape == shape and mean.shape == rstd.shape == (shape[0], 2)
    grads = group_norm_backward(
        x, vector, vector, mean, rstd, y, groups=2, config=config
    )
    assert [g.shape for g in grads if g is not None] == [shape, (4,), (4,)]


def test_group_norm_has_no_race_and_reads_no_padding(rng, checking):
    check(arrays(rng, (2, 11, 6)), 3, GroupNormConfig(8), checking)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 1000, 320), (2, 5, 64)])
def test_group_norm_lowers_for_tpu_with_the_proposed_tiles(lower, shape, dtype):
    x, vector = (jax.ShapeDtypeStruct(s, dtype) for s in (shape, shape[2:]))
    statistic = jax.ShapeDtypeStruct((shape[0], 32), "float32")
    target = tilejax.targets.get("tpu:v5e")
    for c in tiles_of(target, group_norm_configs(target, x), 4):
        options = dict(groups=32, config=c)
        lower(lambda *a, o=options: group_norm(*a, eps=EPS, **o), x, vector, vector)
    for c in tiles_of(target, group_norm_backward_configs(target, x), 4):
        options = dict(groups=32, config=c)
        operands = (x, vector, vector, statistic, statistic, x, statistic, statistic)
        lower(lambda *a, o=options: group_norm_backward(*a, **o), *operands)
