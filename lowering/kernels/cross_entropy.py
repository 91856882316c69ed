"""Cross-entropy of rows of logits with integer labels, forward."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.online import log_sum, online_step
from tilejax.lowering.kernels.tiles import accumulator


@dataclasses.dataclass(frozen=True)
class CrossEntropyConfig:
    """Tile of logits: `rows` by `columns` of the vocabulary."""

    rows: int = 16
    columns: int = 2048


def cross_entropy(
    logits: jax.Array,
    labels: jax.Array,
    *,
    config: CrossEntropyConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array]:
    """Compute `logsumexp(logits) - logits[label]` for each row, in one reading.

    **Arguments:**

    - `logits`: `[rows, vocabulary]`, floating.
    - `labels`: `[rows]`, int32. One outside the vocabulary, and so a negative one,
      gives a NaN loss.
    - `config`: The tile.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    The loss and the logsumexp, `[rows]` each, float32 (float64 for float64). They are
    all that the backward pass needs beside the operands.

        >>> logits, labels = jnp.zeros((1, 4)), jnp.array([2])
        >>> config = CrossEntropyConfig()
        >>> loss, _ = cross_entropy(logits, labels, config=config, interpret=True)
        >>> round(float(loss[0]), 4)  # log(4)
        1.3863
    """
    rows, columns = logits.shape
    dtype = accumulator(logits.dtype)
    if logits.size == 0:
        return jnp.full(rows, jnp.nan, dtype), jnp.full(rows, -jnp.inf, dtype)
    height, width = min(config.rows, rows), min(config.columns, columns)
    statistic = pl.BlockSpec((height, 1), lambda i, j: (i, 0))
    column = jax.ShapeDtypeStruct((rows, 1), dtype)
    loss, lse = pl.pallas_call(
        functools.partial(_kernel, size=columns),
        out_shape=(column, column),
        grid=(pl.cdiv(rows, height), pl.cdiv(columns, width)),
        in_specs=[pl.BlockSpec((height, width), lambda i, j: (i, j)), statistic],
        out_specs=(statistic, statistic),
        scratch_shapes=[pltpu.VMEM((height, 1), dtype)] * 3,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary")
        ),
        interpret=interpret,
        name="cross_entropy",
    )(logits, labels.reshape(rows, 1))
    return loss.reshape(rows), lse.reshape(rows)


def is_label(
    labels: jax.Array, shape: tuple[int, int], block: jax.Array | int
) -> jax.Array:
    """Return which elements of a tile of logits are the ones that the labels name.

    **Arguments:**

    - `labels`: `[rows, 1]`, int32.
    - `shape`: Of the tile.
    - `block`: Which tile of columns it is.

    **Returns:**

    Booleans of the shape of the tile.

        >>> is_label(jnp.array([[3], [0]]), (2, 2), 1).tolist()
        [[False, True], [False, False]]
    """
    column = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + block * shape[1]
    return column == labels


def _kernel(logits_ref, labels_ref, loss_ref, lse_ref, maximum, total, picked, *, size):
    column = pl.program_id(1)

    @pl.when(column == 0)
    def _():
        maximum[...] = jnp.full_like(maximum, -jnp.inf)
        total[...] = jnp.zeros_like(total)
        picked[...] = jnp.zeros_like(picked)

    logits = logits_ref[...].astype(maximum.dtype)
    valid = inside(logits.shape, 1, column, size)
    _weights, maximum[...], total[...], _shrink = online_step(
        jnp.where(valid, logits, -jnp.inf), maximum[...], total[...]
    )
    labelled = is_label(labels_ref[...], logits.shape, column) & valid
    picked[...] += jnp.sum(jnp.where(labelled, logits, 0.0), axis=1, keepdims=True)

    @pl.when(column == pl.num_programs(1) - 1)
    def _():
        labels = labels_ref[...]
        lse = log_sum(maximum[...], total[...])
        known = (labels >= 0) & (labels < size)
        lse_ref[...] = lse
        loss_ref[...] = jnp.where(known, lse - picked[...], jnp.nan)
