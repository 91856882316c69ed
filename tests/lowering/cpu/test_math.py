"""Mathematical functions against wider arithmetic, by units in the last place."""

import math

import numpy as np
import pytest
from scipy import special

from tests.lowering.cpu.elements import HOSTS, Kernels, host_of, numpy_dtype
from tilejax.lowering.cpu.compile import compile_object
from tilejax.lowering.cpu.elf import undefined_symbols


@pytest.fixture(autouse=True)
def quiet():
    """NumPy warns of the infinities and NaN that are the point here."""
    with np.errstate(all="ignore"):
        yield


def logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def inverse_root(x):
    return 1 / np.sqrt(x)


erf64 = np.vectorize(math.erf, otypes=[np.float64])
erfc64 = np.vectorize(math.erfc, otypes=[np.float64])

# Per function: the oracle, and the bounds that the docstrings give for float32 and
# float64. NumPy computes in long double for float64; its erf and inverse are SciPy's.
FUNCTIONS = {
    "exp": (np.exp, 1.1, 1.1),
    "exp2": (np.exp2, 1.1, 1.1),
    "expm1": (np.expm1, 2, 2),
    "log": (np.log, 1.5, 1.5),
    "log2": (np.log2, 2.5, 2.5),
    "log1p": (np.log1p, 2.5, 2.5),
    "logistic": (logistic, 3, 3),
    "tanh": (np.tanh, 3, 3),
    "sinh": (np.sinh, 4, 4),
    "cosh": (np.cosh, 2, 2),
    "asinh": (np.arcsinh, 4, 4),
    "acosh": (np.arccosh, 4, 4),
    "atanh": (np.arctanh, 4, 4),
    "sin": (np.sin, 1.5, 1.5),
    "cos": (np.cos, 1.5, 1.5),
    "tan": (np.tan, 3.5, 3.5),
    "asin": (np.arcsin, 2, 2),
    "acos": (np.arccos, 2, 2),
    "atan": (np.arctan, 2, 2),
    "cbrt": (np.cbrt, 1, 1),
    "sqrt": (np.sqrt, 0.5, 0.5),
    "rsqrt": (inverse_root, 1.6, 1.6),
    "erf": (special.erf, 2, 2),
    "erfc": (special.erfc, 1, 4),
    "erf_inv": (special.erfinv, 1, 10),
}
BINARY = {"pow": (np.power, 1, 1.5), "atan2": (np.arctan2, 3, 3)}
WIDER = {"erf": erf64, "erfc": erfc64, "erf_inv": special.erfinv}
"""The oracles in float64 of functions that NumPy lacks."""


def edges(dtype):
    info = np.finfo(dtype)
    few = [0, 0.5, 1, 2, 3, np.pi, info.max, info.tiny, info.smallest_subnormal, np.inf]
    few += [1e5, 2.0**20, 88.72283, 87.3365, 103.9721, 709.7827, 745.1332]
    values = np.array(few, dtype)
    near = [np.nextafter(values, dtype(np.inf)), np.nextafter(values, dtype(0))]
    values = np.concatenate([values, *near])
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


def arguments(dtype, count):
    """Edges, random bits, and numbers where functions have something to do."""
    random = np.random.default_rng(11)
    word, top = (np.uint32, 2**32) if dtype is np.float32 else (np.uint64, 2**64)
    part = count // 8
    wide = 110 if dtype is np.float32 else 760
    close = 1 - np.exp(random.uniform(-36, 0, part))
    parts = [
        edges(dtype),
        random.integers(0, top, 3 * part, dtype=word).view(dtype),
        random.standard_normal(part) * np.exp(random.uniform(-12, 6, part)),
        random.uniform(-1.2, 1.2, part),
        random.uniform(-wide, wide, part),
        random.integers(1, 1 << 14, part) * (np.pi / 4),
        close * random.choice([-1, 1], part),
    ]
    return np.concatenate([p.astype(dtype) for p in parts])


def errors(got, want):
    """Units in the last place, infinite where the kind of number is another.

    A result that is infinite or the largest number counts as right for the other.
    """
    info = np.finfo(got.dtype) if got.dtype.kind == "f" else None
    largest, digits, least = (
        (float(info.max), info.nmant, info.minexp)
        if info
        else (float.fromhex("0x1.fep127"), 7, -126)
    )
    wide = got.astype(want.dtype)
    _, exponent = np.frexp(np.where(np.isfinite(want), want, 1))
    unit = np.ldexp(want.dtype.type(1), np.maximum(exponent - 1, least) - digits)
    off = np.abs(wide - want) / unit
    huge = (np.abs(want) > largest * (1 - 2.0**-digits)) & (want * wide > 0)
    off = np.where(huge & (np.abs(wide) >= largest * (1 - 2.0 ** (2 - digits))), 0, off)
    off = np.where(wide == want, 0, off)
    signs = (want == 0) & (wide == 0) & (np.signbit(want) != np.signbit(wide))
    off = np.where(np.isnan(want), np.where(np.isnan(wide), 0, np.inf), off)
    return np.where(signs | np.isnan(off), np.inf, off)


