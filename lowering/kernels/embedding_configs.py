"""Tiles of lookups that are legal on a target, the most promising first."""

import itertools
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.gathering import EmbeddingConfig, wide_type
from tilejax.lowering.kernels.room import alignment, room, step_bytes, takes
from tilejax.lowering.kernels.tiles import block_bytes, candidates, ceil_div
from tilejax.targets import Target

_ROWS = (8, 16, 32)
_COLUMNS = (128, 256, 512, 1024, 2048)
_VOCABULARY = (64, 128, 256, 512, 1024)
_MOST = 32


def embedding_configs(
    target: Target, table: Any, ids: Any, **params: Any
) -> list[EmbeddingConfig]:
    """Propose tiles for `embedding`.

    **Arguments:**

    - `target`: The machine.
    - `table`, `ids`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters of `embedding`, which change nothing.

    **Returns:**

    Configs that fit the target's memory and alignment, by bytes moved plus steps; none
    where the target cannot compile the dtype.

        >>> import jax, tilejax.targets
        >>> table = jax.ShapeDtypeStruct((50000, 1024), "bfloat16")
        >>> ids = jax.ShapeDtypeStruct((4096,), "int32")
        >>> embedding_configs(tilejax.targets.get("tpu:v5e"), table, ids)[0].group
        16
    """
    del params
    return _propose(target, table, ids.shape[0], 1, blocks=1)


def embedding_bag_configs(
    target: Target, table: Any, ids: Any, *others: Any, **params: Any
) -> list[EmbeddingConfig]:
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
        >>> embedding_bag_configs(tilejax.targets.get("tpu:v5e"), table, ids)[0].group
        8
    """
    del others, params
    return _propose(target, table, ids.shape[0], ids.shape[1], blocks=4)


def embedding_grad_configs(
    target: Target, ids: Any, ct: Any, *, rows: int, **params: Any
) -> list[EmbeddingConfig]:
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
) -> list[EmbeddingConfig]:
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
    ranked = []
    for rows, group, columns in itertools.product(*_tiles(target, table)):
        config = EmbeddingConfig(rows, group, columns)
        held = block_bytes((rows, columns), wide_type(table.dtype))
        weights = 2 * block_bytes((rows, length), jnp.float32)
        out = 2 * block_bytes((rows, columns), table.dtype)
        used = _fetched(config, table.dtype) + blocks * (held + weights) + out
        steps = ceil_div(count, rows) * ceil_div(table.shape[1], columns) * length
        moved = rows * block_bytes((group, columns), table.dtype)
        if used <= room(target):
            ranked.append((steps * (moved + step_bytes(target)), config))
    return _best(ranked)


def _propose_grad(target, count, ct, vocabulary):
    if not takes(target, [ct.dtype]):
        return []
    align = alignment(target, ct.dtype)[0]
    blocks = candidates(vocabulary, _VOCABULARY, align)
    ranked = []
    for *tile, block in itertools.product(*_tiles(target, ct), blocks):
        config = EmbeddingConfig(*tile, vocabulary=block)
        out = block_bytes((block, config.columns), ct.dtype)
        total = block_bytes((block, config.columns), wide_type(ct.dtype))
        used = _fetched(config, ct.dtype) + 2 * out + total
        items = ceil_div(count, config.rows) + ceil_div(vocabulary, block)
        moved = config.rows * block_bytes((config.group, config.columns), ct.dtype)
        steps = items * ceil_div(ct.shape[1], config.columns)
        stored = ceil_div(vocabulary, block) * out
        if used <= room(target):
            ranked.append((steps * (moved + step_bytes(target)) + stored, config))
    return _best(ranked)


def _best(ranked):
    ranked.sort(key=lambda pair: pair[0])
    return [config for _, config in ranked[:_MOST]]
