"""Tiles of attention that are legal on a target, and what each moves and computes."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.kernels.attention import AttentionConfig
from tilejax.lowering.kernels.room import (
    alignment,
    room,
    takes,
    worth_packing,
)
from tilejax.lowering.kernels.tiles import (
    accumulator,
    block_bytes,
    candidates,
    ceil_div,
)
from tilejax.targets import Cost, Target, Tiling, product_work, tiled_efficiency

_QUERIES = (16, 32, 64, 128, 256, 512, 1024)
_KEYS = (16, 32, 64, 128, 256, 512, 1024)
# Element-wise operations a score, beside its exponential: the scale, the running
# maximum and sum, the mask; and going back twice those of a change.
_A_SCORE = {False: 8, True: 20}


def attention_configs(
    target: Target,
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    mask: Any = None,
    *segments: Any,
    **params: Any,
) -> list[Tiling]:
    """Propose tiles for `attention`.

    **Arguments:**

    - `target`: The machine.
    - `q`, `k`, `v`, `bias`, `mask`, `segments`: The operands, or just their shapes and
      dtypes.
    - `params`: The other parameters of `attention`.

    **Returns:**

    A `Tiling` for each config that fits; none where the target cannot compile the
    dtypes or no tile fits.

        >>> import jax, tilejax.targets
        >>> q = jax.ShapeDtypeStruct((1, 8, 4096, 128), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> best = tilejax.targets.fastest(v5e, attention_configs(v5e, q, q, q))
        >>> best.config.queries >= 256
        True
    """
    del segments
    return [
        _forward(config, target, (q, k, v, bias, mask), params)
        for config in _legal(target, q, k, v, bias, mask, backward=False)
    ]


def attention_backward_configs(
    target: Target,
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    mask: Any = None,
    *others: Any,
    **params: Any,
) -> list[Tiling]:
    """Propose tiles for `attention_backward`.

    **Arguments:**

    - As of `attention_configs`; `others` are the rest of the operands.

    **Returns:**

    A `Tiling` for each config that suits each of its kernels, for all of them.

        >>> import jax, tilejax.targets
        >>> q = jax.ShapeDtypeStruct((1, 8, 4096, 128), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> found = attention_backward_configs(v5e, q, q, q)
        >>> tilejax.targets.fastest(v5e, found).config.keys >= 128
        True
    """
    del others
    return [
        _backward(config, target, (q, k, v, bias, mask), params)
        for config in _legal(target, q, k, v, bias, mask, backward=True)
    ]


def _legal(target, q, k, v, bias, mask, backward) -> Iterable[AttentionConfig]:
    operands = [x for x in (q, k, v, bias) if x is not None]
    if not takes(target, [x.dtype for x in operands]):
        return
    if 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return
    row, column = alignment(target, q.dtype)
    for x in (bias, mask):
        if x is not None:
            # The kernel reads a mask as bytes, of which a tile holds the most rows.
            dtype = jnp.int8 if x.dtype == jnp.bool_ else x.dtype
            row = max(row, alignment(target, dtype)[0])
    rows, columns = (worth_packing(target, t, 64) for t in (_QUERIES, _KEYS))
    queries = candidates(q.shape[2], [t for t in rows if t % row == 0], row)
    keys = candidates(k.shape[2], [t for t in columns if t % column == 0], column)
    for tile in itertools.product(queries, keys):
        config = AttentionConfig(*tile)
        if attention_bytes(config, q, v, bias, mask, backward) <= room(target):
            yield config


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


def _forward(config, target, operands, params: Mapping) -> Tiling:
    q, k, v, bias, mask = operands
    walk = _Walk(config, q, k, params)
    item = q.dtype.itemsize
    width = q.shape[3] + v.shape[3]
    # The tile of keys changes at each step, unless there is one: then a head's stays.
    loads = walk.query_tiles if walk.key_tiles > 1 else q.shape[0] * k.shape[1]
    read = walk.rows * q.shape[3] * item + loads * k.shape[2] * width * item
    read += walk.scores * _score_bytes(bias, mask)
    wrote = walk.rows * (v.shape[3] * item + 4)
    return walk.tiling(target, params, (read, wrote), width, walk.query_tiles)


def _backward(config, target, operands, params: Mapping) -> Tiling:
    q, k, v, bias, mask = operands
    walk = _Walk(config, q, k, params)
    item = q.dtype.itemsize
    depth, width = q.shape[3], q.shape[3] + v.shape[3]
    keys = q.shape[0] * k.shape[1] * k.shape[2]
    scores = walk.scores * _score_bytes(bias, mask)
    # The sum of `o * do` a row; then dq walks rows as the forward pass does, and dk
    # with dv walks the tiles of keys, for each of which all queries come again.
    read = walk.rows * 2 * v.shape[3] * item
    loads = walk.query_tiles if walk.key_tiles > 1 else q.shape[0] * k.shape[1]
    read += walk.rows * width * item + loads * k.shape[2] * width * item + scores
    wrote = walk.rows * (depth * item + 16)
    read += walk.rows * walk.key_tiles * (width * item + 16)
    read += keys * width * item + scores
    wrote += keys * width * item
    calls, products = 3, 4 * depth + 3 * v.shape[3]
    if bias is not None:
        calls, products = 4, products + width
        read += scores + loads * k.shape[2] * width * item + walk.rows * width * item
        wrote += walk.rows * k.shape[2] * bias.dtype.itemsize
    blocks = min(walk.query_tiles, keys // k.shape[2] * walk.key_tiles)
    return walk.tiling(target, params, (read, wrote), products, blocks, calls)


class _Walk:
    """The tiles of scores of all heads, and which of them are computed at all."""

    def __init__(self, config: AttentionConfig, q: Any, k: Any, params: Mapping):
        batch, heads, queries, self.depth = q.shape
        keys = k.shape[2]
        self.config, self.dtype = config, q.dtype
        self.tile = (min(config.queries, queries), min(config.keys, keys))
        self.rows = batch * heads * queries
        self.scores = self.rows * keys
        rows = ceil_div(queries, self.tile[0])
        self.key_tiles = ceil_div(keys, self.tile[1])
        self.query_tiles = batch * heads * rows
        seen = sum(self._needed(row, params) for row in range(rows))
        self.share = max(1, seen) / (rows * self.key_tiles)
        self.sizes = (queries, keys)

    def _needed(self, row: int, params: Mapping) -> int:
        """How many tiles of keys a tile of queries has to look at."""
        first, window = row * self.tile[0], params.get("window")
        last = first + self.tile[0] - 1
        left, right = window or (None, None)
        if params.get("causal"):
            right = 0 if right is None else min(0, right)
        end = self.key_tiles
        if right is not None:
            end = min(end, (last + right) // self.tile[1] + 1)
        begin = 0 if left is None else max(0, (first - left) // self.tile[1])
        return max(0, end - begin)

    def tiling(self, target, params, moved, products, blocks, calls=1) -> Tiling:
        """Return the tiling, with `products` multiply-adds for each score."""
        backward = calls > 1
        passes = calls - 1 if backward else 1
        scores = self.scores * self.share
        exps = passes * (2 if params.get("soft_cap") is not None else 1)
        cost = Cost(
            product_work(
                2.0 * scores * products, self.dtype, target, params.get("precision")
            ),
            *moved,
            transcendentals=scores * exps,
            elementwise={str(accumulator(self.dtype)): scores * _A_SCORE[backward]},
        )
        return Tiling(
            self.config,
            cost,
            steps=passes * self.query_tiles * self.key_tiles,
            blocks=blocks,
            efficiency=self._efficiency(target),
            calls=calls,
        )

    def _efficiency(self, target: Target) -> float:
        """Return the share that is no padding, of the product that makes the scores."""
        sizes, tile = (*self.sizes, self.depth), (*self.tile, self.depth)
        return tiled_efficiency(sizes, tile, target, self.dtype) if self.depth else 1.0


def _score_bytes(bias, mask) -> int:
    return (0 if bias is None else bias.dtype.itemsize) + (0 if mask is None else 1)