def check(name, got, want, inputs, bound):
    off = errors(got, want)
    if name == "erf_inv":  # SciPy's forgets the sign of zero
        off = np.where(inputs[0] == 0, np.where(got == inputs[0], 0, np.inf), off)
    at = int(np.argmax(off))
    assert off[at] <= bound, (
        f"{name}{[x[at] for x in inputs]} is {got[at]}, not {want[at]}: {off[at]} ulp"
    )


def check_all(kernels, dtype, unary, binary):
    column = 1 if dtype is np.float32 else 2
    kind = np.dtype(dtype).name
    for name in FUNCTIONS:
        kernels.add_op(name, name, [kind], kind)
    for name in BINARY:
        kernels.add_op(name, name, [kind, kind], kind)
    for names, inputs in ((FUNCTIONS, unary), (BINARY, binary)):
        wide = [x.astype(np.float64) for x in inputs]
        if dtype is np.float64:
            wide = [x.astype(np.longdouble) for x in inputs]
        for name, row in names.items():
            if dtype is np.float64 and name in WIDER:
                want = WIDER[name](*inputs)
            else:
                want = row[0](*wide)
            check(name, kernels(name, *inputs), want, inputs, row[column])


def pairs(dtype, count):
    """All pairs of edges, random pairs, and powers of numbers near one."""
    few = edges(dtype)
    first, second = (a.ravel() for a in np.meshgrid(few, few))
    random = np.random.default_rng(13)
    many = arguments(dtype, count)
    exponents = random.uniform(-30, 30, many.size).astype(dtype)
    near_one = np.exp(random.uniform(-0.4, 0.4, many.size)).astype(dtype)
    reach = 80 if dtype is np.float32 else 700
    far = random.uniform(-reach, reach, many.size) / np.log(near_one)
    return [
        np.concatenate([first, many, np.abs(many), near_one]),
        np.concatenate(
            [second, random.permutation(many), exponents, far.astype(dtype)]
        ),
    ]


@pytest.mark.parametrize("host", ["native", *HOSTS])
def test_float32_is_within_its_bounds(host):
    count = 1 << 20 if host == "native" else 1 << 16
    kernels = Kernels(host_of(host))
    binary = pairs(np.float32, count // 4)
    check_all(kernels, np.float32, [arguments(np.float32, count)], binary)


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant <= 52, reason="needs a float wider than float64"
)
@pytest.mark.parametrize("host", ["native", *HOSTS])
def test_float64_is_within_its_bounds(host):
    kernels = Kernels(host_of(host))
    binary = pairs(np.float64, 1 << 14)
    check_all(kernels, np.float64, [arguments(np.float64, 1 << 15)], binary)


@pytest.mark.parametrize("lanes", [None, 4, 8])
def test_float32_is_within_its_bounds_at_other_widths(lanes):
    kernels = Kernels(host_of("native", lanes), scalar=lanes is None)
    unary = [arguments(np.float32, 1 << 14)]
    check_all(kernels, np.float32, unary, pairs(np.float32, 1 << 10))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_within_one_unit(dtype):
    kernels = Kernels(host_of("native"))
    kind = numpy_dtype(dtype)
    patterns = np.arange(1 << 16, dtype=np.uint16).view(kind)
    for name in FUNCTIONS:
        kernels.add_op(name, name, [dtype], dtype)
    for name, (oracle, *_) in FUNCTIONS.items():
        got = kernels(name, patterns)
        want = oracle(patterns.astype(np.float64))
        if dtype == "bfloat16" and host_of("native").has("avx512bf16"):
            # Rounding by that instruction takes denormals for zeros.
            want = np.where(np.abs(want) < 2.0**-126, np.copysign(0, want), want)
        check(name, got, want, [patterns], 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_flushed_denormal_counts_as_itself_or_as_zero(dtype):
    kind = np.dtype(dtype)
    least = np.finfo(dtype).tiny
    few = np.array([least * 0.9, least / 7, np.finfo(dtype).smallest_subnormal], dtype)
    x = np.concatenate([few, -few])
    for host in ("native", *HOSTS):
        kernels = Kernels(host_of(host), flush=True)
        for name in FUNCTIONS:
            kernels.add_op(name, name, [kind.name], kind.name)
        for name, (oracle, *_) in FUNCTIONS.items():
            got = kernels(name, x)
            good = np.zeros(x.size, bool)
            for value in (x, np.copysign(dtype(0), x)):
                want = oracle(value.astype(np.float64)).astype(dtype)
                good |= np.abs(got - want) <= 1e-6 * np.abs(want)
                good |= (np.abs(got) <= least) & (np.abs(want) <= least)
                good |= (got == want) | (np.isnan(got) & np.isnan(want))
            assert good.all(), (name, host, x, got)


@pytest.mark.parametrize("host", ["avx2", "plain", "avx512"])
def test_no_function_needs_a_library(host):
    kernels = Kernels(host_of(host))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for name in (*FUNCTIONS, "floor", "ceil"):
            kernels.add_op((name, dtype), name, [dtype], dtype)
        for name in (*BINARY, "rem", "max"):
            kernels.add_op((name, dtype), name, [dtype, dtype], dtype)
    assert undefined_symbols(compile_object(kernels.text, kernels.host)) == []
