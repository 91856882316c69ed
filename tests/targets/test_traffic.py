"""Bytes that a tiled product moves, against a simulation of its loop."""

import math
from collections import Counter, OrderedDict

import pytest
from hypothesis import given, settings, strategies as st

from tilejax.errors import ParameterError
from tilejax.targets import Traffic, matmul_levels, matmul_traffic


def _blocks(size, tile):
    """Lengths of the tiles along an axis, the last one cut."""
    return [min(tile, size - start) for start in range(0, size, tile)]


def _simulate(m, n, k, tile_m, tile_n, tile_k, itemsizes, capacity):
    """Walk the grid; fetch a block unless it was the last one, or is cached."""
    moved, steps = Counter(), 0
    cache: OrderedDict = OrderedDict()
    current: dict = {}

    def touch(key, size):
        name = key[0]
        if current.get(name) == key:
            if key in cache:
                cache.move_to_end(key)
            return
        current[name] = key
        if key in cache:
            cache.move_to_end(key)
            return
        moved[name] += size
        if capacity is not None:
            cache[key] = size
            while sum(cache.values()) > capacity:
                cache.popitem(last=False)

    for i, rows in enumerate(_blocks(m, tile_m)):
        for j, cols in enumerate(_blocks(n, tile_n)):
            for step, depth in enumerate(_blocks(k, tile_k)):
                touch(("a", i, step), rows * depth * itemsizes[0])
                touch(("b", step, j), depth * cols * itemsizes[1])
                steps += 1
            moved["out"] += rows * cols * itemsizes[2]
    return Traffic(moved["a"], moved["b"], 0, moved["out"], steps)


SIZES = st.integers(1, 40)
TILES = st.integers(1, 12)
ITEMS = st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 3)
COUNTS = st.integers(1, 5)


@given(SIZES, SIZES, SIZES, TILES, TILES, TILES, ITEMS)
@settings(max_examples=150)
def test_a_scratchpad_moves_what_the_loop_moves(m, n, k, tm, tn, tk, items):
    counted = matmul_traffic(m, n, k, tm, tn, tk, items)
    assert counted == _simulate(m, n, k, tm, tn, tk, items, None)


@given(COUNTS, COUNTS, COUNTS, TILES, TILES, TILES, ITEMS, st.floats(1, 40))
@settings(max_examples=300)
def test_a_cache_moves_what_the_loop_moves(i, j, p, tm, tn, tk, items, share):
    # whole tiles, and a cache from the least possible to one that holds everything
    m, n, k = i * tm, j * tn, p * tk
    capacity = int(share * (tm * tk * items[0] + tk * tn * items[1]))
    counted = matmul_traffic(m, n, k, tm, tn, tk, items, capacity)
    assert counted == _simulate(m, n, k, tm, tn, tk, items, capacity)


@given(SIZES, SIZES, SIZES, TILES, TILES, TILES, ITEMS)
def test_a_cache_for_everything_reads_each_array_once(m, n, k, tm, tn, tk, items):
    room = 2 * (m * k * items[0] + k * n * items[1]) + 10**6
    counted = matmul_traffic(m, n, k, tm, tn, tk, items, room)
    assert (counted.a, counted.b) == (m * k * items[0], k * n * items[1])
    assert (counted.out, counted.out_read) == (m * n * items[2], 0)


@given(SIZES, SIZES, SIZES, TILES, TILES, TILES)
def test_a_larger_size_never_moves_less(m, n, k, tm, tn, tk):
    small = matmul_traffic(m, n, k, tm, tn, tk)
    for size in ((m + 1, n, k), (m, n + 1, k)):
        assert matmul_traffic(*size, tm, tn, tk).total >= small.total


@given(COUNTS, COUNTS, COUNTS, TILES, TILES, TILES, st.integers(1, 30))
def test_a_larger_cache_never_moves_more(i, j, p, tm, tn, tk, times):
    sizes, one = (i * tm, j * tn, p * tk), 2 * (tm * tk + tk * tn)
    small = matmul_traffic(*sizes, tm, tn, tk, fast_memory=times * one)
    large = matmul_traffic(*sizes, tm, tn, tk, fast_memory=(times + 1) * one)
    assert large.total <= small.total <= matmul_traffic(*sizes, tm, tn, tk).total


