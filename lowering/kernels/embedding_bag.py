"""Weighted sums of looked-up rows, without storing the rows."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.lowering.kernels.gathering import (
    MOST_PREFETCHED,
    EmbeddingConfig,
    Gather,
    encode,
    fill_value,
    wide_type,
)
from tilejax.lowering.kernels.tiles import ceil_div, fit, float_like

CHOICES = ("clip", "fill", "drop")


def embedding_bag(
    table: jax.Array,
    ids: jax.Array,
    weights: jax.Array | None = None,
    *,
    mode: str = "sum",
    out_of_range: str = "fill",
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Look up bags of rows and add up each bag.

    The sum of a bag is `sum(weights[b, l] * table[ids[b, l]] for l)`, kept in f32 (f64
    for f64); its mean is that over the sum of its weights, and zero where that is zero.
    Without weights each is one.

    **Arguments:**

    - `table`: `[V, D]`, floats.
    - `ids`: `[B, L]`, integers.
    - `weights`: `[B, L]`, floats.
    - `mode`: "sum" or "mean".
    - `out_of_range`: "clip" takes the nearest row; "fill" makes the bag NaN; "drop"
      leaves the entry out, its weight too, so that -1 can fill up short bags.
    - `config`: The tiles; `rows` bags are summed at a time.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[B, D]` of the table's type.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError` for operands that do
    not fit.

        >>> table = jnp.arange(6.0).reshape(3, 2)
        >>> bags = jnp.array([[2, 0], [1, -1]])
        >>> embedding_bag(
        ...     *(table, bags), mode="mean", out_of_range="drop",
        ...     config=EmbeddingConfig(), interpret=True,
        ... ).tolist()
        [[2.0, 3.0], [2.0, 3.0]]
    """
    check_bags(table.shape, table.dtype, ids, weights, mode)
    codes = encode(ids, table.shape[0], out_of_range, CHOICES)
    if out_of_range == "clip" and not table.shape[0] and ids.size:
        raise ShapeError(f"embedding_bag cannot clip to a table {list(table.shape)}")
    weights = bag_weights(codes, weights, out_of_range, wide_type(table.dtype))
    shape = (ids.shape[0], table.shape[1])
    if 0 in (*shape, *ids.shape):
        return jnp.zeros(shape, table.dtype)
    if not table.shape[0]:
        fill = fill_value(table.dtype) if out_of_range == "fill" else 0
        return jnp.full(shape, fill, table.dtype)
    total = weights.sum(axis=1, keepdims=True) if mode == "mean" else None
    drop = out_of_range == "drop"
    return in_bag_chunks(
        functools.partial(_sum_bags, table, config, interpret, drop),
        *(codes, weights, total),
    )


def check_bags(table_shape, dtype, ids, weights, mode: str) -> None:
    """Refuse operands of a bag lookup that do not fit together.

    **Arguments:**

    - `table_shape`, `dtype`: Of the table.
    - `ids`, `weights`, `mode`: As of `embedding_bag`.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError`.
    """
    if len(table_shape) != 2 or ids.ndim != 2:
        raise ShapeError(
            f"embedding_bag takes table[V, D] and ids[B, L], got {list(table_shape)} "
            f"and {list(ids.shape)}"
        )
    if weights is not None and weights.shape != ids.shape:
        raise ShapeError(
            f"embedding_bag takes weights of the shape of ids {list(ids.shape)}, got "
            f"{list(weights.shape)}"
        )
    for name, kind in (("table", dtype), ("weights", getattr(weights, "dtype", dtype))):
        if not float_like(kind):
            raise DTypeError(f"embedding_bag takes {name} of floats, got {kind}")
    if mode not in ("sum", "mean"):
        raise ParameterError(f"embedding_bag takes mode sum or mean, got {mode!r}")


def bag_weights(codes, weights, out_of_range: str, dtype) -> jax.Array:
    """Return the weight of every entry of every bag.

    **Arguments:**

    - `codes`: `[B, L]`, as `encode` gives them.
    - `weights`: `[B, L]`, or None for ones.
    - `out_of_range`: With "drop" the entries with code -1 weigh nothing.
    - `dtype`: Of the result.

    **Returns:**

    `[B, L]`.

        >>> bag_weights(jnp.array([[0, -1]]), None, "drop", "float32").tolist()
        [[1.0, 0.0]]
    """
    weights = jnp.ones(codes.shape, dtype) if weights is None else weights.astype(dtype)
    if out_of_range != "drop":
        return weights
    return jnp.where(codes >= 0, weights, jnp.zeros_like(weights))


