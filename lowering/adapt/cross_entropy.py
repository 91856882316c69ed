"""Cross-entropy of any leading dimensions as one of rows."""

from tilejax.lowering.adapt.record import Adapted, flat, rows
from tilejax.lowering.kernels import cross_entropy as kernel
from tilejax.lowering.kernels.cross_entropy_backward import cross_entropy_backward
from tilejax.lowering.kernels.row_configs import cross_entropy_configs
from tilejax.primitives.cross_entropy import cross_entropy_op


def _forward(logits, labels, *, config, interpret=False):
    loss, lse = kernel.cross_entropy(
        rows(logits), flat(labels), config=config, interpret=interpret
    )
    return loss.reshape(labels.shape), lse.reshape(labels.shape)


def _backward(operands, saved, cotangents, *, config, interpret=False):
    logits, labels = operands
    grad = cross_entropy_backward(
        rows(logits),
        flat(labels),
        *(flat(x) for x in (*saved, *cotangents)),
        config=config,
        interpret=interpret,
    )
    return grad.reshape(logits.shape), None


def _configs(target, logits, labels):
    return cross_entropy_configs(target, rows(logits), flat(labels))


KERNELS = (
    Adapted(cross_entropy_op, "forward", _forward, _configs),
    Adapted(cross_entropy_op, "backward", _backward, _configs),
)
