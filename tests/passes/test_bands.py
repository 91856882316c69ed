"""Masks that compare rows with columns are read as bands, exactly; others are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.passes.raising import check_same
from tilejax._jax.jaxprs import consts, trace
from tilejax.passes.bands import Mask, MaskReader
from tilejax.passes.pipeline import run
from tilejax.passes.rules import Definitions

COMPARE = {"ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less}


def read(fn, *args):
    """Read the mask that the function returns, whose axes are rows and columns."""
    program, _ = run(trace(fn, *args)[0], ["inline", "fold", "simplify", "cse"])
    definitions = Definitions()
    for eqn in program.eqns:
        definitions.add(eqn)
    known = dict(zip(program.constvars, consts(program), strict=True))
    mask = Mask()
    MaskReader(definitions, known, 0, 1).read(program.outvars[0], (0, 1), mask)
    return mask


def seen(mask: Mask, rows: int, columns: int) -> np.ndarray:
    apart = np.arange(columns)[None] - np.arange(rows)[:, None]
    low = -np.inf if mask.low is None else mask.low
    high = np.inf if mask.high is None else mask.high
    return (low <= apart) & (apart <= high)


tests_of_index = st.tuples(
    st.sampled_from(sorted(COMPARE)),
    st.booleans(),
    st.integers(-4, 4),
    st.integers(-4, 4),
    st.sampled_from(["int32", "int8", "int16"]),
)


@settings(max_examples=30)
@given(
    st.integers(2, 6),
    st.integers(2, 6),
    st.lists(tests_of_index, min_size=1, max_size=3),
)
def test_a_conjunction_of_comparisons_is_the_band_that_it_says(rows, columns, tests):
    def fn(xp, compare):
        found = xp.ones((rows, columns), bool)
        for name, row_first, a, b, dtype in tests:
            row = xp.arange(rows, dtype=dtype)[:, None] + np.array(a, dtype)
            column = xp.arange(columns, dtype=dtype)[None] - np.array(b, dtype)
            sides = (row, column) if row_first else (column, row)
            found = found & compare[name](*sides)
        return found

    ours = {name: getattr(jnp, op.__name__) for name, op in COMPARE.items()}
    mask = read(lambda: fn(jnp, ours))
    assert mask.parts == ()
    assert np.array_equal(seen(mask, rows, columns), fn(np, COMPARE))


BANDS = {
    "tril": (lambda: jnp.tril(jnp.ones((4, 5), bool)), (None, 0)),
    "tril with an offset": (lambda: jnp.tril(jnp.ones((4, 5), bool), 2), (None, 2)),
    "constant indices": (
        lambda: np.arange(3, 7)[:, None] >= jnp.asarray(np.arange(5))[None],
        (None, 3),
    ),
    "all": (lambda: jnp.ones((4, 5), bool), (None, None)),
    "iota": (
        lambda: (
            jax.lax.broadcasted_iota(jnp.int32, (4, 5), 0)
            > jax.lax.broadcasted_iota(jnp.int32, (4, 5), 1)
        ),
        (None, -1),
    ),
    "transposed": (
        lambda: (jnp.arange(5)[:, None] <= jnp.arange(4)[None] + 1).T,
        (None, 1),
    ),
}


@pytest.mark.parametrize("case", BANDS)
def test_a_band_is_read_from(case):
    fn, band = BANDS[case]
    mask = read(fn)
    assert ((mask.low, mask.high), mask.parts) == (band, ())


OTHERS = {
    "unsigned numbers that wrap around": lambda: (
        jnp.arange(4, dtype=jnp.uint32)[:, None] - jnp.uint32(1)
        >= jnp.arange(5, dtype=jnp.uint32)[None]
    ),
    "small numbers that wrap around": lambda: (
        jnp.arange(4, dtype=jnp.int8)[:, None] + jnp.int8(126)
        >= jnp.arange(5, dtype=jnp.int8)[None] + jnp.int8(100)
    ),
    "numbers that a cast wraps around": lambda: (
        (jnp.arange(4)[:, None] + 254).astype(jnp.uint8)
        >= jnp.arange(5, dtype=jnp.uint8)[None]
    ),
    "floats": lambda: (
        jnp.arange(4, dtype=jnp.bfloat16)[:, None]
        >= jnp.arange(5, dtype=jnp.bfloat16)[None]
    ),
    "rows alone": lambda: jnp.broadcast_to(jnp.arange(4)[:, None] < 2, (4, 5)),
    "a row and its own offset": lambda: jnp.broadcast_to(
        jnp.arange(4)[:, None] < jnp.arange(4)[:, None] + 1, (4, 5)
    ),
    "twice the row": lambda: jnp.arange(4)[:, None] * 2 >= jnp.arange(5)[None],
    "the other way round": lambda: 3 - jnp.arange(4)[:, None] >= jnp.arange(5)[None],
    "equality": lambda: jnp.arange(4)[:, None] == jnp.arange(5)[None],
    "or": lambda: jnp.tril(jnp.ones((4, 5), bool)) | (jnp.arange(5) > 3),
    "not": lambda: ~jnp.tril(jnp.ones((4, 5), bool)),
    "nothing": lambda: jnp.zeros((4, 5), bool),
}


@pytest.mark.parametrize("case", OTHERS)
def test_no_band_is_read_from(case):
    mask = read(OTHERS[case])
    assert (mask.low, mask.high) == (None, None)
    assert len(mask.parts) >= 1


def test_a_constant_that_does_not_count_up_by_one_is_no_index():
    numbers = np.array([0, 2, 1, 3])
    mask = read(lambda: jnp.asarray(numbers)[:, None] >= jnp.arange(5)[None])
    assert len(mask.parts) == 1


def test_a_value_of_an_outer_trace_is_no_constant_to_look_at():
    where = jnp.arange(3)

    def fn(x, where):
        def inner(x):
            mask = where[:, None] >= jnp.arange(5)[None]
            return jax.nn.dot_product_attention(x, y, y, mask=mask[None, None])

        import tilejax

        return tilejax.jit(inner)(x)

    x, y = jnp.ones((1, 3, 1, 2)), jnp.arange(10.0).reshape(1, 5, 1, 2)
    check_same(fn, x, where)


@pytest.mark.parametrize("value", [True, False])
def test_scalars_and_rows_of_size_one_are_parts_without_a_place(value):
    mask = read(lambda p: jnp.tril(jnp.ones((4, 5), bool)) & p, value)
    assert mask.high == 0 and len(mask.parts) == 1
    assert all(axis is None for part in mask.parts for axis in part.axes)
