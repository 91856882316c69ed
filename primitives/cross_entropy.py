"""Cross-entropy of logits with integer labels."""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import DTypeError, ShapeError
from tilejax.primitives.define import define
from tilejax.primitives.dtypes import FLOATS, accumulator
from tilejax.primitives.sizes import count, nbytes
from tilejax.targets.cost import Cost


def cross_entropy(
    logits: jax.typing.ArrayLike, labels: jax.typing.ArrayLike
) -> jax.Array:
    """Compute the negative log-probability of each label.

    `logsumexp(logits) - logits[label]`, over the last axis. The backward pass makes the
    probabilities again from the logits and the logsumexp, so nothing of the size of the
    logits is kept but the logits themselves.

    **Arguments:**

    - `logits`: (..., classes), floating.
    - `labels`: (...), integers from 0 to classes - 1. Any other gives a NaN loss, and
      no gradient where the loss is not used: mark padding by -1 and drop it.

    **Returns:** (...), float32 (float64 for float64 logits).

    **Raises:** `ShapeError` unless the labels have the shape of the logits without
    their last axis; `DTypeError` for labels that are no integers.

    >>> labels = jnp.array([1, -1])
    >>> loss = cross_entropy(jnp.zeros((2, 4)), labels)
    >>> [round(x, 4) for x in jnp.where(labels < 0, 0, loss).tolist()]
    [1.3863, 0.0]
    """
    return cross_entropy_op(logits, labels)[0]


def cross_entropy_with_lse(
    logits: jax.typing.ArrayLike, labels: jax.typing.ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Compute the losses of `cross_entropy` and the logsumexp of the logits.

    The second is what a penalty on large logits (z-loss, the square of it) or label
    smoothing needs: `(1 - a) * loss + a * (lse - mean(logits))`.

    **Arguments:** as `cross_entropy`.

    **Returns:** two arrays (...), float32 (float64 for float64 logits).

    **Raises:** as `cross_entropy`.

    >>> loss, lse = cross_entropy_with_lse(jnp.zeros(4), 2)
    >>> round(float(lse), 4)
    1.3863
    """
    loss, lse = cross_entropy_op(logits, labels)
    return loss, lse


def _reference(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    classes = logits.shape[-1]
    wide = logits.astype(accumulator(logits.dtype))
    lse = jax.nn.logsumexp(wide, axis=-1)
    if classes == 0:
        return jnp.full_like(lse, jnp.nan), lse
    labels = _wide_enough(labels)
    known = (labels >= 0) & (labels < classes)
    at = jnp.where(known, labels, 0)[..., None]
    picked = jnp.take_along_axis(logits, at, axis=-1, mode="clip")[..., 0]
    # The logsumexp outside `where`: its gradient does not depend on the label.
    return lse - jnp.where(known, picked.astype(wide.dtype), jnp.nan), lse


def _wide_enough(labels: jax.Array) -> jax.Array:
    """Labels in a dtype that holds the number of classes too."""
    return labels.astype(jnp.int32) if labels.dtype.itemsize < 4 else labels


def _backward(operands, saved, cotangents):
    """dlogits = exp(logits - lse) (dloss + dlse) - onehot(label) dloss."""
    logits, labels = operands
    (lse,), (dloss, dlse) = saved, cotangents
    labels = _wide_enough(labels)
    wide = logits.astype(lse.dtype)
    softened = jnp.exp(wide - lse[..., None]) * (dloss + dlse)[..., None]
    classes = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    taken = jnp.where(classes == labels[..., None], dloss[..., None], 0)
    return (softened - taken).astype(logits.dtype), None


def _check(logits: Any, labels: Any) -> None:
    shown = (
        f"cross_entropy: logits are {logits.dtype.name}{list(logits.shape)} and labels "
        f"{labels.dtype.name}{list(labels.shape)}"
    )
    if logits.dtype.name not in FLOATS:
        raise DTypeError(f"{shown}; logits must be of {', '.join(FLOATS)}")
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise DTypeError(f"{shown}; labels must be integers, one a row of logits")
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ShapeError(
            f"{shown}; labels must have the shape of logits without their last axis"
        )


def _cost(logits: Any, labels: Any) -> Cost:
    """An element: one exp, and max, subtract and add; a row: one log, one subtract."""
    wide = accumulator(logits.dtype)
    return Cost(
        bytes_read=nbytes(logits, labels),
        bytes_written=2 * count(labels) * wide.itemsize,
        transcendentals=count(logits) + count(labels),
        elementwise={wide.name: 3 * count(logits) + 2 * count(labels)},
    )


cross_entropy_op = define(
    "cross_entropy",
    reference=_reference,
    sharding="... v!, ... -> ..., ...",
    backward=_backward,
    saves=(1,),
    cost=_cost,
    check=_check,
)
