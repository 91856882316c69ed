"""What runs on TPUs: every kernel of `lowering.kernels`, through JAX's Mosaic."""

from tilejax.lowering.adapt import (
    attention,
    conv,
    cross_entropy,
    embedding,
    matmul,
    norms,
    softmax,
)
from tilejax.lowering.rules import register_kernel

FAMILIES = (attention, conv, cross_entropy, embedding, matmul, norms, softmax)

for _family in FAMILIES:
    for _kernel in _family.KERNELS:
        register_kernel(
            _kernel.op, "tpu", _kernel.run, configs=_kernel.configs, part=_kernel.part
        )
