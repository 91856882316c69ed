"""Tiles of the kernels over rows that are legal on a target, most promising first."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

from tilejax.lowering.kernels.cross_entropy import CrossEntropyConfig
from tilejax.lowering.kernels.group_norm import GroupNormConfig
from tilejax.lowering.kernels.norms import NormConfig
from tilejax.lowering.kernels.room import alignment, room, step_bytes, takes
from tilejax.lowering.kernels.softmax import SoftmaxConfig
from tilejax.lowering.kernels.tiles import (
    accumulator,
    block_bytes,
    candidates,
    ceil_div,
    round_up,
)
from tilejax.targets import Target

_ROWS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_COLUMNS = (128, 256, 512, 1024, 2048, 4096, 8192)
_MOST = 32


def softmax_configs(target: Target, x: Any, **params: Any) -> list[SoftmaxConfig]:
    """Propose tiles for `softmax`.

    **Arguments:**

    - `target`: The machine.
    - `x`: The operand, or just its shape and dtype.
    - `params`: The parameters of `softmax`, which change nothing here.

    **Returns:**

    Up to 32 configs that fit, by bytes moved plus steps; none where the target cannot
    compile the dtype or no tile fits.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((4096, 1024), "bfloat16")
        >>> softmax_configs(tilejax.targets.get("tpu:v5e"), x)[0].columns
        1024
    """
    del params
    return _softmax(target, x, moved=2)


def softmax_backward_configs(
    target: Target, y: Any, dy: Any = None, **params: Any
) -> list[SoftmaxConfig]:
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
        >>> all(config.columns < 2**21 for config in configs)  # no row fits whole
        True
    """
    del dy, params
    return _softmax(target, y, moved=3)


def _softmax(target, x, moved):
    def cost(rows, columns):
        # A row in tiles is read once more, for its statistics.
        again = 0 if columns >= x.shape[1] else moved - 1
        return (moved + again) / moved

    tiles = _row_tiles(target, x, moved, statistics=2, cost=cost, whole=True)
    return [SoftmaxConfig(*tile) for tile in tiles]


def cross_entropy_configs(
    target: Target, logits: Any, labels: Any = None, *others: Any, **params: Any
) -> list[CrossEntropyConfig]:
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
    tiles = _row_tiles(target, logits, 2 if others else 1, statistics=6)
    return [CrossEntropyConfig(*tile) for tile in tiles]


def norm_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[NormConfig]:
    """Propose tiles for `layer_norm` and `rms_norm`.

    **Arguments:**

    - `target`: The machine.
    - `x`, `others`: The operands, or just their shapes and dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    Up to 32 configs that fit; none where the target cannot compile the dtype or not
    even the smallest block of whole rows fits.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((4096, 1024), "bfloat16")
        >>> norm_configs(tilejax.targets.get("tpu:v5e"), x)[0].rows >= 64
        True
    """
    del others, params
    tiles = _row_tiles(target, x, 2, statistics=2, only_whole=True)
    return [NormConfig(rows) for rows, _ in tiles]


def norm_backward_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[NormConfig]:
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
        >>> sorted({config.splits for config in configs})
        [1, 2]
    """
    del others, params
    tiles = _row_tiles(target, x, 3, statistics=4, only_whole=True)
    cores = 2 ** int(math.log2(target.cores or 1))
    pairs = (
        NormConfig(rows, splits)
        for rows, _ in tiles
        for splits in sorted({1, math.gcd(cores, ceil_div(x.shape[0], rows))})[::-1]
    )
    return list(itertools.islice(pairs, _MOST))


def group_norm_configs(
    target: Target, x: Any, *others: Any, **params: Any
) -> list[GroupNormConfig]:
    """Propose tiles for `group_norm` and its backward pass.

    **Arguments:**

    - `target`: The machine.
    - `x`, `others`: The operands of either, or just their shapes and dtypes.
    - `params`: The other parameters, which change nothing here.

    **Returns:**

    As `norm_configs`, for blocks of positions with all their channels.

        >>> import jax, tilejax.targets
        >>> x = jax.ShapeDtypeStruct((8, 4096, 320), "bfloat16")
        >>> group_norm_configs(tilejax.targets.get("tpu:v5e"), x)[0].positions >= 64
        True
    """
    del others, params
    tiles = _row_tiles(target, x, 3, statistics=6, only_whole=True)
    return [GroupNormConfig(positions) for positions, _ in tiles]


def _row_tiles(
    target: Target,
    x: Any,
    moved: int,
    statistics: int,
    cost: Callable[[int, int], float] = lambda rows, columns: 1.0,
    whole: bool = False,
    only_whole: bool = False,
) -> Iterable[tuple[int, int]]:
    """List (rows, columns) of tiles that fit, cheapest first.

    `moved` arrays like `x` pass through fast memory, twice buffered, with two working
    copies in the accumulator's type and `statistics` columns of one number a row.
    """
    if not takes(target, [x.dtype]) or 0 in x.shape:
        return []
    *batch, height, width = x.shape
    dtype = accumulator(x.dtype)
    row_align, column_align = alignment(target, x.dtype)
    full = round_up(width, column_align)
    columns = [full] if only_whole else candidates(width, _COLUMNS, column_align)
    columns = sorted({*columns, full}) if whole else columns
    rows = candidates(height, [r for r in _ROWS if r % row_align == 0], row_align)
    cores, step = target.cores or 1, step_bytes(target)

    def bytes_of(tile):
        row = 2 * block_bytes((tile[0], 1), dtype) * statistics
        each = 2 * moved * block_bytes(tile, x.dtype) + 2 * block_bytes(tile, dtype)
        return row + each

    def seconds(tile):
        # In units of a byte moved. Steps that run side by side come in rounds of one a
        # core, and the last round may be part empty; the first load and the last store
        # of a tile overlap with nothing.
        side_by_side = math.prod(batch) * ceil_div(height, tile[0])
        steps = side_by_side * ceil_div(width, tile[1])
        rounds = ceil_div(side_by_side, cores) * cores / side_by_side
        bytes_moved = moved * math.prod(x.shape) * x.dtype.itemsize
        work = cost(*tile) * (bytes_moved + steps * step)
        return work * rounds + moved * math.prod(tile) * x.dtype.itemsize

    legal = [t for t in itertools.product(rows, columns) if bytes_of(t) <= room(target)]
    return sorted(legal, key=seconds)[:_MOST]
