"""Tiles of the kernels over rows that are legal on a target, and what each moves."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilejax.lowering.kernels.cross_entropy import CrossEntropyConfig
from tilejax.lowering.kernels.group_norm import GroupNormConfig
from tilejax.lowering.kernels.norms import NormConfig
from tilejax.lowering.kernels.room import alignment, room, takes
from tilejax.lowering.kernels.softmax import SoftmaxConfig
from tilejax.lowering.kernels.tiles import (
    accumulator,
    block_bytes,
    candidates,
    ceil_div,
    round_up,
)
from tilejax.targets import Cost, Target, Tiling

_ROWS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_COLUMNS = (128, 256, 512, 1024, 2048, 4096, 8192)


def softmax_configs(target: Target, x: Any, **params: Any) -> list[Tiling]:
    """Propose tiles for `softmax`.

    **Arguments:**

    - `target`: The machine.
    - `x`: The operand, or just its shape and dtype.
    - `params`: The parameters of `softmax`, which change nothing here.

    **Returns:**

    A `Tiling` for each config that fits; none where the target cannot compile the dtype
    or no tile fits.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((4096, 1024), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> tilejax.targets.fastest(v5e, softmax_configs(v5e, x)).config.columns
        1024
    """
    del params
    return _softmax(target, x, _Pass(1, 1, work=4, exps=1))


def softmax_backward_configs(
    target: Target, y: Any, dy: Any = None, **params: Any
) -> list[Tiling]:
    """Propose tiles for `softmax_backward`.

    **Arguments:**

    - `target`: The machine.
    - `y`, `dy`: The operands, or just their shapes and dtypes.
    - `params`: The parameters of `softmax_backward`, which change nothing here.

    **Returns:**

    As `softmax_configs`.

        >>> import jax, tilejax.targets
        >>> y = jax.ShapeDtypeStruct((8, 2**21), "float32")
        >>> configs = softmax_backward_configs(tilejax.targets.get("tpu:v5e"), y)
        >>> all(tiling.config.columns < 2**21 for tiling in configs)  # no whole row
        True
    """
    del dy
    exps = 1 if params.get("log") else 0
    return _softmax(target, y, _Pass(2, 1, work=4, exps=exps))


def _softmax(target, x, whole: "_Pass"):
    found = []
    # A row in tiles is read once more, for its statistics.
    first = _Pass(whole.reads, 0, whole.work, whole.exps)
    arrays = whole.reads + whole.writes
    for tile in _row_tiles(target, x, arrays, statistics=2, whole=True):
        passes = (whole,) if tile[1] >= x.shape[1] else (first, whole)
        found.append(_tiling(SoftmaxConfig(*tile), x, tile, passes))
    return found


def cross_entropy_configs(
    target: Target, logits: Any, labels: Any = None, *others: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for `cross_entropy` and for its backward pass.

    **Arguments:**

    - `target`: The machine.
    - `logits`, `labels`, `others`: The operands of either, or just their shapes and
      dtypes; with `others` it is the backward pass, which writes as much as it reads.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    As `softmax_configs`.

        >>> import jax, tilejax.targets
        >>> logits = jax.ShapeDtypeStruct((4096, 50257), "bfloat16")
        >>> len(cross_entropy_configs(tilejax.targets.get("tpu:v5e"), logits)) > 8
        True
    """
    del labels, params
    one = _Pass(1, 1 if others else 0, work=6, exps=1)
    tiles = _row_tiles(target, logits, one.reads + one.writes, statistics=6)
    return [_tiling(CrossEntropyConfig(*tile), logits, tile, (one,)) for tile in tiles]


def norm_configs(target: Target, x: Any, *others: Any, **params: Any) -> list[Tiling]:
    """Propose tiles for `layer_norm` and `rms_norm`.

    **Arguments:**

    - `target`: The machine.
    - `x`, `others`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    A `Tiling` for each config that fits; none where the target cannot compile the dtype
    or not even the smallest block of whole rows fits.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((4096, 1024), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> tilejax.targets.fastest(v5e, norm_configs(v5e, x)).config.rows >= 64
        True
    """
    del others, params
    tiles = _row_tiles(target, x, 2, statistics=2, only_whole=True)
    one = _Pass(1, 1, work=8)
    return [_tiling(NormConfig(tile[0]), x, tile, (one,)) for tile in tiles]


def norm_backward_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for `layer_norm_backward` and `rms_norm_backward`.

    **Arguments:**

    - `target`: The machine.
    - `x`, `others`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    As `norm_configs`, each with one sum over the rows and with as many as keep the
    target's cores busy.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((4096, 1024), "bfloat16")
        >>> configs = norm_backward_configs(tilejax.targets.get("tpu:v4"), x)
        >>> sorted({tiling.config.splits for tiling in configs})
        [1, 2]
    """
    del others, params
    cores = 2 ** int(math.log2(target.cores or 1))
    one = _Pass(2, 1, work=14)
    found = []
    for tile in _row_tiles(target, x, 3, statistics=4, only_whole=True):
        splits = math.gcd(cores, ceil_div(x.shape[0], tile[0]))
        for each in sorted({1, splits})[::-1]:
            config = NormConfig(tile[0], each)
            # Its rows are walked in order, for the sums over them.
            found.append(_tiling(config, x, tile, (one,), blocks=each))
    return found


def group_norm_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for `group_norm`.

    **Arguments:**

    - `target`: The machine.
    - `x`, `others`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    As `norm_configs`, for blocks of positions with all their channels.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((8, 4096, 320), "bfloat16")
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> best = tilejax.targets.fastest(v5e, group_norm_configs(v5e, x))
        >>> best.config.positions >= 64
        True
    """
    del others, params
    return _group_norm(target, x, (_Pass(1, 0, work=7), _Pass(1, 1, work=4)))


def group_norm_backward_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[Tiling]:
    """Propose tiles for the backward pass of `group_norm`.

    **Arguments:**

    - `target`, `x`, `others`, `params`: As of `group_norm_configs`.

    **Returns:**

    As `group_norm_configs`.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((8, 4096, 320), "bfloat16")
        >>> len(group_norm_backward_configs(tilejax.targets.get("tpu:v5e"), x)) > 4
        True
    """
    del others, params
    return _group_norm(target, x, (_Pass(2, 0, work=6), _Pass(2, 1, work=9)))


def _group_norm(target, x, passes):
    arrays = max(one.reads + one.writes for one in passes)
    tiles = _row_tiles(target, x, arrays, statistics=6, only_whole=True)
    return [_tiling(GroupNormConfig(tile[0]), x, tile, passes) for tile in tiles]


@dataclass(frozen=True)
class _Pass:
    """One walk over arrays of one shape, and its arithmetic an element."""

    reads: int
    writes: int
    work: float
    exps: float = 0


def _tiling(config, x, tile, passes, blocks=None) -> Tiling:
    """State what passes over arrays like `x` do in tiles of rows and columns."""
    *batch, height, width = x.shape
    size = float(math.prod(x.shape))
    each = size * x.dtype.itemsize
    side_by_side = math.prod(batch) * ceil_div(height, tile[0])
    cost = Cost(
        {},
        sum(one.reads for one in passes) * each,
        sum(one.writes for one in passes) * each,
        sum(one.exps for one in passes) * size,
        {str(accumulator(x.dtype)): sum(one.work for one in passes) * size},
    )
    return Tiling(
        config,
        cost,
        steps=len(passes) * side_by_side * ceil_div(width, tile[1]),
        blocks=side_by_side if blocks is None else blocks,
        calls=len(passes),
    )


def _row_tiles(
    target: Target,
    x: Any,
    moved: int,
    statistics: int,
    whole: bool = False,
    only_whole: bool = False,
) -> Iterator[tuple[int, int]]:
    """List (rows, columns) of tiles that fit.

    `moved` arrays like `x` pass through fast memory, twice buffered, with two working
    copies in the accumulator's type and `statistics` columns of one number a row.
    """
    if not takes(target, [x.dtype]) or 0 in x.shape:
        return
    *_, height, width = x.shape
    dtype = accumulator(x.dtype)
    row_align, column_align = alignment(target, x.dtype)
    full = round_up(width, column_align)
    columns = [full] if only_whole else candidates(width, _COLUMNS, column_align)
    columns = sorted({*columns, full}) if whole else columns
    rows = candidates(height, [r for r in _ROWS if r % row_align == 0], row_align)

    def bytes_of(tile):
        row = 2 * block_bytes((tile[0], 1), dtype) * statistics
        each = 2 * moved * block_bytes(tile, x.dtype) + 2 * block_bytes(tile, dtype)
        return row + each

    for tile in itertools.product(rows, columns):
        if bytes_of(tile) <= room(target):
            yield tile
