"""Each adapter gives what its operation's reference does, wherever it has a config.

The operands are those of the shared cases and of some more, forwards and in gradients,
so the forms are those that JAX's own derivatives ask for.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.adapted import (
    KERNELS,
    REFUSED,
    check,
    check_uses,
    configs_of,
    like_itself,
)
from tests.lowering.kernels.conftest import quick_to_compile as quick_to_compile
from tests.lowering.kernels.pairwise import pairwise
from tests.lowering.uses import recorded
from tests.primitives.cases import CASES
from tests.primitives.harness import Case, compare, loss_of
from tilejax.primitives.conv import conv, conv_general_dilated
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.matmul import dot_general, matmul
from tilejax.primitives.softmax import softmax

# Operands or results without elements.
EMPTY = ("matmul of nothing", "matmul without rows")
# Below there are more of these than of the shared cases.
ELSEWHERE = ("attention", "conv", "embedding")


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, ("float32", "bfloat16")[at % 2], id=case.name)
        for at, case in enumerate(CASES)
        if case.thin or not case.name.startswith(ELSEWHERE)
    ],
)
def test_shared_cases(case, dtype):
    compared = check_uses(case, dtype, gradient=not case.thin)
    empty = " no " in case.name or "empty" in case.name or case.name.startswith(EMPTY)
    assert compared or empty or case.name in REFUSED


# Every pair of these meets in a convolution.
CONV = pairwise(
    {
        "layout": ["NHWC", "NCHW"],
        "strides": [1, 2],
        "padding": [0, ((2, -1), (0, 3))],
        "lhs_dilation": [1, 2],
        "rhs_dilation": [1, 2],
        "groups": [1, 2],
    }
)


@pytest.mark.parametrize("params", CONV, ids=str)
def test_convolutions_in_any_layout(params):
    params = dict(params)
    x, w = (2, 9, 7, 4), (3, 2, 4 // params["groups"], 8)
    if params["layout"] == "NCHW":
        x, w = (2, 4, 9, 7), (8, 4 // params["groups"], 3, 2)
    compared = check(like_itself("conv", conv, x, w, **params))
    assert compared == ["conv forward"] * 3  # the value and both gradients


def test_convolutions_with_every_dimension_elsewhere():
    case = like_itself(
        "conv",
        conv_general_dilated,
        (5, 3, 2, 6),
        (2, 4, 3, 3),
        window_strides=(1, 2),
        padding=((1, 0), (0, 2)),
        dimension_numbers=("WCNH", "HOWI", "CWHN"),
    )
    case.params["dimension_numbers"]
    check(case)


def test_a_filters_gradient_takes_the_kernel_that_tiles_its_window():
    case = like_itself("conv", conv, (2, 16, 16, 3), (3, 3, 3, 4))
    operands = [jnp.asarray(x) for x in case.operands("float32")]
    with recorded() as uses:
        jax.grad(loss_of(case.tested()), (0, 1))(*operands)

    def kernel_of(use):
        configs = configs_of(use)
        assert not isinstance(configs, str), configs
        return configs[0].kernel

    found = {tuple(kernel_of(u) for u in uses if u.results[0].shape == s)
             for s in ((2, 16, 16, 4), (2, 16, 16, 3), (3, 3, 3, 4))}  # fmt: skip
    assert found == {("conv",), ("filter_grad",)}


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        (((3, 2, 5, 4), (2, 5, 6, 3)), (((0, 2), (3, 1)), ((1,), (0,)))),
        (((4, 3), (5, 3)), (((1,), (1,)), ((), ()))),
        (((3, 4), (3, 5)), (((0,), (0,)), ((), ()))),
        (((2, 3, 4), (2, 4, 5)), (((2,), (1,)), ((0,), (0,)))),
        (((3,), (3,)), (((0,), (0,)), ((), ()))),
        (((2, 3), (2, 3)), (((), ()), ((0, 1), (0, 1)))),
        (((), (4,)), (((), ()), ((), ()))),
    ],
    ids=str,
)
def test_products_over_any_dimensions(shapes, numbers):
    check(like_itself("dot", dot_general, *shapes, dimension_numbers=numbers))


@pytest.mark.parametrize("of_scale", [(), (7,)])
@pytest.mark.parametrize("extras", ["bias", "scale", "residual", "bias scale residual"])
def test_epilogues_of_products_of_stacks(extras, of_scale):
    names = extras.split()
    shapes = {"bias": (7,), "scale": of_scale, "residual": (2, 3, 5, 7)}

    def fun(a, b, *more):
        return matmul(a, b, activation="silu", **dict(zip(names, more, strict=True)))

    more = [shapes[name] for name in names]
    check(like_itself("matmul", fun, (2, 3, 5, 4), (2, 3, 4, 7), *more))


def test_an_epilogue_over_several_columns():
    numbers = (((1,), (0,)), ((), ()))

    def fun(a, b, bias, residual):
        return dot_general(a, b, numbers, bias=bias, residual=residual)

    check(like_itself("dot", fun, (2, 3), (3, 4, 5), (5,), (2, 4, 5)))


def test_products_of_bytes():
    def make(rng):
        return [rng.integers(-128, 128, s, np.int8) for s in ((3, 300), (300, 5))]

    case = Case(
        "bytes",
        matmul,
        matmul,
        make,
        params={"preferred_element_type": "int32"},
        moving=(),
    )
    assert check_uses(case, "int32", gradient=False) == ["matmul forward"]


@pytest.mark.parametrize("kind", ["int8", "uint8", "uint32", "int64"])
def test_labels_of_any_integers(kind):
    """Past what 32 bits hold, too: a cast must not make labels of what are none."""

    def make(rng):
        labels = rng.integers(0, 300, 6).astype(kind)
        if kind in ("uint32", "int64"):
            labels[:2] = [2**32 - 1, 2**31 + 3]
        if kind == "int64":
            labels[2:4] = [2**32 + 1, -(2**32) + 1]
        return [rng.normal(size=(6, 300)), labels]

    def fun(logits, labels):
        loss = cross_entropy(logits, labels)
        return jnp.where(jnp.isnan(loss), 0, loss)

    with jax.enable_x64(kind == "int64"):
        compared = check(Case("labels", fun, fun, make))
    assert {*compared} == {"cross_entropy forward", "cross_entropy backward"}


@pytest.mark.parametrize("axis", [None, (), (0, 2), (1, 0), 1])
def test_softmax_over_any_axes(axis):
    check(like_itself("softmax", softmax, (2, 3, 5), axis=axis))


def test_a_share_of_a_depthwise_convolution_has_fewer_groups():
    """A device's part has its part of the groups, and still the whole's parameters."""
    case = like_itself("conv", conv, (2, 6, 5, 4), (3, 2, 1, 4), groups=4)
    x, w = (jnp.asarray(a) for a in case.operands("float32"))
    with recorded() as uses:
        case.tested()(x, w)
    (use,) = uses
    share = replace(
        use, args=[x[..., :2], w[..., :2]], results=[use.results[0][..., :2]]
    )
    run = KERNELS[use.op, use.part].run
    got = share.run(run, config=configs_of(share)[0], interpret=True)
    compare(case, got, share.results, "float32", factor=4)
