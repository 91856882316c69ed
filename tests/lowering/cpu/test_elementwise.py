"""Element-wise primitives against `jax.jit` on this CPU, bit for bit."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tests.lowering.cpu.elements import HOSTS, Kernels, host_of, numpy_dtype
from tilejax.lowering.cpu.types import TYPES, is_float, is_float8, itemsize

FLOATS = tuple(t for t in TYPES if is_float(t))
PLAIN_FLOATS = tuple(t for t in FLOATS if not is_float8(t))
INTEGERS = tuple(t for t in TYPES if not is_float(t) and t != "bool")
NUMBERS = FLOATS + INTEGERS
SIGNED = tuple(t for t in NUMBERS if not t.startswith("uint"))
SIZE = 1024


@pytest.fixture(autouse=True)
def quiet():
    """NumPy warns of the infinities and NaN that are the point here."""
    with np.errstate(all="ignore"):
        yield


def sample(dtype: str, seed: int, divisor: bool = False) -> np.ndarray:
    """Random bits, half of them replaced by numbers where something happens."""
    random = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return random.integers(0, 2, SIZE).astype(bool)
    bits = random.integers(0, 256, SIZE * kind.itemsize, dtype=np.uint8).view(kind)
    half, quarter = SIZE // 2, SIZE // 4
    if dtype in INTEGERS:
        width = 8 * kind.itemsize
        edges = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, -1, -2, -3]
        edges += [2 ** (width - 1) + step for step in (-2, -1, 0, 1)]
        words = np.array([edge % 2**width for edge in edges], f"u{kind.itemsize}")
        bits[:half] = random.choice(words.view(kind), half)
        return bits
    edges = [0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, 2.5, -2.5, 0.49999997]
    edges += [8388609] if divisor else [8388609, 1e-40, -1e-40, 3e38]
    with np.errstate(all="ignore"):
        bits[:quarter] = random.choice(np.array(edges).astype(kind), quarter)
        bits[quarter:half] = (random.standard_normal(quarter) * 10).astype(kind)
        if divisor:
            tiny = np.abs(bits.astype(np.float64)) < float(ml_dtypes.finfo(kind).tiny)
            bits[tiny] = 0
    return bits


@dataclass(frozen=True)
class Case:
    """An operation at given dtypes, and what JAX calls it."""

    name: str
    function: Callable
    operands: tuple[str, ...]
    result: str
    params: dict = field(default_factory=dict)

    def arguments(self) -> list[np.ndarray]:
        found = [
            sample(dtype, seed, self.name == "rem" and seed == 1)
            for seed, dtype in enumerate(self.operands)
        ]
        if self.name == "select_n" and self.operands[0] == "int32":
            found[0] = found[0] % (len(found) - 1)
        return found


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bits; one NaN is as good as another, and a denormal as a zero."""
    if not is_float(a.dtype.name):
        return a == b
    bits = f"u{a.dtype.itemsize}"
    x, y = a.astype(np.float64), b.astype(np.float64)
    flushed = a.dtype.itemsize > 2 or a.dtype == numpy_dtype("bfloat16")
    least = float(ml_dtypes.finfo(a.dtype).tiny) if flushed else 0
    nothing = (np.abs(x) < least) & (np.abs(y) < least)
    return (a.view(bits) == b.view(bits)) | (np.isnan(x) & np.isnan(y)) | nothing


def unary(name, function, dtypes, result=None, **params):
    return [Case(name, function, (t,), result or t, params) for t in dtypes]


def binary(name, function, dtypes, result=None):
    return [Case(name, function, (t, t), result or t) for t in dtypes]


def conversions(before, after):
    return [
        Case(
            "convert_element_type",
            partial(lax.convert_element_type, new_dtype=numpy_dtype(b)),
            (a,),
            b,
        )
        for a in before
        for b in after
    ]


