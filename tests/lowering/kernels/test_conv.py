"""The convolution and its gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.agreement import (
    DTYPES,
    assert_agree,
    exact_cotangents,
    exactly,
)
from tests.lowering.kernels.pairwise import pairwise
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.lowering.kernels.conv import ConvConfig, conv
from tilejax.lowering.kernels.conv_backward import conv_filter_grad, conv_input_grad

CONFIG = ConvConfig(2, 3, 4, 2, 3)
LAYOUTS = {
    1: ("NWC", "WIO", "NWC"),
    2: ("NHWC", "HWIO", "NHWC"),
    3: ("NDHWC", "DHWIO", "NDHWC"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    sizes: tuple
    taps: tuple
    channels: int = 3
    features: int = 4
    strides: tuple = ()
    padding: tuple = ()
    lhs_dilation: tuple = ()
    rhs_dilation: tuple = ()
    groups: int = 1
    batch: int = 2

    @property
    def params(self):
        count = len(self.sizes)
        return {
            "strides": self.strides or (1,) * count,
            "padding": self.padding or ((0, 0),) * count,
            "lhs_dilation": self.lhs_dilation or (1,) * count,
            "rhs_dilation": self.rhs_dilation or (1,) * count,
            "groups": self.groups,
        }

    def reference(self, x, w):
        params = dict(self.params)
        groups = params.pop("groups")
        return jax.lax.conv_general_dilated(
            *(x, w, params.pop("strides"), params.pop("padding")),
            **params,
            feature_group_count=groups,
            dimension_numbers=LAYOUTS[len(self.sizes)],
            precision="highest",
        )

    def operands(self, rng, dtype):
        x = rng.normal(size=(self.batch, *self.sizes, self.channels))
        w = rng.normal(size=(*self.taps, self.channels // self.groups, self.features))
        return jnp.asarray(x, dtype), jnp.asarray(w, dtype)


def check(rng, case, dtype="float32", config=CONFIG, interpret=True):
    x, w = case.operands(rng, dtype)
    y = exactly(case.reference, x, w)
    ct = jnp.asarray(rng.normal(size=y.shape), dtype)

    def kernels(x, w, ct):
        rest = {**case.params, "config": config, "interpret": interpret}
        return (
            conv(x, w, **rest),
            conv_input_grad(ct, w, sizes=case.sizes, **rest),
            conv_filter_grad(x, ct, sizes=case.taps, **rest),
        )

    got = jax.jit(kernels)(x, w, ct)
    wanted = (y, *exact_cotangents(case.reference, ct, x, w))
    for name, one, want in zip(("y", "dx", "dw"), got, wanted, strict=True):
        assert one.dtype == x.dtype
        assert_agree(one, want, dtype, name)


CASES = pairwise(
    {
        "sizes": [(9, 10), (7, 12), (1, 5)],
        "taps": [(3, 2), (1, 1), (1, 3)],
        "strides": [(1, 1), (2, 3), (3, 1)],
        "padding": [((0, 0), (0, 0)), ((1, 2), (2, 1)), ((2, 0), (-1, 3))],
        "lhs_dilation": [(1, 1), (2, 1), (2, 3)],
        "rhs_dilation": [(1, 1), (1, 2), (2, 2)],
        "groups": [1, 2, 4],
        "dtype": DTYPES,
    }
)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_convolution_and_gradients_agree(rng, options):
    options = dict(options)
    dtype = options.pop("dtype")
    check(rng, Case(channels=4, features=8, **options), dtype)


@pytest.mark.parametrize(
    "case",
    [
        Case((11,), (4,), strides=(3,), padding=((2, 2),), lhs_dilation=(2,)),
        Case((5, 4, 6), (2, 3, 2), strides=(1, 2, 1), padding=((1, 0), (1, 1), (0, 0))),
        Case((6,), (3,), channels=3, features=6, groups=3, strides=(2,)),
        Case((3, 3), (3, 3), channels=1, features=1, batch=1),
        Case((6, 6), (2, 2), strides=(2, 2), padding=((-2, 1), (-1, -1))),
    ],
    ids=["line", "volume", "depthwise line", "one output", "cropped"],
)
def test_other_ranks_and_sizes_agree(rng, case):
    check(rng, case)


@pytest.mark.parametrize(
    "case",
    [
        Case((2, 2), (3, 3)),
        Case((4, 0), (1, 1), padding=((0, 0), (1, 1))),
        Case((4, 4), (2, 2), batch=0),
        Case((4, 4), (2, 2), channels=0),
        Case((4, 4), (2, 2), features=0),
    ],
    ids=["filter too long", "no width", "no batch", "no channels", "no features"],
)
def test_empty_convolutions_agree(rng, case):
    check(rng, case)


@pytest.mark.usefixtures("x64")
def test_double_precision_is_kept(rng):
    check(rng, Case((6, 7), (3, 2), strides=(2, 1)), "float64")


@pytest.mark.parametrize("groups", [1, 4])
def test_int8_is_summed_exactly_in_int32(rng, groups):
    case = Case((7, 9), (3, 3), channels=4, features=8, groups=groups)
    x, w = (
        rng.integers(-128, 128, one.shape).astype(np.int8)
        for one in case.operands(rng, "float32")
    )
    got = conv(x, w, **case.params, config=CONFIG, interpret=True)
    assert got.dtype == jnp.int32
    want = exactly(case.reference, x.astype(np.float32), w.astype(np.float32))
    np.testing.assert_array_equal(got, want)


def test_result_type_is_taken(rng):
    case = Case((7, 9), (3, 3))
    x, w = case.operands(rng, "bfloat16")
    got = conv(x, w, **case.params, out_dtype="float32", config=CONFIG, interpret=True)
    assert got.dtype == jnp.float32
    assert_agree(got, exactly(case.reference, x, w), "float32")


def test_infinities_that_no_tap_reads_reach_nothing(rng):
    # With a stride of 3 the last two columns are read by nobody, yet lie in a window.
    case = Case((1, 11), (1, 3), channels=3, strides=(1, 3), batch=1)
    x, w = case.operands(rng, "float32")
    x = x.at[0, 0, 9:].set(jnp.inf).at[0, 0, 1].set(jnp.nan)
    rest = {**case.params, "config": CONFIG, "interpret": True}
    assert_agree(conv(x, w, **rest), exactly(case.reference, x, w), "float32")
    clean = x.at[0, 0, 1].set(0)
    ct = jnp.ones((1, 1, 3, 4))
    got = conv_filter_grad(clean, ct, sizes=case.taps, **rest)
    assert jnp.isfinite(got).all()


def test_operands_that_do_not_fit_are_refused():
    x, w = jnp.ones((1, 5, 5, 4)), jnp.ones((3, 3, 4, 6))
    good = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "config": CONFIG}
    with pytest.raises(ShapeError, match=r"2 groups.*w float32\[3, 3, 4, 6\]"):
        conv(x, w, **good, groups=2)
    with pytest.raises(ShapeError, match=r"x\[N, \*S, C\]"):
        conv(x[0], w, **good)
    with pytest.raises(ParameterError, match="strides of 2 entries"):
        conv(x, w, **{**good, "strides": (1,)})
    with pytest.raises(ParameterError, match="rhs_dilation of one or more"):
        conv(x, w, **good, rhs_dilation=(0, 1))
    with pytest.raises(DTypeError, match="int32"):
        conv(x.astype("int32"), w, **good)
