"""Strides of reshaped memory, against NumPy's."""

import math

import numpy as np
from hypothesis import given, strategies as st

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.strides import reshaped_strides

DIMENSIONS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 1, 2])), max_size=4
)


@given(DIMENSIONS, st.randoms(use_true_random=False))
def test_reshaped_strides_exist_where_numpy_need_not_copy(dimensions, random):
    shape, strides, step = [n for n, _ in dimensions], [], 1
    for size, spread in reversed(dimensions):
        strides.insert(0, step)
        step *= size * spread
    order = random.sample(range(len(shape)), len(shape))
    if random.random() < 0.3:
        shape, strides = ([x[d] for d in order] for x in (shape, strides))
    wanted, rest = [], math.prod(shape)
    while rest > 1:
        size = random.choice([k for k in range(2, rest + 1) if rest % k == 0])
        wanted += [size, *[1] * random.randint(0, 1)]
        rest //= size
    view = View("%p", "int8", tuple(shape), tuple(strides), 1, (None,) * len(shape))
    base = np.arange(step, dtype=np.int64)
    seen = np.lib.stride_tricks.as_strided(base, shape, [8 * s for s in strides])
    want = seen.reshape(wanted)
    found = reshaped_strides(view, wanted)
    assert (found is not None) == np.shares_memory(base, want)
    if found is not None:
        bytes_apart = [8 * s for s in found]
        got = np.lib.stride_tricks.as_strided(base, wanted, bytes_apart)
        np.testing.assert_array_equal(got, want)
