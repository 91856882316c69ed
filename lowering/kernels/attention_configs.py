"""Tiles of attention that are legal on a target, the most promising first."""

import itertools
import math
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.attention import AttentionConfig
from tilejax.lowering.kernels.room import alignment, room, step_bytes, takes
from tilejax.lowering.kernels.tiles import (
    accumulator,
    block_bytes,
    candidates,
    ceil_div,
)
from tilejax.targets import Target

_QUERIES = (16, 32, 64, 128, 256, 512, 1024)
_KEYS = (16, 32, 64, 128, 256, 512, 1024)
_MOST = 32


def attention_configs(
    target: Target,
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    mask: Any = None,
    *segments: Any,
    **params: Any,
) -> list[AttentionConfig]:
    """Propose tiles for `attention`.

    **Arguments:**

    - `target`: The machine.
    - `q`, `k`, `v`, `bias`, `mask`, `segments`: The operands, or just their shapes and
      dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    Up to 32 configs that fit, by bytes moved plus steps; none where the target cannot
    compile the dtypes or no tile fits.

        >>> import jax, tilejax.targets
        >>> q = jax.ShapeDtypeStruct((1, 8, 4096, 128), "bfloat16")
        >>> attention_configs(tilejax.targets.get("tpu:v5e"), q, q, q)[0].queries >= 256
        True
    """
    del segments, params
    return _propose(target, q, k, v, bias, mask, backward=False)


def attention_backward_configs(
    target: Target,
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    mask: Any = None,
    *others: Any,
    **params: Any,
) -> list[AttentionConfig]:
    """Propose tiles for `attention_backward`.

    **Arguments:**

    - As of `attention_configs`; `others` are the rest of the operands.

    **Returns:**

    Configs that suit each of its kernels.

        >>> import jax, tilejax.targets
        >>> q = jax.ShapeDtypeStruct((1, 8, 4096, 128), "bfloat16")
        >>> target = tilejax.targets.get("tpu:v5e")
        >>> attention_backward_configs(target, q, q, q)[0].keys >= 128
        True
    """
    del others, params
    return _propose(target, q, k, v, bias, mask, backward=True)


def _propose(target, q, k, v, bias, mask, backward):
    operands = [x for x in (q, k, v, bias) if x is not None]
    if not takes(target, [x.dtype for x in operands]):
        return []
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return []
    row, column = alignment(target, q.dtype)
    for x in (bias, mask):
        if x is not None:
            # The kernel reads a mask as bytes, of which a tile holds the most rows.
            dtype = jnp.int8 if x.dtype == jnp.bool_ else x.dtype
            row = max(row, alignment(target, dtype)[0])
    queries = candidates(q.shape[2], [t for t in _QUERIES if t % row == 0], row)
    keys = candidates(k.shape[2], [t for t in _KEYS if t % column == 0], column)
    legal = [
        AttentionConfig(*tile)
        for tile in itertools.product(queries, keys)
        if attention_bytes(AttentionConfig(*tile), q, v, bias, mask, backward)
        <= room(target)
    ]
    step = step_bytes(target)
    legal.sort(key=lambda config: _cost(config, target, q, k, v, step))
    return legal[:_MOST]


def attention_bytes(
    config: AttentionConfig, q: Any, v: Any, bias: Any, mask: Any, backward: bool
) -> int:
    """Return the bytes that the blocks of the largest kernel occupy.

    **Arguments:**

    - `config`: The tile.
    - `q`, `v`, `bias`, `mask`: The operands, or just their shapes and dtypes.
    - `backward`: Whether it is for the backward pass.

    **Returns:**

    Two buffers of each block that is moved, the sums, and the tiles of scores that a
    step works with.
    """
    dtype = accumulator(q.dtype)
    tile = (config.queries, config.keys)
    query = block_bytes((config.queries, q.shape[3]), q.dtype)
    key = block_bytes((config.keys, q.shape[3]), q.dtype)
    value = block_bytes((config.keys, v.shape[3]), v.dtype)
    output = block_bytes((config.queries, v.shape[3]), q.dtype)
    statistic = block_bytes((config.queries, 1), dtype)
    moved = query + key + value + output + 3 * statistic
    moved += 0 if bias is None else block_bytes(tile, bias.dtype)
    moved += 0 if mask is None else block_bytes(tile, jnp.int8)
    working = block_bytes(tile, dtype) * (6 if backward else 4)
    if not backward:
        return 2 * moved + working + 2 * statistic + 2 * output
    sums = block_bytes((config.keys, q.shape[3]), dtype)
    sums += block_bytes((config.keys, v.shape[3]), dtype)
    bias_out = 0 if bias is None else 2 * block_bytes(tile, bias.dtype)
    return 2 * (moved + key + value) + working + sums + bias_out


def _cost(config, target, q, k, v, step):
    """Count bytes: keys and values come once for each tile of queries, and steps cost.

    Tiles of queries run side by side, in rounds of one a core.
    """
    batch, heads, queries, depth = q.shape
    tiles = batch * heads * ceil_div(queries, config.queries)
    steps = tiles * ceil_div(k.shape[2], config.keys)
    width = depth + v.shape[3]
    per_tile = (config.queries + k.shape[2]) * width * q.dtype.itemsize
    cores = target.cores or 1
    rounds = math.ceil(tiles / cores) * cores / tiles
    return (tiles * per_tile + steps * step) * rounds
