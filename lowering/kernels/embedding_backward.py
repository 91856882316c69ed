"""Gradients of lookups in a table, and of bags of them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.errors import DTypeError, ShapeError
from tilejax.lowering.kernels.embedding_bag import (
    CHOICES,
    bag_specs,
    bag_weights,
    check_bags,
    fetch_rows,
    in_bag_chunks,
)
from tilejax.lowering.kernels.gathering import (
    EmbeddingConfig,
    Gather,
    encode,
    wide_type,
)
from tilejax.lowering.kernels.scattering import add_rows
from tilejax.lowering.kernels.tiles import ceil_div, fit, float_like, keep_first


def embedding_grad(
    ids: jax.Array,
    ct: jax.Array,
    *,
    rows: int,
    out_of_range: str = "fill",
    out_dtype: Any = None,
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Pull a cotangent back through `embedding` to the table.

    The rows of `ct` that looked up the same row are added in the order in which they
    stand, in f32 (f64 for f64), so the result does not change from run to run.

    **Arguments:**

    - `ids`: `[n]`, as `embedding` got them.
    - `ct`: `[n, D]`, floats.
    - `rows`: Of the table.
    - `out_of_range`: As `embedding` got it; "clip" adds to the nearest row, "fill"
      drops.
    - `out_dtype`: Of the result; by default that of `ct`.
    - `config`: The tiles.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[rows, D]`.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError` for operands that do
    not fit.

        >>> ids, ct = jnp.array([1, 1, 0]), jnp.ones((3, 1))
        >>> embedding_grad(
        ...     ids, ct, rows=3, config=EmbeddingConfig(), interpret=True
        ... ).tolist()
        [[1.0], [2.0], [0.0]]
    """
    if ids.ndim != 1 or ct.ndim != 2 or ids.shape[0] != ct.shape[0]:
        raise ShapeError(
            f"embedding_grad takes ids[n] and ct[n, D], got {list(ids.shape)} and "
            f"{list(ct.shape)}"
        )
    if not float_like(ct.dtype):
        raise DTypeError(f"embedding_grad takes ct of floats, got {ct.dtype}")
    codes = encode(ids, rows, out_of_range, ("clip", "fill"))
    return add_rows(
        *(codes, jnp.arange(ids.size, dtype=jnp.int32), None, ct),
        rows=rows,
        out_dtype=ct.dtype if out_dtype is None else out_dtype,
        config=config,
        interpret=interpret,
    )


