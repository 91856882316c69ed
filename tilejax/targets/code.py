"""What code makes of a CPU: shares of the roofline that it reaches, and a call's cost.

Measured, each figure as a ratio of times that were taken in turns on one core, against
XLA's product of float32, which is taken for 1: what counts for a choice is how they
compare. An AMD EPYC of the Zen 4 generation (AVX-512 with BF16 and VNNI, no FP16, no
AMX), JAX 0.10.2; products of 512, rows of 1024 and 8192, attention of 512 and 1024
positions with heads of 64, convolutions of 3 x 3 over 28 x 28 x 64, arrays in the
caches. A share above 1 says that the model, the same for both, is too slow for one of
them. A call takes 2 to 20 us where it wakes other threads. Products of float32 by
themselves come out at 1.01 to 1.04, but within the training step of `tilejax demo`, on
two cores, XLA's take so much longer that the step takes 1.4 times as long with them.
"""

CODE: dict[str, float] = {
    # XLA's own: products by the dtype of the operands, then that of the result
    "xla.product.float32": 1.0,
    "xla.product.float64": 0.85,
    "xla.product.bfloat16": 0.9,
    "xla.product.bfloat16.bfloat16": 0.49,
    "xla.product.float16": 0.45,
    "xla.product.int8": 0.38,
    # of a vector, or of a single column
    "xla.matvec.float32": 0.75,
    "xla.matvec.float64": 0.85,
    "xla.matvec.bfloat16": 0.5,
    "xla.matvec.float16": 0.36,
    "xla.matvec.int8": 0.27,
    "xla.conv.float64": 0.87,
    "xla.conv.bfloat16": 0.49,
    "xla.conv.float16": 0.45,
    "xla.depthwise": 0.05,
    # the kernels, by operation and part
    "kernel.call_seconds": 1e-5,
    "kernel.cached_bytes_per_second": 9e10,
    "kernel.matmul.forward.float32": 1.09,
    "kernel.matmul.forward.float64": 0.87,
    "kernel.matmul.forward.bfloat16": 1.1,
    "kernel.matmul.forward.float16": 0.49,
    "kernel.matmul.forward.int8": 1.0,
    "kernel.conv.forward.float32": 0.89,
    "kernel.conv.forward.float64": 0.7,
    "kernel.conv.forward.bfloat16": 0.71,
    "kernel.conv.forward.float16": 0.39,
    "kernel.filter_grad.forward.float32": 0.67,
    "kernel.filter_grad.forward.float64": 0.6,
    "kernel.filter_grad.forward.bfloat16": 0.27,
    "kernel.filter_grad.forward.float16": 0.2,
    "kernel.attention.forward.float32": 0.8,
    "kernel.attention.forward.float64": 0.8,
    "kernel.attention.forward.bfloat16": 0.65,
    "kernel.attention.forward.float16": 0.42,
    "kernel.attention.backward.float32": 0.76,
    "kernel.attention.backward.float64": 1.0,
    "kernel.attention.backward.bfloat16": 0.6,
    "kernel.attention.backward.float16": 0.51,
    "kernel.rms_norm.forward.float32": 0.65,
    "kernel.group_norm": 2.0,
    "kernel.cross_entropy.backward.float32": 0.8,
    "kernel.cross_entropy.backward.float64": 1.1,
    "kernel.cross_entropy.backward.bfloat16": 2.0,
    "kernel.cross_entropy.backward.float16": 1.2,
    "kernel.embedding_bag_grad": 0.5,
}

CODE_SOURCES: dict[str, str] = {
    "code.xla": "measured: XLA of JAX 0.10.2 on one core of an AMD EPYC (Zen 4)",
    "code.kernel": "measured: the kernels on one core of an AMD EPYC (Zen 4)",
    "code.kernel.call_seconds": "measured: 0.3 us alone, 2 to 20 us with threads",
    "code.kernel.cached_bytes_per_second": "measured: how products of 512 and 1024 "
    "slow down with smaller tiles, on one core of an AMD EPYC (Zen 4)",
}
