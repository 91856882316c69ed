"""Cross-entropy of any leading dimensions as one of rows."""

import jax.numpy as jnp

from tilejax.lowering.adapt.record import Adapted, dtype_reason, flat, rows
from tilejax.lowering.kernels import cross_entropy as kernel
from tilejax.lowering.kernels.cross_entropy_backward import cross_entropy_backward
from tilejax.lowering.kernels.row_configs import cross_entropy_configs
from tilejax.primitives.cross_entropy import cross_entropy_op


def _in_int32(labels, classes: int):
    """One number a row; -1 for what is no label before a cast could make it one."""
    labels = flat(labels)
    if labels.dtype.itemsize < 4 or labels.dtype == jnp.int32:
        return labels.astype(jnp.int32)
    last = min(classes - 1, jnp.iinfo(jnp.int32).max)
    return jnp.where((labels >= 0) & (labels <= last), labels.astype(jnp.int32), -1)


def _forward(logits, labels, *, config, interpret=False):
    loss, lse = kernel.cross_entropy(
        rows(logits),
        _in_int32(labels, logits.shape[-1]),
        config=config,
        interpret=interpret,
    )
    return loss.reshape(labels.shape), lse.reshape(labels.shape)


def _backward(operands, saved, cotangents, *, config, interpret=False):
    logits, labels = operands
    grad = cross_entropy_backward(
        rows(logits),
        _in_int32(labels, logits.shape[-1]),
        *(flat(x) for x in (*saved, *cotangents)),
        config=config,
        interpret=interpret,
    )
    return grad.reshape(logits.shape), None


def _configs(target, logits, labels):
    reason = dtype_reason(target, logits)
    return reason or cross_entropy_configs(target, rows(logits), flat(labels))


def _backward_configs(target, logits, labels):
    one, two = rows(logits), flat(labels)
    reason = dtype_reason(target, logits)
    return reason or cross_entropy_configs(target, one, two, two)


KERNELS = (
    Adapted(cross_entropy_op, "forward", _forward, _configs),
    Adapted(cross_entropy_op, "backward", _backward, _backward_configs),
)
