"""Each adapter gives what its operation's reference does, wherever it has a config.

The operands are those of the shared cases and of some more, forwards and in gradients,
so the forms are those that JAX's own derivatives ask for.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.conftest import quick_to_compile as quick_to_compile
from tests.lowering.kernels.pairwise import pairwise
from tests.lowering.uses import Use, recorded
from tests.primitives.cases import CASES
from tests.primitives.harness import Case, compare, loss_of
from tilejax import targets
from tilejax.lowering import tpu
from tilejax.primitives.attention import attention
from tilejax.primitives.conv import conv, conv_general_dilated
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.embedding import embedding
from tilejax.primitives.embedding_bag import embedding_bag
from tilejax.primitives.matmul import dot_general, matmul
from tilejax.primitives.norms import layer_norm
from tilejax.primitives.softmax import softmax

V5E = targets.get("tpu:v5e")
KERNELS = {(k.op, k.part): k for family in tpu.FAMILIES for k in family.KERNELS}


def configs_of(use: Use, target: targets.Target = V5E):
    operands = [
        None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype)
        for x in use.operands()
    ]
    return KERNELS[use.op, use.part].configs(target, *operands, **use.plain_params())


def check_uses(case: Case, dtype: str, gradient: bool) -> list[str]:
    """Compare each use of an operation with its kernel; return those compared."""
    operands = [jnp.asarray(x) for x in case.operands(dtype)]
    with recorded() as uses:
        if gradient and case.differentiated():
            jax.grad(loss_of(case.tested()), case.differentiated())(*operands)
        else:
            case.tested()(*operands)
    assert uses
    compared = []
    for use in uses:
        if (use.op, use.part) not in KERNELS or any(0 in x.shape for x in use.args):
            continue
        found = configs_of(use)
        if isinstance(found, str):
            assert case.name in REFUSED, f"{use.name}: {found}"
            continue
        run = KERNELS[use.op, use.part].run
        got = jax.jit(functools.partial(use.run, run, config=found[0], interpret=True))
        compare(case, got(), list(use.results), dtype, factor=4)
        compared.append(use.name)
    return compared


# Forms that no kernel takes, and operands or results without elements.
REFUSED = {"conv without space", "conv of a window that does not fit"}
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


def _normal(*shapes):
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def _more(name, fun, *shapes, **params):
    return Case(name, fun, fun, _normal(*shapes), params=params)


def _check(case: Case, dtype: str = "float32") -> list[str]:
    compared = check_uses(case, dtype, gradient=True)
    assert compared
    return compared


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
    compared = _check(_more("conv", conv, x, w, **params))
    assert compared == ["conv forward"] * 3  # the value and both gradients


def test_convolutions_with_every_dimension_elsewhere():
    case = _more(
        "conv",
        conv_general_dilated,
        (5, 3, 2, 6),
        (2, 4, 3, 3),
        window_strides=(1, 2),
        padding=((1, 0), (0, 2)),
        dimension_numbers=("WCNH", "HOWI", "CWHN"),
    )
    case.params["dimension_numbers"]
    _check(case)


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
    _check(_more("dot", dot_general, *shapes, dimension_numbers=numbers))


@pytest.mark.parametrize("of_scale", [(), (7,)])
@pytest.mark.parametrize("extras", ["bias", "scale", "residual", "bias scale residual"])
def test_epilogues_of_products_of_stacks(extras, of_scale):
    names = extras.split()
    shapes = {"bias": (7,), "scale": of_scale, "residual": (2, 3, 5, 7)}

    def fun(a, b, *more):
        return matmul(a, b, activation="silu", **dict(zip(names, more, strict=True)))

    more = [shapes[name] for name in names]
    _check(_more("matmul", fun, (2, 3, 5, 4), (2, 3, 4, 7), *more))


def test_an_epilogue_over_several_columns():
    numbers = (((1,), (0,)), ((), ()))

    def fun(a, b, bias, residual):
        return dot_general(a, b, numbers, bias=bias, residual=residual)

    _check(_more("dot", fun, (2, 3), (3, 4, 5), (5,), (2, 4, 5)))


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


ATTENTION = pairwise(
    {
        "kind": ["causal", "window", "all"],
        "bias": [None, (1, 1), (2, 4)],
        "mask": [None, (2, 1)],
        "segments": [None, "uint8", "uint32"],
        "soft_cap": [None, 2.0],
        "masked_rows": ["zeros", "uniform"],
        "heads": [1, 2],
        "keys": [1, 5],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", ATTENTION, ids=str)
def test_attention_with_every_operand(options):
    keys, heads = options["keys"], options["heads"]

    def make(rng):
        found = [rng.normal(size=(2, h, s, d)) for h, s, d in (
            (4, 5, 3), (heads, keys, 3), (heads, keys, 2)
        )]  # fmt: skip
        if options["bias"]:
            found.append(rng.normal(size=(*options["bias"], 5, keys)))
        if options["mask"]:
            found.append(rng.random((*options["mask"], 5, keys)) < 0.7)
        if options["segments"]:
            kind = options["segments"]
            found += [rng.integers(0, 2, (2, n)).astype(kind) for n in (5, keys)]
        return found

    def fun(q, k, v, *more):
        there = iter(more)
        bias = next(there) if options["bias"] else None
        mask = next(there) if options["mask"] else None
        segments = {}
        if options["segments"]:
            segments = {"q_segments": next(there), "kv_segments": next(there)}
        return attention(
            q, k, v, bias, mask, **segments, causal=options["kind"] == "causal",
            window=(1, 2) if options["kind"] == "window" else None,
            soft_cap=options["soft_cap"], masked_rows=options["masked_rows"],
        )  # fmt: skip

    compared = _check(Case("attention", fun, fun, make), options["dtype"])
    assert {*compared} == {"attention forward", "attention backward"}


LOOKUPS = pairwise(
    {
        "out_of_range": ["fill", "clip", "zero", "promise"],
        "row": [(), (2, 3)],
        "ids": [(), (2, 3)],
        "kind": ["int32", "uint8"],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", LOOKUPS, ids=str)
def test_lookups_of_any_rows(options):
    inside = options["out_of_range"] == "promise"

    def make(rng):
        ids = rng.integers(0, 5 if inside else 9, options["ids"])
        if not inside and options["kind"] != "uint8":
            ids = ids - 2
        return [rng.normal(size=(5, *options["row"])), ids.astype(options["kind"])]

    params = {"out_of_range": options["out_of_range"]}
    case = Case("lookup", embedding, embedding, make, params=params)
    compared = _check(case, options["dtype"])
    assert {*compared} == {"embedding forward", "embedding_grad forward"}


BAGS = pairwise(
    {
        "out_of_range": ["fill", "clip", "zero", "promise"],
        "mode": ["sum", "mean"],
        "weighted": [False, True],
        "row": [(), (2, 3)],
        "ids": [(4,), (2, 1, 3)],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", BAGS, ids=str)
def test_bags_of_any_rows(options):
    inside = options["out_of_range"] == "promise"

    def make(rng):
        ids = rng.integers(*((0, 5) if inside else (-2, 9)), options["ids"])
        found = [rng.normal(size=(5, *options["row"])), ids.astype("int32")]
        return [*found, rng.normal(size=ids.shape)] if options["weighted"] else found

    params = {name: options[name] for name in ("out_of_range", "mode")}
    case = Case("bag", embedding_bag, embedding_bag, make, params=params)
    compared = _check(case, options["dtype"])
    assert ("embedding_bag_weights_grad forward" in compared) == options["weighted"]
    assert "embedding_bag_grad forward" in compared


def test_lookups_of_integers_fill_as_the_reference_does():
    for dtype in ("int8", "uint16", "int32"):

        def make(rng, dtype=dtype):
            return [rng.integers(0, 9, (3, 2)).astype(dtype), np.array([1, 7, -1])]

        case = Case("lookup", embedding, embedding, make, moving=())
        assert check_uses(case, "int32", gradient=False) == ["embedding forward"]


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
        compared = _check(Case("labels", fun, fun, make))
    assert {*compared} == {"cross_entropy forward", "cross_entropy backward"}


@pytest.mark.parametrize("axis", [None, (), (0, 2), (1, 0), 1])
def test_softmax_over_any_axes(axis):
    _check(_more("softmax", softmax, (2, 3, 5), axis=axis))


def _reason(fun, *operands, target: targets.Target = V5E) -> str:
    """Why the only use in a call has no kernel."""
    with recorded() as uses:
        fun(*operands)
    (use,) = uses
    found = configs_of(use, target)
    assert isinstance(found, str), found
    return found


def test_what_no_kernel_takes_is_said():
    ones = jnp.ones
    x = ones((2, 8, 8, 3))
    high = jax.lax.Precision.HIGH
    half = ones((4, 4), "float16")
    for want, fun, *operands in (
        ("take no float16", matmul, half, half),
        ("take no float16", softmax, half),
        ("take no float16", layer_norm, ones((4, 4)), half[0]),
        ("take no float16", embedding, half, ones(3, "int32")),
        ("complex64", matmul, *[ones((2, 2), "complex64")] * 2),
        ("int16", matmul, *[ones((2, 2), "int16")] * 2),
        ("bool", embedding, ones((2, 2), bool), ones(3, "int32")),
        ("int8 in int8", matmul, *[ones((2, 2), "int8")] * 2),
        ("float32 and int8", lambda a, b: dot_general(
            a, b, (((1,), (0,)), ((), ())), preferred_element_type="float32"
        ), ones((2, 2)), ones((2, 2), "int8")),
        ("along the rows", lambda a, b, c: matmul(a, b, bias=c), half.astype("f4"),
         ones(4), ones(4)),
        ("precision HIGH", lambda a: matmul(a, a, precision=high), ones((2, 2))),
        ("precision HIGH", lambda q: attention(q, q, q, precision=high), x),
        ("precision BF16_BF16_F32", lambda a: matmul(a, a, precision="BF16_BF16_F32"),
         ones((2, 2))),
        ("take no float16", lambda q, b: attention(q, q, q, b), x,
         ones((8, 8), "float16")),
        ("spatial", lambda x, w: conv_general_dilated(x, w, (), ()), half[:2], half),
        ("int8 in int8", conv, x.astype("int8"), ones((1, 1, 3, 2), "int8")),
        ("longer than", lambda x, w: conv(x, w, groups=2), ones((1, 99, 2)),
         ones((99, 1, 2))),
        ("complex64", conv, x.astype("complex64"), ones((1, 1, 3, 2), "complex64")),
    ):  # fmt: skip
        found = _reason(fun, *operands)
        assert want in found, f"{found!r} instead of {want!r}"


def test_no_kernel_mixes_wide_numbers_with_narrow_ones(x64):
    ones = jnp.ones
    for want, fun, *operands in (
        ("take no float64", softmax, ones((2, 2), "float64")),
        ("take no float64", lambda a, b: matmul(a, a, bias=b), ones((2, 2), "float32"),
         ones(2, "float64")),
        ("64 bits", lambda q, s: attention(q, q, q, q_segments=s, kv_segments=s),
         ones((2, 1, 8, 4), "float32"), ones((2, 8), "int64")),
        ("int64", embedding, ones((2, 2), "int64"), ones(2, "int32")),
    ):  # fmt: skip
        found = _reason(fun, *operands)
        assert want in found, f"{found!r} instead of {want!r}"
    h100 = targets.get("gpu:h100")
    operands = ones((2, 2), "float32"), ones(2, "float64")
    found = _reason(lambda a, b: matmul(a, a, bias=b), *operands, target=h100)
    assert "mixes float32 and float64" in found


def test_a_share_of_a_depthwise_convolution_has_fewer_groups():
    """A device's part has its part of the groups, and still the whole's parameters."""
    case = _more("conv", conv, (2, 6, 5, 4), (3, 2, 1, 4), groups=4)
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


def test_a_filters_gradient_takes_the_kernel_that_tiles_its_window():
    case = _more("conv", conv, (2, 16, 16, 3), (3, 3, 3, 4))
    operands = [jnp.asarray(x) for x in case.operands("float32")]
    with recorded() as uses:
        jax.grad(loss_of(case.tested()), (0, 1))(*operands)
    found = {tuple(configs_of(u)[0].kernel for u in uses if u.results[0].shape == s)
             for s in ((2, 16, 16, 4), (2, 16, 16, 3), (3, 3, 3, 4))}  # fmt: skip
    assert found == {("conv",), ("filter_grad",)}
