"""Products, convolutions and lookups are raised and mean what they did."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import tilejax
from tests.passes.raising import check_same, raised, reasons
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text, walk
from tilejax.passes.pipeline import run
from tilejax.passes.raise_lax import raise_lax

AUTO = (jax.sharding.AxisType.Auto,) * 2


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


TABLE, A, B = numbers(5, 3), numbers(4, 2, 3), numbers(4, 3, 2, seed=1)
IDS = jnp.array([0, 4, 2, 2])
WILD = jnp.array([[-1, 4, 5], [-5, -6, 2]])


def primitives(fn, *args):
    after = tilejax.jit(fn).tile(*args).after
    return [visit.eqn.primitive.name for visit in walk(after)]


LOOKUPS = {
    "brackets": lambda t: t[IDS],
    "one number": lambda t: t[jnp.int32(3)],
    "negative and too large numbers": lambda t: t[WILD],
    "take": lambda t: jnp.take(t, WILD, axis=0),
    "take, clipping": lambda t: jnp.take(t, WILD, axis=0, mode="clip"),
    "take, filling": lambda t: jnp.take(t, WILD, axis=0, mode="fill", fill_value=0),
    "at": lambda t: t.at[WILD].get(mode="fill"),
    "at, promised": lambda t: t.at[IDS].get(mode="promise_in_bounds"),
    "unsigned numbers": lambda t: t[IDS.astype(jnp.uint8)],
    "a column": lambda t: t[:, 0][IDS],
    "rows of matrices": lambda t: t[None].repeat(5, 0)[IDS],
    "a table of integers": lambda t: jnp.take(
        (t * 9).astype(jnp.int32), WILD, axis=0
    ).astype(jnp.float32),
    "a map over numbers": lambda t: jax.vmap(lambda i: t[i])(WILD),
    "a map over tables": lambda t: jax.vmap(lambda t: t[IDS])(jnp.stack([t, 2 * t])),
    "a map over both": lambda t: jax.vmap(lambda t, i: t[i])(
        jnp.stack([t, 2 * t]), IDS.reshape(2, 2)
    ),
    "a map over columns": lambda t: jax.vmap(lambda c: c[IDS], 1, 1)(t),
    "a scan": lambda t: lax.scan(lambda c, i: (c, t[i]), 0, IDS)[1],
}


@pytest.mark.parametrize("case", LOOKUPS)
def test_a_lookup_is_the_same_with(case):
    check_same(LOOKUPS[case], TABLE)


# A single number is a slice to JAX, not a lookup.
SLICES = ("one number", "a scan")
# Rows of another dimension than the first, or of several tables.
OTHERS = ("a map over both", "a map over columns", "a map over tables", "a column")


@pytest.mark.parametrize("case", sorted({*LOOKUPS} - {*SLICES, *OTHERS}))
def test_a_lookup_is_raised_with(case):
    assert raised(LOOKUPS[case], TABLE) == {"embedding": 1}
    assert "gather" not in primitives(LOOKUPS[case], TABLE)


NOT_LOOKUPS = {
    "columns": lambda t: t[:, IDS % 3],
    "elements": lambda t: t[IDS, IDS % 3],
    "along an axis": lambda t: jnp.take_along_axis(t, jnp.argsort(t, 0), axis=0),
    "windows": lambda t: jax.vmap(lambda i: lax.dynamic_slice(t, (i, 0), (2, 3)))(IDS),
    "another fill": lambda t: jnp.take(t, WILD, axis=0, mode="fill", fill_value=7.0),
}


@pytest.mark.parametrize("case", NOT_LOOKUPS)
def test_no_lookup_is_raised_with(case):
    assert raised(NOT_LOOKUPS[case], TABLE) == {}
    check_same(NOT_LOOKUPS[case], TABLE)


PRODUCTS = {
    "vectors": lambda a, b: a[0, 0] @ b[0, :, 0],
    "a matrix and a vector": lambda a, b: a[0] @ b[0, :, 0],
    "matrices": lambda a, b: a[0] @ b[0],
    "batches": lambda a, b: a @ b,
    "an outer product": lambda a, b: jnp.einsum("i,j->ij", a[0, 0], b[0, :, 0]),
    "several sums": lambda a, b: jnp.einsum("bij,bjk->k", a, b),
    "a batch in the middle": lambda a, b: jnp.einsum("bij,cji->icb", a, b),
    "nothing summed": lambda a, b: jnp.einsum("bij,bji->bij", a, b),
    "half": lambda a, b: a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16),
    "half to single": lambda a, b: lax.dot_general(
        a.astype(jnp.bfloat16),
        b.astype(jnp.bfloat16),
        (((2,), (1,)), ((0,), (0,))),
        preferred_element_type=jnp.float32,
    ),
    "the highest precision": lambda a, b: jnp.matmul(a, b, precision="highest"),
    "an empty sum": lambda a, b: a[:, :, :0] @ b[:, :0],
    "nothing": lambda a, b: a[:0] @ b[:0],
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_a_product_is_raised_of(case):
    found = primitives(PRODUCTS[case], A, B)
    assert "dot_general" not in found
    assert found.count("tiled_matmul") <= 2
    check_same(PRODUCTS[case], A, B, tolerance=3e-2 if "half" in case else 1e-5)


def test_integers_multiply_exactly():
    a, b = ((x * 50).astype(jnp.int8) for x in (A, B))

    def fn(a, b):
        return lax.dot_general(
            a, b, (((2,), (1,)), ((0,), (0,))), preferred_element_type=jnp.int32
        )

    assert "tiled_matmul" in primitives(fn, a, b)
    check_same(fn, a, b, tolerance=1e-12)


IMAGE, FILTERS = numbers(2, 7, 6, 4), numbers(3, 3, 4, 8, seed=1)
LAYOUT = ("NHWC", "HWIO", "NHWC")
CONVOLUTIONS = {
    "plain": {},
    "same": {"padding": "SAME", "window_strides": (2, 1)},
    "uneven and negative": {"padding": ((2, 0), (-1, 1))},
    "dilated": {"padding": "SAME", "rhs_dilation": (2, 1)},
    "transposed": {"padding": ((2, 2), (1, 2)), "lhs_dilation": (2, 2)},
    "grouped": {"feature_group_count": 2},
    "depthwise": {"feature_group_count": 4},
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_is_raised_that_is(case):
    given = {"window_strides": (1, 1), "padding": "VALID", **CONVOLUTIONS[case]}

    def fn(x, w):
        w = w[:, :, : 4 // given.get("feature_group_count", 1)]
        return lax.conv_general_dilated(x, w, dimension_numbers=LAYOUT, **given)

    assert raised(fn, IMAGE, FILTERS) == {"conv": 1}
    check_same(fn, IMAGE, FILTERS, tolerance=1e-4)


def test_what_has_no_tiled_form_says_so():
    assert "left gather: no tiled form" in reasons(NOT_LOOKUPS["columns"], TABLE)


def test_checkpoint_policies_know_a_raised_product_as_a_product():
    def fn(a, b):
        saves_dots = jax.checkpoint_policies.dots_saveable
        return jax.checkpoint(lambda a, b: jnp.sin(a @ b), policy=saves_dots)(a, b)

    check_same(fn, A, B)


def test_lookups_and_products_are_raised_over_manual_axes(eight_devices):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=AUTO)

    @jax.shard_map(mesh=mesh, in_specs=(P(), P("a")), out_specs=P("a"))
    def fn(table, ids):
        return table[ids] @ table.T

    ids = jax.device_put(jnp.arange(4), jax.NamedSharding(mesh, P("a")))
    table = jax.device_put(TABLE, jax.NamedSharding(mesh, P()))
    assert raised(fn, table, ids) == {"embedding": 1}
    assert "dot_general" not in primitives(fn, table, ids)
    check_same(fn, table, ids)


def test_raise_lax_is_golden(golden):
    def fn(table, ids, x, w):
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT)
        return table[ids] @ table.T, x

    given = (TABLE, IDS.astype(jnp.uint32), IMAGE, FILTERS)
    before, _ = run(trace(fn, *given)[0], ["inline", "fold", "simplify", "cse", "dce"])
    after = raise_lax(before)
    golden("raise_lax", as_text(after))
    assert raise_lax(after) is after