def test_by_hand():
    # 2 x 4 blocks of output, 8 steps along k: a is read 4 times, b twice
    moved = matmul_traffic(256, 512, 1024, 128, 128, 128, (2, 2, 4))
    assert moved.a == 4 * 256 * 1024 * 2 and moved.b == 2 * 1024 * 512 * 2
    assert moved.out == 256 * 512 * 4 and moved.steps == 2 * 4 * 8
    assert moved.read == moved.a + moved.b and moved.total == moved.read + moved.out
    # one step along k: a row of a stays while j runs
    assert matmul_traffic(256, 512, 64, 128, 128, 128).a == 256 * 64 * 2


@pytest.mark.parametrize("size", [(0, 4, 4), (4, 0, 4), (4, 4, 0), (0, 0, 0)])
def test_an_empty_product_reads_nothing_and_writes_its_zeros(size):
    m, n, k = size
    assert matmul_traffic(m, n, k, 2, 2, 2) == Traffic(0, 0, 0, m * n * 2, 0)


def test_four_bit_operands_take_half_a_byte():
    moved = matmul_traffic(8, 8, 8, 8, 8, 8, (0.5, 0.5, 4))
    assert (moved.a, moved.b, moved.out) == (32, 32, 256)


def test_a_tile_larger_than_the_array_is_the_array():
    assert matmul_traffic(3, 5, 7, 64, 64, 64) == matmul_traffic(3, 5, 7, 3, 5, 7)


def _simulate_levels(sizes, outer, inner, accumulator):
    """The inner level's operand reads, and the accumulator in and out, step by step."""
    moved = Counter()
    tile = (inner[0], inner[1], inner[2])
    for rows in _blocks(sizes[0], outer[0]):
        for cols in _blocks(sizes[1], outer[1]):
            for index, depth in enumerate(_blocks(sizes[2], outer[2])):
                one = _simulate(rows, cols, depth, *tile, (2, 2, accumulator), None)
                moved.update(a=one.a, b=one.b, out=one.out, steps=one.steps)
                moved["out_read"] += one.out if index else 0
    return Traffic(
        **{name: moved[name] for name in ("a", "b", "out_read", "out", "steps")}
    )


@given(COUNTS, COUNTS, COUNTS, *[st.integers(1, 3)] * 3, *[st.integers(1, 4)] * 3)
@settings(max_examples=60)
def test_two_levels_move_what_two_nested_loops_move(i, j, p, s, t, u, a, b, c):
    inner = (a, b, c)
    outer = (s * a, t * b, u * c)
    sizes = (i * outer[0], j * outer[1], p * outer[2])
    first, second = matmul_levels(*sizes, (outer, inner), (2, 2, 2), accumulator=4)
    assert first == matmul_traffic(*sizes, *outer)
    assert second == _simulate_levels(sizes, outer, inner, 4)
    assert second.steps == math.prod(
        size // tile for size, tile in zip(sizes, inner, strict=True)
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((-1, 4, 4, 2, 2, 2), r"sizes \(-1, 4, 4\) must not be negative"),
        ((4, 4, 4, 2, 0, 2), r"tiles \(2, 0, 2\) must be at least one"),
        (
            (4, 4, 4, 2, 2, 2, (2, 2, 2), 15),
            "blocks of 8 and 8 bytes do not both fit in",
        ),
    ],
)
def test_impossible_tiles_are_refused(args, message):
    with pytest.raises(ParameterError, match=message):
        matmul_traffic(*args)


@pytest.mark.parametrize("counts", [(3, 3, 2), (3, 1, 2), (2, 2, 3), (3, 1, 1)])
def test_a_cache_hits_from_the_very_byte_on_that_it_needs(counts):
    m, n, k = (4 * count for count in counts)
    # blocks of 16 bytes, so what can matter is one byte below each multiple of 16
    for blocks in range(2, 30):
        for capacity in (16 * blocks, 16 * blocks + 15):
            args = (m, n, k, 4, 4, 4, (1, 1, 1), capacity)
            assert matmul_traffic(*args) == _simulate(*args), capacity
