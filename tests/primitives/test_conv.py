"""What is special to convolutions: JAX's own bits, layouts, types and costs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax
from jax.ad_checkpoint import print_saved_residuals
from jax.sharding import AxisType, PartitionSpec as P

from tilejax.errors import DTypeError, ParameterError, ShapeError, ShardingError
from tilejax.primitives import conv_dims, factors
from tilejax.primitives.conv import (
    conv,
    conv_general_dilated,
    conv_op,
    from_conv_general_dilated,
)
from tilejax.primitives.conv_arguments import LAYOUTS
from tilejax.primitives.conv_transpose import conv_transpose


def _same_bits(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def _params(x, w, *args, **kwargs) -> dict:
    eqns = jax.make_jaxpr(lambda x, w: lax.conv_general_dilated(x, w, *args, **kwargs))(
        x, w
    ).eqns
    return from_conv_general_dilated(eqns[0].params)[1]


@st.composite
def _forms(draw):
    """Small operands of any rank, and any parameters that fit them."""
    space = draw(st.integers(1, 2))
    groups, batches = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2)]))
    depth, each, batch = (draw(st.integers(1, 2)) for _ in range(3))
    small = st.lists(st.integers(1, 3), min_size=space, max_size=space)
    edges = st.tuples(st.integers(-1, 2), st.integers(0, 2))
    x = (batch * batches, depth * groups, *(n + 3 for n in draw(small)))
    w = (each * groups * batches, depth, *draw(small))
    params = {
        "window_strides": tuple(draw(small)),
        "padding": tuple(draw(edges) for _ in range(space)),
        "lhs_dilation": tuple(draw(small)),
        "rhs_dilation": tuple(draw(small)),
        "feature_group_count": groups,
        "batch_group_count": batches,
    }
    return x, w, params


@settings(max_examples=10)
@given(_forms())
def test_any_parameters_are_those_of_jax_and_are_counted_right(form):
    x_shape, w_shape, params = form
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in (x_shape, w_shape))
    want = lax.conv_general_dilated(x, w, **params)
    _same_bits(conv_general_dilated(x, w, **params), want)
    full = _params(x, w, **params)
    assert conv_dims.result_spatial(x, w, full) == list(want.shape[2:])
    # with ones everywhere the result counts the products that are not of padding
    ones = lax.conv_general_dilated(jnp.ones_like(x), jnp.ones_like(w), **params)
    assert conv_op.cost is not None
    assert conv_op.cost(x, w, **full).operations == 2 * float(ones.sum())
    assert factors.parse(conv_dims.rule((x, w), full))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_is_a_transpose_of_another(rng, layout):
    last = {3: "NWC", 4: "NHWC", 5: "NDHWC"}[len(layout)]
    space = len(layout) - 2
    x = rng.normal(size=(2, *range(4, 4 + space), 3)).astype(np.float32)
    w = rng.normal(size=(*(2,) * space, 3, 5)).astype(np.float32)
    want = conv(x, w, strides=2, padding="VALID")
    turned = conv(
        np.transpose(x, [last.index(d) for d in layout]),
        np.transpose(w, [LAYOUTS[last].index(d) for d in LAYOUTS[layout]]),
        strides=2,
        padding="VALID",
        layout=layout,
    )
    back = np.transpose(turned, [layout.index(d) for d in last])
    np.testing.assert_allclose(back, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("padding", "as_jax"),
    [
        ("same", "SAME"),
        ("SAME_LOWER", "SAME_LOWER"),
        ("VALID", "VALID"),
        (2, ((2, 2), (2, 2))),
        ((1, (0, 3)), ((1, 1), (0, 3))),
    ],
)
def test_paddings_are_those_of_jax(rng, padding, as_jax):
    x, w = rng.normal(size=(1, 6, 7, 2)), rng.normal(size=(2, 3, 2, 2))
    x, w = x.astype(np.float32), w.astype(np.float32)
    numbers = ("NHWC", "HWIO", "NHWC")
    want = lax.conv_general_dilated(x, w, (2, 2), as_jax, dimension_numbers=numbers)
    _same_bits(conv(x, w, strides=2, padding=padding), want)


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2),)])
@pytest.mark.parametrize("turned", [False, True])
def test_transposed_convolution_is_that_of_jax(rng, padding, turned):
    x = rng.normal(size=(2, 5, 3)).astype(np.float32)
    w = rng.normal(size=(4, 2, 3) if turned else (4, 3, 2)).astype(np.float32)
    want = lax.conv_transpose(x, w, (3,), padding, transpose_kernel=turned)
    got = conv_transpose(x, w, strides=3, padding=padding, transpose_kernel=turned)
    _same_bits(got, want)


def test_bytes_sum_up_in_int32(rng):
    x, w = (rng.integers(-128, 128, s, np.int8) for s in ((1, 9, 4), (3, 4, 2)))
    got = conv(x, w, padding="VALID", preferred_element_type=jnp.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(int), 3, 1)
    np.testing.assert_array_equal(got, np.einsum("nxck,kco->nxo", windows, w))


def test_gradients_and_vmaps_are_convolutions_again():
    x, w = jnp.ones((2, 2, 4, 6)), jnp.ones((2, 3, 3, 4))

    def one(x, w):
        return conv(x, w, groups=2)

    def plain(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            (1,),
            "SAME",
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=2,
        )

    for axes in ((0, 0), (0, None), (None, 0)):
        operands = [a if at == 0 else a[0] for a, at in zip((x, w), axes, strict=True)]
        for transform in (
            lambda f: f,
            lambda f: jax.grad(lambda x, w: f(x, w).sum(), (0, 1)),
        ):
            names, own = (
                [
                    e.primitive.name
                    for e in jax.make_jaxpr(transform(jax.vmap(f, axes)))(
                        *operands
                    ).eqns
                ]
                for f in (one, plain)
            )
            assert names == [
                n.replace("conv_general_dilated", "tiled_conv") for n in own
            ]
            assert "tiled_conv" in names


def test_checkpoint_policies_see_a_convolution(capsys):
    x, w = jnp.ones((1, 4, 2)), jnp.ones((3, 2, 2))
    seen = []

    def policy(primitive, *avals, **params):
        if primitive is lax.conv_general_dilated_p:
            seen.append((len(avals), params["window_strides"]))
            return True
        return False

    wrapped = jax.checkpoint(lambda x, w: jnp.sin(conv(x, w)), policy=policy)
    print_saved_residuals(wrapped, x, w)
    assert (2, (1,)) in seen
    assert len(capsys.readouterr().out.splitlines()) == 3  # x, w and the result


def test_explicit_types_are_those_of_jax():
    mesh = jax.make_mesh(
        (2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=jax.devices()[:4]
    )
    numbers = ("NHWC", "HWIO", "NHWC")
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((4, 4, 4, 2)), P("x"))
        w = jax.device_put(jnp.ones((3, 3, 2, 4)), P())
        split = jax.device_put(w, P(None, None, None, "y"))
        out = P("x", None, None, "y")
        for operands, more in (((x, w), {}), ((x, split), {"out_sharding": out})):
            own, ours = (
                jax.jit(
                    lambda x, w, f=f, more=more: f(
                        x, w, (1, 1), "SAME", None, None, numbers, **more
                    )
                )
                .trace(*operands)
                .out_info
                for f in (lax.conv_general_dilated, conv_general_dilated)
            )
            assert own.sharding == ours.sharding
        with pytest.raises(ShardingError, match=r"conv.*out_sharding"):
            conv(x, split)


def test_depthwise_features_and_batches_can_be_split():
    x, w = jnp.ones((2, 5, 4)), jnp.ones((3, 1, 4))
    numbers = ("NWC", "WIO", "NWC")
    full = _params(x, w, (1,), "SAME", dimension_numbers=numbers, feature_group_count=4)
    rule = factors.parse(conv_dims.rule((x, w), full))
    assert str(rule) == "n s0~ o, k0! 1 o -> n s0~ o"
    full = _params(x, jnp.ones((1, 4, 4)), (1,), "SAME", dimension_numbers=numbers)
    rule = factors.parse(conv_dims.rule((x, jnp.ones((1, 4, 4))), full))
    assert str(rule) == "n s0 c, k0! c o -> n s0 o"


ERRORS = [
    (ShapeError, "rank 3, 4 or 5", ((2, 3), (2, 3)), {}),
    (ShapeError, r"wants x and w \(WIO\)", ((1, 4, 2), (3, 2)), {}),
    (ShapeError, r"has 2 features.*takes 3", ((1, 4, 2), (3, 3, 2)), {}),
    (ShapeError, "2 groups do not divide", ((1, 4, 2), (3, 1, 3)), {"groups": 2}),
    (ParameterError, "groups=0", ((1, 4, 2), (3, 2, 2)), {"groups": 0}),
    (ParameterError, "layout='NWH'", ((1, 4, 2), (3, 2, 2)), {"layout": "NWH"}),
    (ParameterError, "strides=", ((1, 4, 2), (3, 2, 2)), {"strides": (1, 2)}),
    (ParameterError, "lhs_dilation=0", ((1, 4, 2), (3, 2, 2)), {"lhs_dilation": 0}),
    (ParameterError, "padding='FULL'", ((1, 4, 2), (3, 2, 2)), {"padding": "FULL"}),
    (ParameterError, "give 1 pairs", ((1, 4, 2), (3, 2, 2)), {"padding": (1, 2)}),
]


@pytest.mark.parametrize(("error", "says", "shapes", "params"), ERRORS)
def test_what_does_not_fit_is_named(error, says, shapes, params):
    x, w = map(jnp.ones, shapes)
    with pytest.raises(error, match=says):
        conv(x, w, **params)


def test_wrong_dtypes_and_transposed_features_are_named():
    x, w = jnp.ones((1, 4, 2)), jnp.ones((3, 2, 2))
    with pytest.raises(DTypeError, match="give both one dtype"):
        conv(x, w.astype(jnp.bfloat16))
    with pytest.raises(ShapeError, match="has 2 features, but w"):
        conv_transpose(x, jnp.ones((3, 5, 2)))
    with pytest.raises(ShapeError, match="give both one rank"):
        conv_general_dilated(x, w[0], (1,), "SAME")
    with pytest.raises(ParameterError, match="conv"):
        conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WI", "N"))


def test_taps_count_what_a_loop_counts():
    for stride, low, hole, spread, window in itertools.product(
        (1, 3), (-2, 0, 2), (1, 2, 3), (1, 2), (1, 3)
    ):
        x, w = jnp.ones((1, 1, 7)), jnp.ones((1, 1, window))
        full = _params(x, w, (stride,), ((low, 2),), (hole,), (spread,))
        (outs,) = conv_dims.result_spatial(x, w, full)
        at = [o * stride + k * spread - low for o in range(outs) for k in range(window)]
        inside = sum(0 <= i <= 6 * hole and i % hole == 0 for i in at)
        assert conv_dims.taps(x, w, full) == inside