def embedding_bag_table_grad(
    ids: jax.Array,
    weights: jax.Array | None,
    ct: jax.Array,
    *,
    rows: int,
    mode: str = "sum",
    out_of_range: str = "fill",
    out_dtype: Any = None,
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Pull a cotangent back through `embedding_bag` to the table.

    A row of `ct` is fetched where it is needed; it is not repeated for each entry.

    **Arguments:**

    - `ids`, `weights`, `mode`, `out_of_range`: As `embedding_bag` got them.
    - `ct`: `[B, D]`, floats.
    - `rows`: Of the table.
    - The others as of `embedding_grad`.

    **Returns:**

    `[rows, D]`.

        >>> embedding_bag_table_grad(
        ...     jnp.array([[0, 1]]), None, jnp.ones((1, 1)), rows=3, mode="mean",
        ...     config=EmbeddingConfig(), interpret=True,
        ... ).tolist()
        [[0.5], [0.5], [0.0]]
    """
    check_bags((rows, ct.shape[-1]), ct.dtype, ids, weights, mode)
    _check_ct(ids, ct)
    codes = encode(ids, rows, out_of_range, CHOICES)
    entries = bag_weights(codes, weights, out_of_range, wide_type(ct.dtype))
    if mode == "mean":
        entries = _over_total(entries, entries)
    bag = jnp.arange(ids.shape[0], dtype=jnp.int32)
    plain = weights is None and mode == "sum"
    return add_rows(
        codes.reshape(-1),
        jnp.repeat(bag, ids.shape[1]),
        None if plain else entries.reshape(-1),
        ct,
        rows=rows,
        out_dtype=ct.dtype if out_dtype is None else out_dtype,
        config=config,
        interpret=interpret,
    )


def _check_ct(ids, ct):
    if ct.ndim != 2 or ids.shape[0] != ct.shape[0]:
        raise ShapeError(
            f"the cotangent of embedding_bag is [B, D] for ids[B, L], got "
            f"{list(ct.shape)} for {list(ids.shape)}"
        )


def _over_total(x, weights):
    """Divide by each bag's total weight; by zero gives zero."""
    total = weights.sum(axis=1, keepdims=True)
    none = total == 0
    return jnp.where(none, 0, x / jnp.where(none, 1, total))


def embedding_bag_weights_grad(
    table: jax.Array,
    ids: jax.Array,
    weights: jax.Array,
    ct: jax.Array,
    *,
    mode: str = "sum",
    out_of_range: str = "fill",
    config: EmbeddingConfig,
    interpret: Any = False,
) -> jax.Array:
    """Pull a cotangent back through `embedding_bag` to the weights.

    With `dot[b, l] = ct[b] @ table[ids[b, l]]`, the gradient of a sum is `dot`, and
    that of a mean `(dot - sum(w * dot) / sum(w)) / sum(w)`, sums over the bag.

    **Arguments:**

    - `table`, `ids`, `weights`, `mode`, `out_of_range`: As `embedding_bag` got them.
    - `ct`: `[B, D]`, floats.
    - The others as of `embedding_bag`.

    **Returns:**

    `[B, L]` of the weights' type.

        >>> table = jnp.arange(6.0).reshape(3, 2)
        >>> embedding_bag_weights_grad(
        ...     table, jnp.array([[2, 0]]), jnp.ones((1, 2)), jnp.ones((1, 2)),
        ...     config=EmbeddingConfig(), interpret=True,
        ... ).tolist()
        [[9.0, 1.0]]
    """
    check_bags(table.shape, table.dtype, ids, weights, mode)
    _check_ct(ids, ct)
    codes = encode(ids, table.shape[0], out_of_range, CHOICES)
    if 0 in (*table.shape, *ids.shape):
        missing = out_of_range == "fill" and not table.shape[0] and table.shape[1]
        return jnp.full(ids.shape, float("nan") if missing else 0, weights.dtype)
    drop = out_of_range == "drop"
    dots = in_bag_chunks(
        functools.partial(_dot_bags, table, config, interpret, drop), codes, ct
    )
    if mode == "mean":
        entries = bag_weights(codes, weights, out_of_range, dots.dtype)
        mean = _over_total((entries * dots).sum(axis=1, keepdims=True), entries)
        dots = _over_total(dots - mean, entries)
    if drop:
        dots = jnp.where(codes >= 0, dots, 0)
    return dots.astype(weights.dtype)


def _dot_bags(table, config: EmbeddingConfig, interpret, drop, codes, ct):
    gather = Gather.of(table, config)
    bags, length = codes.shape
    steps = ceil_div(bags, gather.count)
    padded = jnp.pad(codes, ((0, steps * gather.count - bags), (0, 0))).reshape(-1)
    held = fit(gather.count, bags)
    return pl.pallas_call(
        functools.partial(
            _dot_kernel, gather=gather, shape=(length, table.shape[1]), drop=drop
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(steps, length, ceil_div(table.shape[1], gather.columns)),
            in_specs=[
                *bag_specs(gather, length, lambda i, k, j: (i, j, k)),
                pl.BlockSpec((held, gather.columns), lambda i, k, j, _: (i, j)),
            ],
            out_specs=pl.BlockSpec((held, length), lambda i, k, j, _: (i, 0)),
            scratch_shapes=[
                *gather.scratch(),
                pltpu.VMEM((gather.count, gather.columns), gather.wide),
                pltpu.VMEM((held, length), gather.wide),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((bags, length), gather.wide),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary")
        ),
        interpret=interpret,
        name="embedding_bag_dots",
    )(padded, *[table] * gather.count, ct)


def _dot_kernel(codes_ref, *refs, gather: Gather, shape, drop):
    table_refs = refs[: gather.count]
    ct_ref, out_ref, stage_ref, rows_ref, dots_ref = refs[gather.count :]
    (length, columns), held = shape, pl.ds(0, ct_ref.shape[0])
    block, entry, tile = (pl.program_id(axis) for axis in range(3))
    last = pl.num_programs(2) - 1

    @pl.when((entry == 0) & (tile == 0))
    def _():
        dots_ref[...] = jnp.zeros_like(dots_ref)

    step = (block, entry, length)
    fetch_rows(
        *(codes_ref, table_refs, stage_ref, rows_ref, step), gather=gather, drop=drop
    )
    product = rows_ref[held, :] * ct_ref[...].astype(gather.wide)
    if columns % gather.columns:
        product = keep_first(product, 1, columns - tile * gather.columns)
    dots = jnp.sum(product, axis=1, keepdims=True)
    place = jax.lax.broadcasted_iota(jnp.int32, dots_ref.shape, 1)
    dots_ref[...] += jnp.where(place == entry, dots, jnp.zeros_like(dots))

    @pl.when((entry == length - 1) & (tile == last))
    def _():
        out_ref[...] = dots_ref[...]
