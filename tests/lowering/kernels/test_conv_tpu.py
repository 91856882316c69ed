"""The convolution as a TPU would run it: interpreted with checks, and lowered."""

import jax
import jax.numpy as jnp
import pytest

import tilejax.targets
from tests.lowering.kernels.agreement import tiles_of
from tests.lowering.kernels.test_conv import Case, check
from tilejax.lowering.kernels import conv_backward as backward_file
from tilejax.lowering.kernels.conv import ConvConfig, conv
from tilejax.lowering.kernels.conv_backward import conv_filter_grad, conv_input_grad
from tilejax.lowering.kernels.conv_configs import (
    conv_configs,
    conv_filter_grad_configs,
    conv_input_grad_configs,
)

S = jax.ShapeDtypeStruct
SAME = ((1, 1), (1, 1))
CASES = {
    "plain": Case((20, 21), (3, 3), 40, 24, padding=SAME),
    "strided": Case((57, 55), (3, 3), 130, 140, strides=(2, 2), padding=SAME),
    "first": Case((32, 32), (7, 7), 3, 64, strides=(2, 2), padding=((3, 3), (3, 3))),
    "depthwise": Case((20, 21), (3, 3), 144, 288, strides=(2, 1), groups=144),
    "groups": Case((14, 14), (3, 3), 64, 32, rhs_dilation=(2, 2), groups=4),
    "transposed": Case((14, 14), (4, 4), 8, 16, padding=SAME, lhs_dilation=(2, 2)),
    "line": Case((1000,), (5,), 40, 72, strides=(2,), padding=((2, 2),)),
    "volume": Case((6, 9, 10), (3, 2, 3), 16, 32, strides=(1, 2, 1)),
}
named = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def avals(case, dtype):
    x = S((case.batch, *case.sizes, case.channels), dtype)
    w = S((*case.taps, case.channels // case.groups, case.features), dtype)
    return x, w, S(jax.eval_shape(case.reference, x, w).shape, dtype)


@pytest.mark.parametrize(
    "case",
    [
        Case((5, 7), (2, 3), 5, 4, strides=(2, 1), padding=SAME, batch=1),
        Case((6, 5), (2, 2), 5, 5, strides=(1, 2), groups=5, batch=1),
    ],
    ids=["dense", "depthwise"],
)
def test_convolution_and_gradients_run_without_races_or_stray_accesses(
    rng, checking, case
):
    check(rng, case, config=ConvConfig(1, 4, 4, 3, 4), interpret=checking)


def test_garbage_past_the_edge_would_be_seen(checking, monkeypatch):
    monkeypatch.setattr(backward_file, "_within", lambda block, left, plan: block)
    got = conv_filter_grad(
        *(jnp.ones((1, 9, 2)), jnp.ones((1, 7, 2))),
        sizes=(3,),
        strides=(1,),
        padding=((0, 0),),
        config=ConvConfig(1, 1, 4, 2, 2),
        interpret=checking,
    )
    assert jnp.isnan(got).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@named
def test_convolution_and_gradients_lower(lower, case, dtype):
    x, w, ct = avals(case, dtype)
    rest = {**case.params, "config": ConvConfig(1, 8, 32)}

    def f(x, w, ct):
        return (
            conv(x, w, **rest, out_dtype="float32", precision="highest"),
            conv_input_grad(ct, w, sizes=case.sizes, **rest),
            conv_filter_grad(x, ct, sizes=case.taps, **rest),
        )

    assert lower(f, x, w, ct).count("@tpu_custom_call") >= 3


@named
def test_int8_convolution_lowers(lower, case):
    x, w, _ = avals(case, "int8")
    lower(lambda x, w: conv(x, w, **case.params, config=ConvConfig(1, 8, 32)), x, w)


@pytest.mark.parametrize("name", ["tpu:v5e", "tpu:v6e"])
@pytest.mark.parametrize("case", ["strided", "depthwise", "line"])
def test_every_proposed_tile_lowers(lower, name, case):
    case, target = CASES[case], tilejax.targets.get(name)
    x, w, ct = avals(case, "bfloat16")
    configs = conv_configs(target, x, w, **case.params)
    assert configs
    for config in tiles_of(target, configs, 6):
        lower(lambda x, w, c=config: conv(x, w, **case.params, config=c), x, w)
    params = {**case.params, "sizes": case.sizes}
    configs = conv_input_grad_configs(target, ct, w, **params)
    assert configs
    for config in tiles_of(target, configs, 4):
        lower(lambda ct, w, c=config: conv_input_grad(ct, w, **params, config=c), ct, w)
    params = {**case.params, "sizes": case.taps}
    configs = conv_filter_grad_configs(target, x, ct, **params)
    assert configs
    for config in tiles_of(target, configs, 4):
        lower(
            lambda x, ct, c=config: conv_filter_grad(x, ct, **params, config=c), x, ct
        )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_no_tile_is_proposed_for_a_type_that_a_tpu_lacks(dtype):
    x, w, _ = avals(CASES["plain"], dtype)
    target = tilejax.targets.get("tpu:v6e")
    assert conv_configs(target, x, w, **CASES["plain"].params) == []
