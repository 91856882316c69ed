"""Cross-entropy of rows of logits with integer labels, backward."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.cross_entropy import CrossEntropyConfig, is_label
from tilejax.lowering.kernels.tiles import accumulator


def cross_entropy_backward(
    logits: jax.Array,
    labels: jax.Array,
    lse: jax.Array,
    dloss: jax.Array,
    dlse: jax.Array,
    *,
    config: CrossEntropyConfig,
    interpret: Any = False,
) -> jax.Array:
    """Compute the cotangent of the logits of `cross_entropy`.

    `exp(logits - lse) * (dloss + dlse) - onehot(label) * dloss`: the probabilities are
    made again tile by tile, so nothing of the size of the logits is kept between the
    passes. A label outside the vocabulary contributes no second term.

    **Arguments:**

    - `logits`: `[rows, vocabulary]`.
    - `labels`: `[rows]`, int32.
    - `lse`: `[rows]`, from the forward pass.
    - `dloss`, `dlse`: `[rows]`, the cotangents of its results.
    - `config`, `interpret`: As of `cross_entropy`.

    **Returns:**

    The shape and dtype of `logits`.

        >>> logits, labels = jnp.zeros((1, 2)), jnp.array([0])
        >>> lse = jnp.log(2 * jnp.ones(1))
        >>> operands = (logits, labels, lse, jnp.ones(1), jnp.zeros(1))
        >>> config = CrossEntropyConfig()
        >>> dlogits = cross_entropy_backward(*operands, config=config, interpret=True)
        >>> dlogits.round(3).tolist()
        [[-0.5, 0.5]]
    """
    if logits.size == 0:
        return logits
    rows, columns = logits.shape
    dtype = accumulator(logits.dtype)
    height, width = min(config.rows, rows), min(config.columns, columns)
    block = pl.BlockSpec((height, width), lambda i, j: (i, j))
    statistic = pl.BlockSpec((height, 1), lambda i, j: (i, 0))
    column = (rows, 1)
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct(logits.shape, logits.dtype),
        grid=(pl.cdiv(rows, height), pl.cdiv(columns, width)),
        in_specs=[block, statistic, statistic, statistic, statistic],
        out_specs=block,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel")
        ),
        interpret=interpret,
        name="cross_entropy_backward",
    )(
        logits,
        labels.reshape(column),
        lse.astype(dtype).reshape(column),
        dloss.astype(dtype).reshape(column),
        dlse.astype(dtype).reshape(column),
    )


def _kernel(logits_ref, labels_ref, lse_ref, dloss_ref, dlse_ref, dlogits_ref):
    logits = logits_ref[...].astype(lse_ref.dtype)
    dloss = dloss_ref[...]
    softened = jnp.exp(logits - lse_ref[...]) * (dloss + dlse_ref[...])
    labelled = is_label(labels_ref[...], logits.shape, pl.program_id(1))
    dlogits_ref[...] = (softened - jnp.where(labelled, dloss, 0.0)).astype(
        dlogits_ref.dtype
    )