def in_bag_chunks(function, codes, *arrays) -> jax.Array:
    """Apply a function to as many bags at a time as fit into scalar memory.

    **Arguments:**

    - `function`: From codes and arrays of some bags to their result.
    - `codes`: `[B, L]`.
    - `arrays`: Whose first axis is that of the bags, or None.

    **Returns:**

    The results one after the other.
    """
    bags = max(8, MOST_PREFETCHED // codes.shape[1] // 8 * 8)
    parts = []
    for start in range(0, codes.shape[0], bags):
        part = [
            None if x is None else x[start : start + bags] for x in (codes, *arrays)
        ]
        parts.append(function(*part))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _sum_bags(table, config: EmbeddingConfig, interpret, drop, codes, weights, total):
    gather = Gather.of(table, config)
    bags, length = codes.shape
    steps = ceil_div(bags, gather.count)
    padded = jnp.pad(codes, ((0, steps * gather.count - bags), (0, 0))).reshape(-1)
    held = fit(gather.count, bags)
    totals = [] if total is None else [total]
    return pl.pallas_call(
        functools.partial(_kernel, gather=gather, length=length, drop=drop),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(steps, ceil_div(table.shape[1], gather.columns), length),
            in_specs=[
                *bag_specs(gather, length, lambda i, j, k: (i, j, k)),
                pl.BlockSpec((held, length), lambda i, j, k, _: (i, 0)),
                *[pl.BlockSpec((held, 1), lambda i, j, k, _: (i, 0)) for _ in totals],
            ],
            out_specs=pl.BlockSpec((held, gather.columns), lambda i, j, k, _: (i, j)),
            scratch_shapes=[
                *gather.scratch(),
                *[pltpu.VMEM((gather.count, gather.columns), gather.wide)] * 2,
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((bags, table.shape[1]), table.dtype),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
        name="embedding_bag",
    )(padded, *[table] * gather.count, weights, *totals)


def bag_specs(gather: Gather, length: int, place) -> list[pl.BlockSpec]:
    """Return the blocks that fetch one row for each of `gather.count` bags.

    **Arguments:**

    - `gather`: How rows are fetched.
    - `length`: Entries in a bag.
    - `place`: From a grid step to (block of bags, tile of columns, entry).

    **Returns:**

    Specs for as many copies of the table.
    """

    def number(slot, *step):
        *at, codes = step
        block, column, entry = place(*at)
        return codes[(block * gather.count + slot) * length + entry], column

    return gather.specs(number)


def fetch_rows(codes_ref, table_refs, stage_ref, rows_ref, step, *, gather, drop):
    """Bring the rows of one entry of each bag together.

    **Arguments:**

    - `codes_ref`: The prefetched codes.
    - `table_refs`, `stage_ref`: What `Gather.row` reads.
    - `rows_ref`: `[count, columns]`, where the rows go.
    - `step`: (block of bags, entry, entries in a bag).
    - `gather`, `drop`: How; and whether a code of -1 gives zeros, not NaN.
    """
    block, entry, length = step
    value = 0 if drop else fill_value(gather.dtype)
    missing = jnp.full((1, gather.columns), value, gather.wide)
    for slot, table_ref in enumerate(table_refs):
        code = codes_ref[(block * gather.count + slot) * length + entry]
        row = gather.row(table_ref, stage_ref, code)
        rows_ref[pl.ds(slot, 1), :] = jnp.where(code >= 0, row, missing)


def column_of(block: jax.Array, entry) -> jax.Array:
    """Read a column at a place known only at run time, which lanes cannot be read at.

    **Arguments:**

    - `block`: `[rows, columns]`.
    - `entry`: Which column.

    **Returns:**

    `[rows, 1]`.

        >>> column_of(jnp.array([[1.0, 2.0]]), 1).tolist()
        [[2.0]]
    """
    place = jax.lax.broadcasted_iota(jnp.int32, block.shape, 1)
    kept = jnp.where(place == entry, block, jnp.zeros_like(block))
    return jnp.sum(kept, axis=1, keepdims=True)


def _kernel(codes_ref, *refs, gather: Gather, length, drop):
    table_refs = refs[: gather.count]
    weights_ref, *total_refs, out_ref, stage_ref, rows_ref, sum_ref = refs[
        gather.count :
    ]
    block, entry = pl.program_id(0), pl.program_id(2)
    held = pl.ds(0, out_ref.shape[0])

    @pl.when(entry == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    step = (block, entry, length)
    fetch_rows(
        *(codes_ref, table_refs, stage_ref, rows_ref, step), gather=gather, drop=drop
    )
    sum_ref[held, :] += rows_ref[held, :] * column_of(weights_ref[...], entry)

    @pl.when(entry == length - 1)
    def _():
        result = sum_ref[held, :]
        for total_ref in total_refs:
            total = total_ref[...]
            none = total == 0
            result = jnp.where(none, 0, result / jnp.where(none, 1, total))
        out_ref[...] = result.astype(out_ref.dtype)
