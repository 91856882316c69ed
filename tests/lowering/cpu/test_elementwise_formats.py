"""Narrow floats, affine vectors, orders and combinations, against plain NumPy."""

import numpy as np
import pytest

from tests.lowering.cpu.elements import HOSTS, Kernels, host_of, numpy_dtype
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.elementwise_combine import COMBINE
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import TYPES, Elt, is_float, is_float8

FLOAT8S = [t for t in TYPES if is_float8(t)]
ALL_HOSTS = ["native", *HOSTS]


@pytest.fixture(autouse=True)
def quiet():
    """NumPy warns of the infinities and NaN that are the point here."""
    with np.errstate(all="ignore"):
        yield


def converted(host, before, after, array):
    kernels = Kernels(host_of(host))
    kernels.add_op("f", "convert_element_type", [before], after)
    return kernels("f", array)


def equal(a, b):
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) & (np.signbit(x) == np.signbit(y))
    return bool((same | (np.isnan(x) & np.isnan(y))).all())


def floats(count=1 << 16):
    random = np.random.default_rng(3)
    anything = random.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    near = np.exp2(random.uniform(-28, 20, count)) * random.choice([-1, 1], count)
    few = random.integers(0, 1 << 12, count) << 19  # ties, in every format
    exponents = (few.astype(np.uint32) + np.uint32(0x20000000)).view(np.float32)
    return np.concatenate([anything, near.astype(np.float32), exponents])


@pytest.mark.parametrize("host", ALL_HOSTS)
def test_every_float8_is_decoded(host):
    patterns = np.arange(256, dtype=np.uint8)
    for dtype in FLOAT8S:
        array = patterns.view(numpy_dtype(dtype))
        assert equal(converted(host, dtype, "float32", array), array.astype("f4"))


@pytest.mark.parametrize("host", ALL_HOSTS)
def test_float8_is_encoded_as_ml_dtypes_does(host):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        for dtype in FLOAT8S:
            kind = numpy_dtype(dtype)
            got = converted(host, "float16", dtype, halves)
            assert equal(got, halves.astype(kind)), dtype
            got = converted(host, "float32", dtype, floats())
            assert equal(got, floats().astype(kind)), dtype


@pytest.mark.parametrize("host", ALL_HOSTS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_widened_exactly_and_rounded_once(host, dtype):
    kind = numpy_dtype(dtype)
    patterns = np.arange(1 << 16, dtype=np.uint16).view(kind)
    assert equal(converted(host, dtype, "float32", patterns), patterns.astype("f4"))
    values = floats()
    if host == "native" and host_of(host).has("avx512bf16"):
        # That instruction takes denormals for zeros.
        values = np.where(np.abs(values) < 2.0**-126, np.float32(0), values)
    with np.errstate(all="ignore"):
        assert equal(converted(host, "float32", dtype, values), values.astype(kind))


@pytest.mark.parametrize("host", ALL_HOSTS)
def test_a_remainder_is_exact_at_any_ratio(host):
    random = np.random.default_rng(5)
    kernels = Kernels(host_of(host))
    for dtype in ("float32", "float64"):
        kernels.add_op(dtype, "rem", [dtype, dtype], dtype)
    for dtype, word in (("float32", np.uint32), ("float64", np.uint64)):
        top = np.iinfo(word).max
        x, y = (random.integers(0, top, 4096, dtype=word).view(dtype) for _ in range(2))
        with np.errstate(all="ignore"):
            want = np.fmod(x, y)
        assert equal(kernels(dtype, x, y), want)


def test_the_total_order_has_negative_nan_first_and_zeros_apart():
    for dtype in ("float32", "float16", "float8_e5m2"):
        kind = numpy_dtype(dtype)
        nan = np.array([np.nan], kind)
        ranked = [-nan, *(np.array([v], kind) for v in (-np.inf, -1, -0.0, 0.0, 2))]
        ranked += [np.array([np.inf], kind), abs(nan)]
        ranked[0] = np.copysign(ranked[-1].astype("f4"), np.float32(-1)).astype(kind)
        values = np.concatenate(ranked)
        first, second = (
            a.ravel() for a in np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
        )
        kernels = Kernels(host_of("native"))
        orders = {
            "lt_to": first < second,
            "le_to": first <= second,
            "eq_to": first == second,
        }
        for name in orders:
            kernels.add_op(name, name, [dtype, dtype], "bool")
        for name, want in orders.items():
            assert (kernels(name, values[first], values[second]) == want).all(), name


def test_one_minus_a_square_rounds_each_factor():
    kernels = Kernels(host_of("native"))
    kernels.add_op("f", "one_minus_square", ["float16"], "float16")
    x = np.random.default_rng(7).standard_normal(512).astype(np.float16)
    one = np.float16(1)
    assert equal(kernels("f", x), (one - x) * (one + x))


def nest_of(lanes=4):
    module = Module(host_of("native", lanes))
    return Nest(Function(module, "define void @f(i32 %s)"))


def test_what_is_added_to_a_base_stays_a_base():
    nest = nest_of()
    places = Elt("", "int32", True, "%b")
    one = Elt("%s", "int32")
    for name, args in (
        ("add", [places, one]),
        ("add", [one, places]),
        ("sub", [places, one]),
    ):
        out = OPS[name](nest, args, "int32")
        assert out.vector and out.base is not None, name
    wider = OPS["convert_element_type"](nest, [places], "int64")
    assert wider.base is not None and wider.dtype == "int64"
    tiny = Elt("", "int8", True, "%b")
    # 127 + lane wraps around in eight bits and would not in sixteen.
    assert OPS["convert_element_type"](nest, [tiny], "int16").base is None
    assert OPS["sub"](nest, [one, places], "int32").base is None
    difference = OPS["sub"](nest, [places, places], "int32")
    assert not difference.vector


def _combines(name: str, dtype: str) -> bool:
    """Whether a reduction is defined on a dtype and has an exact identity there."""
    if name in ("and", "or", "xor"):
        return not is_float(dtype)
    if name == "logsumexp":
        return is_float(dtype) and not is_float8(dtype)
    return dtype != "bool" or name in ("max", "min")


@pytest.mark.parametrize("name", COMBINE)
def test_an_identity_changes_nothing(name):
    combine = COMBINE[name]
    kernels = Kernels(host_of("native"))
    kinds = [t for t in TYPES if _combines(name, t)]
    for dtype in kinds:
        kernels.add(
            dtype,
            lambda n, args, dtype=dtype: combine(n, combine.identity(dtype), args[0]),
            [dtype],
            dtype,
        )
    for dtype in kinds:
        kind = numpy_dtype(dtype)
        x = np.arange(256, dtype=np.uint8)
        x = x % 2 == 1 if dtype == "bool" else np.repeat(x, 8).view(kind)
        got = kernels(dtype, x)
        # Finite float8 extremes cannot be the identity of an infinity or NaN.
        if is_float(dtype):
            zero = (x.astype(np.float64) == 0) & (got.astype(np.float64) == 0)
            got = np.where(zero, x, got)
        assert equal(got, x), dtype


def test_names_that_have_no_rule_are_absent():
    assert "lgamma" not in OPS and "igamma" not in OPS
    assert all(op.cost >= 0 for op in OPS.values())
