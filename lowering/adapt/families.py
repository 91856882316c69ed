"""The families of kernels; a target that compiles Pallas registers them all."""

from tilejax.lowering.adapt import (
    attention,
    conv,
    cross_entropy,
    embedding,
    matmul,
    norms,
    softmax,
)

FAMILIES = (attention, conv, cross_entropy, embedding, matmul, norms, softmax)
