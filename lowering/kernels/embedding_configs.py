"""Tiles of lookups that are legal on a target, and what each moves."""

import itertools
import math
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.gathering import (
    MOST_PREFETCHED,
    EmbeddingConfig,
    wide_type,
)
from tilejax.lowering.kernels.room import alignment, room, takes
from tilejax.lowering.kernels.tiles import block_bytes, candidates, ceil_div
from tilejax.targets import Cost, Target, Tiling

_ROWS = (8, 16, 32)
_COLUMNS = (128, 256, 512, 1024, 2048)
_VOCABULARY = (64, 128, 256, 512, 1024)


def embedding_configs(
    target: Target, table: Any, ids: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for `embedding`.

    **Arguments:**

    - `target`: The machine.
    - `table`, `ids`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters of `embedding`, which change nothing.

    **Returns:**

    A `Tiling` for each config that fits the target's memory and alignment; none where
    the target cannot compile the dtype.

        >>> import jax, tilejax.targets
        >>> table = jax.ShapeDtypeStruct((50000, 1024), "bfloat16")
        >>> ids = jax.ShapeDtypeStruct((4096,), "int32")
        >>> found = embedding_configs(tilejax.targets.get("tpu:v5e"), table, ids)
        >>> found[0].config.group
        16
    """
    del params
    return _propose(target, table, ids.shape[0], 1, blocks=1)


def embedding_bag_configs(
    target: Target, table: Any, ids: Any, *others: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for `embedding_bag` and for its weights' gradient.

    **Arguments:**

    - `target`: The machine.
    - `table`, `ids`: The operands, or just their shapes and dtypes.
    - `others`, `params`: The other operands and parameters, which change nothing.

    **Returns:**

    As `embedding_configs`.

        >>> import jax, tilejax.targets
        >>> table = jax.ShapeDtypeStruct((50000, 128), "float32")
        >>> ids = jax.ShapeDtypeStruct((512, 20), "int32")
        >>> found = embedding_bag_configs(tilejax.targets.get("tpu:v5e"), table, ids)
        >>> found[0].config.group
        8
    """
    del others, params
    return _propose(target, table, ids.shape[0], ids.shape[1], blocks=4)


def embedding_grad_configs(
    target: Target, ids: Any, ct: Any, *, rows: int, **params: Any
) -> list[Tiling]:
    """Propose tiles for `embedding_grad`.

    **Arguments:**

    - `target`: The machine.
    - `ids`, `ct`, `rows`: As of `embedding_grad`.
    - `params`: Its other parameters, which change nothing.

    **Returns:**

    As `embedding_configs`.

        >>> import jax, tilejax.targets
        >>> ids = jax.ShapeDtypeStruct((4096,), "int32")
        >>> ct = jax.ShapeDtypeStruct((4096, 1024), "float32")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> len(embedding_grad_configs(v5e, ids, ct, rows=50000)) > 0
        True
    """
    del params
    return _propose_grad(target, ids.shape[0], ct, rows)


def embedding_bag_table_grad_configs(
    target: Target, ids: Any, weights: Any, ct: Any, *, rows: int, **params: Any
) -> list[Tiling]:
    """Propose tiles for `embedding_bag_table_grad`.

    **Arguments:**

    - `target`: The machine.
    - `ids`, `weights`, `ct`, `rows`: As of `embedding_bag_table_grad`.
    - `params`: Its other parameters, which change nothing.

    **Returns:**

    As `embedding_configs`.

        >>> import jax, tilejax.targets
        >>> ids = jax.ShapeDtypeStruct((512, 8), "int32")
        >>> ct = jax.ShapeDtypeStruct((512, 128), "float32")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> len(embedding_bag_table_grad_configs(v5e, ids, None, ct, rows=5000)) > 0
        True
    """
    del weights, params
    return _propose_grad(target, ids.shape[0] * ids.shape[1], ct, rows)


def _tiles(target, array):
    """Return (rows, group, columns) to try for an array whose rows are fetched."""
    align = alignment(target, array.dtype)
    group = align[0] if target.kind == "tpu" else 1
    rows = [tile for tile in _ROWS if tile % align[0] == 0] or [align[0]]
    return rows, [group], candidates(array.shape[1], _COLUMNS, align[1])


def _fetched(config: EmbeddingConfig, dtype) -> int:
    """Return the bytes of two buffers of every fetched group, and of the scratch."""
    group = block_bytes((config.group, config.columns), dtype)
    wide = block_bytes((config.group, config.columns), wide_type(dtype))
    return 2 * config.rows * group + wide


def _propose(target, table, count, length, blocks):
    if not takes(target, [table.dtype]):
        return []
    found = []
    for rows, group, columns in itertools.product(*_tiles(target, table)):
        config = EmbeddingConfig(rows, group, columns)
        held = block_bytes((rows, columns), wide_type(table.dtype))
        weights = 2 * block_bytes((rows, length), jnp.float32)
        out = 2 * block_bytes((rows, columns), table.dtype)
        used = _fetched(config, table.dtype) + blocks * (held + weights) + out
        if used <= room(target):
            found.append(_lookup(config, table, count, length))
    return found


def _lookup(config, table, count: int, length: int) -> Tiling:
    """Count what a step fetches: for each row the group that it is in."""
    blocks = ceil_div(count, config.rows) * ceil_div(table.shape[1], config.columns)
    group = block_bytes((config.group, config.columns), table.dtype)
    fetched = blocks * length * config.rows * group + 4 * count * length
    size = float(count * table.shape[1])
    work = {str(wide_type(table.dtype)): 2 * size * length} if length > 1 else {}
    return Tiling(
        config,
        Cost({}, fetched, size * table.dtype.itemsize, elementwise=work),
        steps=blocks * length,
        blocks=blocks,
        calls=ceil_div(count * length, MOST_PREFETCHED),
    )


def _propose_grad(target, count, ct, vocabulary):
    if not takes(target, [ct.dtype]):
        return []
    align = alignment(target, ct.dtype)[0]
    blocks = candidates(vocabulary, _VOCABULARY, align)
    found = []
    for *tile, block in itertools.product(*_tiles(target, ct), blocks):
        config = EmbeddingConfig(*tile, vocabulary=block)
        out = block_bytes((block, config.columns), ct.dtype)
        total = block_bytes((block, config.columns), wide_type(ct.dtype))
        used = _fetched(config, ct.dtype) + 2 * out + total
        if used <= room(target):
            found.append(_added(config, ct, count, vocabulary))
    return found


def _added(config, ct, count: int, vocabulary: int) -> Tiling:
    """Count the walk over blocks of the table, and sorting the row numbers before."""
    columns = ceil_div(ct.shape[1], config.columns)
    items = ceil_div(count, config.rows) + ceil_div(vocabulary, config.vocabulary)
    group = block_bytes((config.group, config.columns), ct.dtype)
    sort = 8 * count * max(1, math.ceil(math.log2(count)))
    fetched = items * columns * config.rows * group
    return Tiling(
        config,
        Cost(
            {},
            fetched + sort,
            float(vocabulary * ct.shape[1] * ct.dtype.itemsize + sort),
            elementwise={str(wide_type(ct.dtype)): 2.0 * count * ct.shape[1]},
        ),
        steps=items * columns,
        blocks=columns,
        calls=1 + ceil_div(count, MOST_PREFETCHED),
    )