GROUPS = {
    "arithmetic": [
        case
        for name in ("add", "sub", "mul", "div", "rem", "max", "min")
        for case in binary(name, getattr(lax, name), NUMBERS)
    ]
    + binary("max", lax.max, ["bool"])
    + binary("min", lax.min, ["bool"]),
    "signs": [
        *unary("neg", lax.neg, NUMBERS),
        *unary("sign", lax.sign, NUMBERS),
        *unary("abs", lax.abs, SIGNED),
        *unary("square", lax.square, NUMBERS),
        *unary("is_finite", lax.is_finite, FLOATS, "bool"),
        *[Case("clamp", lax.clamp, (t, t, t), t) for t in NUMBERS],
    ],
    "rounding": [
        *unary("floor", lax.floor, FLOATS),
        *unary("ceil", lax.ceil, FLOATS),
        *unary("sqrt", lax.sqrt, FLOATS),
        *[
            case
            for method in lax.RoundingMethod
            for case in unary(
                "round",
                partial(lax.round, rounding_method=method),
                FLOATS,
                rounding_method=method,
            )
        ],
        *binary("nextafter", lax.nextafter, FLOATS),
    ],
    "powers": [
        case
        for power in (0, 3, 6, -3)
        for case in unary(
            "integer_pow",
            partial(lax.integer_pow, y=power),
            FLOATS if power < 0 else NUMBERS,
            y=power,
        )
    ],
    "comparisons": [
        case
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
        for case in binary(name, getattr(lax, name), TYPES, "bool")
    ],
    "bits": [
        *[
            case
            for name in ("and", "or", "xor")
            for case in binary(
                name, getattr(lax, f"bitwise_{name}"), (*INTEGERS, "bool")
            )
        ],
        *unary("not", lax.bitwise_not, (*INTEGERS, "bool")),
        *[
            case
            for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic")
            for case in binary(name, getattr(lax, name), INTEGERS)
        ],
        *unary("population_count", lax.population_count, INTEGERS),
        *unary("clz", lax.clz, INTEGERS),
        *[
            Case(
                "bitcast_convert_type",
                partial(lax.bitcast_convert_type, new_dtype=numpy_dtype(b)),
                (a,),
                b,
            )
            for a in NUMBERS
            for b in NUMBERS
            if itemsize(a) == itemsize(b) and is_float(a) != is_float(b)
        ],
    ],
    "reduced precision": [
        case
        for exponent, digits in ((5, 10), (8, 7), (4, 3), (8, 23), (3, 0), (2, 30))
        for case in unary(
            "reduce_precision",
            partial(lax.reduce_precision, exponent_bits=exponent, mantissa_bits=digits),
            PLAIN_FLOATS,
            exponent_bits=exponent,
            mantissa_bits=digits,
        )
    ],
    "selections": [
        *[Case("select_n", lax.select_n, ("bool", t, t), t) for t in TYPES],
        *[Case("select_n", lax.select_n, ("int32", t, t, t), t) for t in TYPES],
    ],
    "conversions from floats": conversions(FLOATS, TYPES),
    "conversions from integers": conversions((*INTEGERS, "bool"), TYPES),
}
if hasattr(lax, "mulhi"):
    GROUPS["bits"] += binary("mulhi", lax.mulhi, INTEGERS)

# What hosts and widths beside the first one are tried with.
FEWER = [
    case
    for group in ("arithmetic", "rounding", "bits", "conversions from floats")
    for case in GROUPS[group]
    if case.operands[0] in ("float32", "float16", "bfloat16", "int32", "int8", "uint16")
    or case.operands[0] == "float64" == case.result
]


@cache
def expected(group: str) -> list[np.ndarray]:
    """What XLA computes for every case of a group, in one program."""
    cases = GROUPS[group]
    # Equal arguments are one argument: a program with thousands takes long to call.
    keys = [[(a.dtype.name, a.tobytes()) for a in case.arguments()] for case in cases]
    distinct = sorted({key for row in keys for key in row})
    places = [[distinct.index(key) for key in row] for row in keys]
    arrays = [np.frombuffer(data, numpy_dtype(name)) for name, data in distinct]

    def all_cases(arrays):
        return [
            case.function(*(arrays[place] for place in row))
            for case, row in zip(cases, places, strict=True)
        ]

    with jax.enable_x64(True):
        return [np.asarray(out) for out in jax.jit(all_cases)(arrays)]


def compare(kernels: Kernels, pairs) -> None:
    pairs = list(pairs)
    for number, (case, _) in enumerate(pairs):
        kernels.add_op(number, case.name, case.operands, case.result, case.params)
    for number, (case, want) in enumerate(pairs):
        arguments = case.arguments()
        got = kernels(number, *arguments)
        good = same_bits(got, want)
        if case.operands == ("bfloat16",) and case.result == "bool":
            # Whether a denormal is true is asked of its bits here, of a number that
            # counts as zero there.
            good |= np.abs(arguments[0].astype(np.float64)) < 2.0**-126
        if not good.all():
            at = int(np.argmin(good))
            operands = [a[at] for a in arguments]
            pytest.fail(f"{case}: {operands} gives {got[at]}, XLA {want[at]}")


@pytest.mark.parametrize("group", GROUPS)
def test_vectors_give_what_xla_gives(group):
    kernels = Kernels(host_of("native"), flush=True)
    compare(kernels, zip(GROUPS[group], expected(group), strict=True))


def fewer(step: int):
    """Some cases, with what XLA gives for them."""
    for group, cases in GROUPS.items():
        for number, (case, want) in enumerate(zip(cases, expected(group), strict=True)):
            if case in FEWER and number % step == 0:
                yield case, want


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_without_wide_vectors_give_the_same(name):
    compare(Kernels(host_of(name), flush=True), fewer(1))


@pytest.mark.parametrize("lanes", [4, 8])
def test_other_lane_counts_give_the_same(lanes):
    compare(Kernels(host_of("native", lanes), flush=True), fewer(5))


@pytest.mark.parametrize("name", ["native", *HOSTS[-1:]])
def test_scalars_give_the_same(name):
    compare(Kernels(host_of(name), scalar=True, flush=True), fewer(3))
