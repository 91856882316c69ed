"""Adding rows up into a table, in an order that never changes and without races.

The row numbers are sorted first, so that the contributions to a block of table rows lie
together. The kernel then walks a list of items, each a block of the table and a stretch
of contributions to it, one item after the other; the items of a block are neighbours,
so it is summed in fast memory and stored once. A row's contributions are added in the
order in which they stand in the input. NaN in one row stays there, as it would not if a
one-hot product did the adding.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.gathering import (
    MOST_PREFETCHED,
    EmbeddingConfig,
    Gather,
)
from tilejax.lowering.kernels.tiles import ceil_div, fit


def add_rows(
    codes: jax.Array,
    source: jax.Array,
    weights: jax.Array | None,
    ct: jax.Array,
    *,
    rows: int,
    out_dtype: Any,
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Add weighted rows of one array to the rows of a table of zeros.

        zeros.at[codes].add(weights[:, None] * ct[source])

    **Arguments:**

    - `codes`: `[m]` int32, rows of the table; negative ones add nothing.
    - `source`: `[m]` int32, rows of `ct`.
    - `weights`: `[m]`, or None for ones.
    - `ct`: `[n, D]`.
    - `rows`: Of the table.
    - `out_dtype`: Of the result; the sums are kept in f32 (f64 for f64).
    - `config`: The tiles.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[rows, D]`.

        >>> add_rows(
        ...     jnp.array([1, 1, -1]), jnp.array([0, 1, 1]), None, jnp.ones((2, 1)),
        ...     rows=2, out_dtype="float32", config=EmbeddingConfig(), interpret=True,
        ... ).tolist()
        [[0.0], [2.0]]
    """
    if 0 in (rows, *ct.shape, codes.size):
        return jnp.zeros((rows, ct.shape[1]), out_dtype)
    key = jnp.where(codes < 0, rows, codes)
    order = jnp.argsort(key, stable=True)
    key, source = key[order], source[order]
    if weights is not None:
        weights = weights[order]
    if key.size <= MOST_PREFETCHED:
        return _add(key, source, weights, ct, rows, out_dtype, config, interpret)
    total = jnp.zeros((rows, ct.shape[1]), Gather.of(ct, config).wide)
    for start in range(0, key.size, MOST_PREFETCHED):
        part = slice(start, start + MOST_PREFETCHED)
        some = None if weights is None else weights[part]
        total += _add(
            *(key[part], source[part], some, ct),
            *(rows, total.dtype, config, interpret),
        )
    return total.astype(out_dtype)


def list_items(key: jax.Array, rows: int, block: int, stretch: int):
    """List what the kernel does, item after item.

    Every block of the table has an item, or it would not be stored, and as many as
    there are stretches of contributions that reach into it. Two neighbouring blocks may
    share a stretch, so there are at most as many items as blocks and stretches
    together; those that are left over come last, belong to the last block and add
    nothing.

    **Arguments:**

    - `key`: `[m]` sorted rows; `rows` and more for those to leave out.
    - `rows`: Of the table.
    - `block`: Rows of a block of the table.
    - `stretch`: Contributions in a stretch.

    **Returns:**

    For each item the block, the stretch, and the first and the end of the
    contributions of the stretch to take; int32.

        >>> [x.tolist() for x in list_items(jnp.array([0, 3, 3, 9]), 4, 2, 2)]
        [[0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0], [1, 2, 1, 0]]
    """
    blocks, stretches = ceil_div(rows, block), ceil_div(key.size, stretch)
    edges = jnp.minimum(jnp.arange(blocks + 1) * block, rows)
    starts = jnp.searchsorted(key, edges).astype(jnp.int32)
    begin, end = starts[:-1], starts[1:]
    count = jnp.maximum(-(-end // stretch) - begin // stretch, 1)
    after = jnp.cumsum(count)
    item = jnp.arange(blocks + stretches)
    owner = jnp.minimum(jnp.searchsorted(after, item, side="right"), blocks - 1)
    piece = begin[owner] // stretch + item - (after - count)[owner]
    first = jnp.maximum(begin[owner] - piece * stretch, 0)
    last = jnp.clip(end[owner] - piece * stretch, 0, stretch)
    piece = jnp.minimum(piece, stretches - 1)
    return tuple(x.astype(jnp.int32) for x in (owner, piece, first, last))


def _add(key, source, weights, ct, rows, out_dtype, config, interpret):
    gather = Gather.of(ct, config)
    block = fit(config.vocabulary, rows)
    items = list_items(key, rows, block, gather.count)
    missing = -key.size % gather.count
    scalars = [key, source] if weights is None else [key, source, weights]
    scalars = [jnp.pad(x, (0, missing)) for x in scalars]
    prefetched = [*items, *scalars]

    def number(slot, j, t, *refs):
        piece_ref, source_ref = refs[1], refs[5]
        return source_ref[piece_ref[t] * gather.count + slot], j

    return pl.pallas_call(
        functools.partial(_kernel, gather=gather, scalars=len(scalars)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(prefetched),
            grid=(ceil_div(ct.shape[1], gather.columns), items[0].size),
            in_specs=gather.specs(number),
            out_specs=pl.BlockSpec(
                (block, gather.columns), lambda j, t, owner_ref, *_: (owner_ref[t], j)
            ),
            scratch_shapes=[
                *gather.scratch(),
                pltpu.VMEM((block, gather.columns), gather.wide),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((rows, ct.shape[1]), out_dtype),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary")
        ),
        interpret=interpret,
        name="embedding_add_rows",
    )(*prefetched, *[ct] * gather.count)


def _kernel(*refs, gather: Gather, scalars: int):
    owner_ref, piece_ref, first_ref, last_ref = refs[:4]
    key_ref, source_ref, *weight_refs = refs[4 : 4 + scalars]
    *ct_refs, out_ref, stage_ref, sum_ref = refs[4 + scalars :]
    item = pl.program_id(1)
    ends = pl.num_programs(1) - 1
    owner = owner_ref[item]
    before = owner_ref[jnp.maximum(item - 1, 0)]
    behind = owner_ref[jnp.minimum(item + 1, ends)]

    @pl.when((item == 0) | (before != owner))
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    base = piece_ref[item] * gather.count
    for slot, ct_ref in enumerate(ct_refs):

        @pl.when((slot >= first_ref[item]) & (slot < last_ref[item]))
        def _(slot=slot, ct_ref=ct_ref):
            at = base + slot
            row = gather.row(ct_ref, stage_ref, source_ref[at])
            for weight_ref in weight_refs:
                row = row * weight_ref[at]
            place = pl.ds(key_ref[at] - owner * sum_ref.shape[0], 1)
            sum_ref[place, :] += row

    @pl.when((item == ends) | (behind != owner))
    def _():
        out_ref[...] = sum_ref[...].astype(out_ref.dtype)
