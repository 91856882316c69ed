"""Kernels as a user writes them, with the blocks that the user chose."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def matmul(a: jax.Array, b: jax.Array, *, blocks: int, interpret: bool = False):
    """A tiled product of two matrices, summed in scratch memory."""
    (m, k), n = a.shape, b.shape[1]
    sums = jnp.int32 if a.dtype == jnp.int8 else jnp.float32
    out = sums if a.dtype == jnp.int8 else a.dtype
    return pl.pallas_call(
        _step,
        jax.ShapeDtypeStruct((m, n), out),
        grid=(m // blocks, n // blocks, k // blocks),
        in_specs=[
            pl.BlockSpec((blocks, blocks), lambda i, j, k: (i, k)),
            pl.BlockSpec((blocks, blocks), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((blocks, blocks), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((blocks, blocks), sums)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
        name="plain_matmul",
    )(a, b)


def _step(a_ref, b_ref, out_ref, sum_ref):
    k = pl.program_id(2)

    @pl.when(k == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    sum_ref[...] += jnp.dot(
        a_ref[...], b_ref[...], preferred_element_type=sum_ref.dtype
    )

    @pl.when(k == pl.num_programs(2) - 1)
    def _():
        out_ref[...] = sum_ref[...].astype(out_ref.dtype)


def flash_attention(q, k, v, *, blocks: int, interpret: bool = False):
    """JAX's own attention in blocks; arrays are (batch, length, heads, depth)."""
    with warnings.catch_warnings():  # newer releases are going to drop it
        warnings.simplefilter("ignore", DeprecationWarning)
        from jax.experimental.pallas.ops.gpu import attention as gpu_attention
    return gpu_attention.mha(
        *(q, k, v, None),
        sm_scale=q.shape[-1] ** -0.5,
        block_sizes=gpu_attention.BlockSizes(block_q=blocks, block_k=blocks),
        interpret=interpret,
    )


def of_case(sizes: dict, *, interpret: bool):
    """Return the function of a case that compares with the interpreter."""
    kernel = flash_attention if "heads" in sizes else matmul
    return partial(kernel, blocks=sizes["blocks"], interpret=interpret)
