"""Lookup of rows in a table, for TPUs and what follows their model."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.errors import ShapeError
from tilejax.lowering.kernels.gathering import (
    MOST_PREFETCHED,
    EmbeddingConfig as EmbeddingConfig,
    Gather,
    encode,
    fill_value,
    wide_type,
)
from tilejax.lowering.kernels.tiles import ceil_div


def embedding(
    table: jax.Array,
    ids: jax.Array,
    *,
    out_of_range: str = "fill",
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Look up rows of a table.

    `table.at[ids].get(mode=out_of_range)`, except that negative numbers do not count
    from the end: they are out of range.

    **Arguments:**

    - `table`: `[V, D]`, of floats or of integers of up to 32 bits.
    - `ids`: `[n]`, integers.
    - `out_of_range`: "clip" takes the nearest row; "fill" gives NaN, or for integers
      the lowest value.
    - `config`: The tiles.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[n, D]` of the table's type.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError` for operands that do
    not fit.

        >>> table = jnp.arange(6.0).reshape(3, 2)
        >>> embedding(
        ...     table, jnp.array([2, 0]), config=EmbeddingConfig(), interpret=True
        ... ).tolist()
        [[4.0, 5.0], [0.0, 1.0]]
    """
    wide_type(table.dtype)
    if table.ndim != 2 or ids.ndim != 1:
        raise ShapeError(
            f"embedding takes table[V, D] and ids[n], got {list(table.shape)} and "
            f"{list(ids.shape)}"
        )
    codes = encode(ids, table.shape[0], out_of_range, ("clip", "fill"))
    if out_of_range == "clip" and not table.shape[0] and ids.size:
        raise ShapeError(f"embedding cannot clip to a table {list(table.shape)}")
    if 0 in (*table.shape, ids.size):
        shape = (ids.size, table.shape[1])
        return jnp.full(shape, fill_value(table.dtype), table.dtype)
    parts = [
        _lookup(table, codes[start : start + MOST_PREFETCHED], config, interpret)
        for start in range(0, ids.size, MOST_PREFETCHED)
    ]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _lookup(table, codes, config: EmbeddingConfig, interpret):
    gather = Gather.of(table, config)
    steps = ceil_div(codes.size, gather.count)
    padded = jnp.pad(codes, (0, steps * gather.count - codes.size))
    return pl.pallas_call(
        functools.partial(_kernel, gather=gather),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(steps, ceil_div(table.shape[1], gather.columns)),
            in_specs=gather.specs(
                lambda slot, i, j, codes: (codes[i * gather.count + slot], j)
            ),
            out_specs=pl.BlockSpec(
                (min(gather.count, codes.size), gather.columns), lambda i, j, _: (i, j)
            ),
            scratch_shapes=[
                *gather.scratch(),
                pltpu.VMEM((gather.count, gather.columns), gather.wide),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((codes.size, table.shape[1]), table.dtype),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=interpret,
        name="embedding",
    )(padded, *[table] * gather.count)


def _kernel(codes_ref, *refs, gather: Gather):
    *table_refs, out_ref, stage_ref, rows_ref = refs
    first = pl.program_id(0) * gather.count
    fill = jnp.full((1, gather.columns), fill_value(gather.dtype), gather.wide)
    for slot, table_ref in enumerate(table_refs):
        code = codes_ref[first + slot]
        row = gather.row(table_ref, stage_ref, code)
        rows_ref[pl.ds(slot, 1), :] = jnp.where(code >= 0, row, fill)
    out_ref[...] = rows_ref[pl.ds(0, out_ref.shape[0]), :].astype(out_ref.dtype)
