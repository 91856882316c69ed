"""Products of tiles, against float64 and int64, up to the ends of their memory."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.lowering.cpu.dots import Doubled, Guarded, expected, hosts, numbers, run

HOSTS = hosts()

DTYPES = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
    ("float8_e4m3fn", "float8_e5m2", "float32"),
    ("bfloat16", "float32", "float32"),
    ("float16", "bfloat16", "float64"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int8", "uint8", "int32"),
    ("uint8", "int8", "int32"),
    ("int16", "uint8", "int32"),
    ("uint16", "int16", "int32"),
    ("int32", "int32", "int32"),
    ("int8", "int8", "float32"),
    ("bool", "bool", "int32"),
]

# shape [M, N, K], layouts of a and b, and how it is run
CASES = [
    ((30, 70, 50), "CC", {}),
    ((1, 1, 1), "CC", {}),
    ((17, 33, 129), "CF", {"accumulate": True}),
    ((1, 75, 130), "FC", {"accumulate": True}),
    ((29, 40, 64), "FF", {"keep": True}),
    ((3, 1100, 11), "CF", {}),
    ((47, 19, 7), "FC", {"padded": True}),
    ((50, 3, 70), "FF", {"accumulate": True}),
    ((2, 45, 33), "CF", {"accumulate": True}),
    ((15, 100, 3), "CF", {"keep": True, "accumulate": True}),
    ((66, 1, 65), "CC", {}),
    ((9, 16, 1), "CF", {}),
    ((20, 90, 300), "CC", {"accumulate": True, "padded": True}),
]


def check(host, dtypes, shape, layouts, operand=None, seed=0, **options):
    """Run one product on memory that ends at a forbidden page; compare."""
    rng = np.random.default_rng(seed)
    (m, n, k), scale = shape, 1
    a = Guarded(numbers(rng, (m, k), dtypes[0], layouts[0])).array
    b = Guarded(numbers(rng, (n, k), dtypes[1], layouts[1])).array
    if operand is not None:
        options["operand"], scale = operand, 4
    # Rows of the output lie apart; padding may be written where it is said to be.
    wide = n + 37 if not options.get("padded") else -(-n // 16) * 16
    memory = Guarded(numbers(rng, (m, wide), dtypes[2])).array
    before = memory.copy()
    accumulate = options.get("accumulate", False)
    want, bound = expected(a, b, before[:, :n], accumulate=False)
    want = want * scale + before[:, :n] * accumulate
    run(host, a, b, memory[:, :n], **options)
    assert (np.abs(memory[:, :n] - want.astype(np.float64)) <= bound * scale).all()
    if not options.get("padded"):
        np.testing.assert_array_equal(memory[:, n:], before[:, n:])


@pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
@pytest.mark.parametrize("host", HOSTS)
def test_products_agree_with_wide_numbers(host, dtypes):
    first = 3 * DTYPES.index(dtypes) + 2 * list(HOSTS).index(host)
    for case in range(first, first + 3):
        shape, layouts, options = CASES[case % len(CASES)]
        check(HOSTS[host], dtypes, shape, layouts, **options)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_products_of_every_form_agree(case):
    shape, layouts, options = case
    check(HOSTS["native"], DTYPES[0], shape, layouts, **options)


SEEDS = count()


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 80)] * 2, st.integers(1, 150)),
    layouts=st.sampled_from(["CC", "CF", "FC", "FF"]),
    dtypes=st.sampled_from([DTYPES[0], DTYPES[2], DTYPES[7]]),
    accumulate=st.booleans(),
    keep=st.booleans(),
)
def test_products_of_random_shapes_agree(shape, layouts, dtypes, accumulate, keep):
    options = {"accumulate": accumulate, "keep": keep}
    check(HOSTS["native"], dtypes, shape, layouts, seed=next(SEEDS), **options)


@pytest.mark.parametrize("shape", [(40, 80, 70), (1, 80, 70), (40, 2, 33)], ids=str)
@pytest.mark.parametrize("layouts", ["CC", "FF"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_are_computed_where_they_are_read(shape, layouts, dtype):
    dtypes = (dtype, dtype, "float32")
    check(HOSTS["native"], dtypes, shape, layouts, operand=Doubled)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("size", [(256, 256), (512, 1024)], ids=str)
def test_rows_that_collide_in_a_cache_and_long_k_agree(host, size):
    n, k = size
    dtypes = DTYPES[0] if n == 256 else DTYPES[7]
    check(HOSTS[host], dtypes, (33, n, k), "CF", accumulate=True)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shape", [(3, 5, 0), (0, 5, 3), (3, 0, 4), (1, 1, 0)], ids=str)
def test_empty_products_are_zero_or_leave_what_is_added_to(shape, accumulate):
    m, n, k = shape
    a, b = np.ones((m, k), np.float32), np.ones((n, k), np.float32)
    out = np.full((m, n), 7, np.float32)
    run(HOSTS["native"], a, b, out, accumulate=accumulate)
    assert (out == (7 if accumulate else 0)).all()


@pytest.mark.parametrize("layouts", ["CC", "CF"])
@pytest.mark.parametrize("rows", [1, 21])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("host", ["native", "plain"])
def test_infinities_and_nan_spread_as_in_numpy(host, dtype, rows, layouts):
    if host not in HOSTS:
        pytest.skip("code for that CPU does not run here")
    rng = np.random.default_rng(3)
    a = numbers(rng, (rows, 37), dtype, layouts[0])
    b = numbers(rng, (35, 37), dtype, layouts[1])
    a[0, 5], a[0, 36], b[3, 5], b[9, 0], b[20, 36] = np.inf, -np.inf, 0, np.nan, np.inf
    out = np.zeros((rows, 35), np.float32)
    run(HOSTS[host], a, b, out)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(out), np.isposinf(want))
    np.testing.assert_array_equal(np.isneginf(out), np.isneginf(want))


@pytest.mark.parametrize("host", HOSTS)
def test_small_whole_numbers_in_bfloat16_are_summed_exactly(host):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 129, (s, 99)).astype(np.float32) for s in (31, 44))
    small = numbers(rng, (1, 1), "bfloat16").dtype
    out = np.zeros((31, 44), np.float32)
    run(HOSTS[host], a.astype(small), b.astype(small), out)
    np.testing.assert_array_equal(out, a @ b.T)


def test_sums_of_int8_wrap_around_only_past_int32():
    a = np.full((20, 4096), -128, np.int8)
    out = np.zeros((20, 40), np.int32)
    run(HOSTS["native"], a, np.full((40, 4096), -128, np.int8), out)
    assert (out == 4096 * 128 * 128).all()


def _negate(n, e, row, column, tail):
    return n.binary("fsub", n.constant(0), e)


@pytest.mark.parametrize("k", [0, 40, 700])
@pytest.mark.parametrize("rows", [1, 40])
def test_products_are_finished_once(rows, k):
    rng = np.random.default_rng(2)
    a, b = numbers(rng, (rows, k), "float32"), numbers(rng, (600, k), "float32", "F")
    memory = numbers(rng, (rows, 611), "float32")
    before, out = memory.copy(), memory[:, :600]
    run(HOSTS["native"], a, b, out, accumulate=True, finish=_negate)
    want, bound = expected(a, b, before[:, :600], accumulate=True)
    assert (np.abs(out + want) <= bound).all()
    np.testing.assert_array_equal(memory[:, 600:], before[:, 600:])


@pytest.mark.parametrize("rows", [3, 40])
def test_the_padding_of_a_single_column_is_not_that_of_rows(rows):
    rng = np.random.default_rng(4)
    a, b = numbers(rng, (rows, 33), "float32"), numbers(rng, (1, 66), "float32")[:, ::2]
    out = numbers(rng, (rows, 1), "float32")
    want, bound = expected(a, b, out, accumulate=True)
    run(HOSTS["native"], a, b, out, accumulate=True, padded=True)
    assert (np.abs(out - want) <= bound).all()


@pytest.mark.parametrize("dtypes", DTYPES[7:11], ids="-".join)
def test_quads_of_bytes_agree_in_narrow_vectors(dtypes):
    host = replace(HOSTS["native"], lanes=8)
    if not host.has("avx512vnni", "avx512vl"):
        pytest.skip("needs the 256-bit form of AVX-512 VNNI")
    check(host, dtypes, (19, 21, 70), "CF", accumulate=True)
