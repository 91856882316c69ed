"""Softmax and log-softmax kernels, both ways of tiling a row."""

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
from tilejax.lowering.kernels.row_configs import (
    softmax_backward_configs,
    softmax_configs,
)
from tilejax.lowering.kernels.softmax import SoftmaxConfig, softmax
from tilejax.lowering.kernels.softmax_backward import softmax_backward

WHOLE, TILED = SoftmaxConfig(4, 64), SoftmaxConfig(4, 5)
SHAPES = ((8, 10), (7, 13), (1, 1), (1, 17), (9, 1))


def reference(x, log):
    shifted = x - jnp.max(x, axis=1, keepdims=True)
    total = jnp.sum(jnp.exp(shifted), axis=1, keepdims=True)
    return shifted - jnp.log(total) if log else jnp.exp(shifted) / total


def check(x, dy, log, config, interpret=True):
    def kernels(x, dy):
        y = softmax(x, log=log, config=config, interpret=interpret)
        dx = softmax_backward(y, dy, log=log, config=config, interpret=interpret)
        return y, dx

    y, dx = jax.jit(kernels)(x, dy)
    assert y.dtype == dx.dtype == x.dtype
    assert_agree(y, exactly(lambda x: reference(x, log), x), x.dtype, "y")
    (want,) = exact_cotangents(lambda x: reference(x, log), dy, x)
    assert_agree(dx, want, x.dtype, "dx")


def operands(rng, shape, dtype):
    x, dy = (jnp.asarray(rng.normal(size=shape) * 3, dtype) for _ in range(2))
    return x, dy


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
@pytest.mark.parametrize(("number", "shape"), list(enumerate(SHAPES)))
def test_softmax_and_its_gradient_agree_for_every_shape(rng, number, shape, config):
    check(*operands(rng, shape, "float32"), number % 2 == 1, config)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_and_its_gradient_agree_in_every_type(rng, dtype, log):
    config = TILED if log == (dtype == "float16") else WHOLE
    check(*operands(rng, (7, 13), dtype), log, config)


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
def test_softmax_and_its_gradient_agree_in_float64(rng, x64, config):
    check(*operands(rng, (7, 13), "float64"), False, config)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_softmax_of_nothing_is_nothing(shape):
    x = jnp.zeros(shape)
    assert softmax(x, config=WHOLE).shape == shape
    assert softmax_backward(x, x, config=TILED).shape == shape


@pytest.mark.parametrize("config", [WHOLE, TILED], ids=["whole", "tiled"])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_treats_infinities_and_nan_as_jax_does(rng, log, config):
    x = rng.normal(size=(6, 13)).astype(np.float32)
    x[0] = -np.inf
    x[1, :7] = -np.inf  # a whole tile before the first finite value
    x[2, 3] = np.inf
    x[3, 11] = np.nan
    x[4] = 1e38
    got = softmax(jnp.asarray(x), log=log, config=config, interpret=True)
    want = (jax.nn.log_softmax if log else jax.nn.softmax)(jnp.asarray(x), axis=1)
    assert_agree(got, np.asarray(want).astype(np.float64), "float32")


@pytest.mark.parametrize("columns", [256, 128], ids=["whole", "tiled"])
def test_softmax_has_no_race_and_reads_no_padding(rng, checking, columns):
    log = columns == 256
    check(
        *operands(rng, (11, 200), "float32"), log, SoftmaxConfig(8, columns), checking
    )


@pytest.mark.parametrize("columns", [128, 512], ids=["tiled", "whole"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_softmax_lowers_for_tpu(lower, dtype, columns):
    x, config = jax.ShapeDtypeStruct((40, 300), dtype), SoftmaxConfig(16, columns)
    for log in (False, True):
        lower(lambda x, log=log: softmax(x, log=log, config=config), x)
        lower(
            lambda y, dy, log=log: softmax_backward(y, dy, log=log, config=config), x, x
        )


@pytest.mark.parametrize("shape", [(4096, 1024), (8, 50257), (3, 5)])
def test_every_proposed_softmax_tile_lowers_for_tpu(lower, shape):
    target = tilejax.targets.get("tpu:v5e")
    x = jax.ShapeDtypeStruct(shape, "bfloat16")
    forward, backward = softmax_configs(target, x), softmax_backward_configs(target, x)
    assert forward and backward
    for config in tiles_of(target, forward, 7):
        lower(lambda x, config=config: softmax(x, config=config), x)
    for config in tiles_of(target, backward, 7):
        lower(lambda y, dy, c=config: softmax_backward(y, dy, config=c), x, x)


def test_no_softmax_tile_is_proposed_for_a_type_the_target_lacks():
    x = jax.ShapeDtypeStruct((8, 128), "float16")
    assert softmax_configs(tilejax.targets.get("tpu:v5e"), x) == []
    assert softmax_configs(tilejax.targets.get("gpu:h100"), x)
