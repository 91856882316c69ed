"""Batched matrix product with an epilogue, for TPUs and what follows their model."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.activations import find_activation
from tilejax.lowering.kernels.matmul_operands import Plan, plan_matmul
from tilejax.lowering.kernels.tiles import keep_first


@dataclasses.dataclass(frozen=True)
class MatmulConfig:
    """Choose the tile of a matrix product.

    **Arguments:**

    - `m`: Rows of the result that one step computes.
    - `n`: Columns of the result that one step computes.
    - `k`: Length of the contraction that one step adds.
    """

    m: int = 128
    n: int = 128
    k: int = 128


def matmul(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None = None,
    scale: jax.Array | None = None,
    residual: jax.Array | None = None,
    *,
    activation: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: Any = None,
    precision: Any = None,
    reduce_batch: bool = False,
    config: MatmulConfig,
    interpret: Any = False,
) -> jax.Array:
    """Multiply batches of matrices and finish the product before it is stored.

        activation((a @ b) * scale + bias) + residual

    The sum is kept in f32 (f64 for f64, int32 for int8 by int8), and the epilogue is
    computed in it (in f32 after an integer sum). Operands of two types are both turned
    into the type that JAX promotes them to, block by block.

    **Arguments:**

    - `a`: `[B, M, K]`, or `[B, K, M]` with `transpose_a`; `B` may be 1. A float or
      int8.
    - `b`: `[B, K, N]`, or `[B, N, K]` with `transpose_b`; `B` may be 1. A float or
      int8.
    - `bias`: `[N]`.
    - `scale`: `[N]` or `[1]`.
    - `residual`: `[B, M, N]`.
    - `activation`: A key of `tilejax.lowering.kernels.activations.ACTIVATIONS`.
    - `transpose_a`, `transpose_b`: Whether the last two axes are swapped.
    - `out_dtype`: Of the result. By default the type the operands promote to, or int32
      for integers without an epilogue and f32 with one.
    - `precision`: As `jax.lax.dot_general` takes it.
    - `reduce_batch`: Whether the batches are summed, before the epilogue.
    - `config`: The tile.
    - `interpret`: As `pl.pallas_call` takes it.

    **Returns:**

    `[B, M, N]`, or `[1, M, N]` with `reduce_batch`.

    **Raises:**

    `tilejax.errors.ShapeError`, `DTypeError` or `ParameterError` for operands that do
    not fit.

        >>> a, b = jnp.ones((1, 4, 3)), jnp.ones((1, 3, 5))
        >>> matmul(a, b, config=MatmulConfig(), interpret=True).shape
        (1, 4, 5)
    """
    find_activation(activation)
    extras = (bias, scale, residual)
    plan = plan_matmul(
        *(a, b, *extras),
        activation=activation,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        out_dtype=out_dtype,
        precision=precision,
        reduce_batch=reduce_batch,
        config=config,
    )
    if plan.empty:
        total = jnp.zeros((plan.out_batch, plan.m, plan.n), plan.sum_dtype)
        bias, scale = (None if x is None else x.reshape(1, 1, -1) for x in extras[:2])
        return finish(total, bias, scale, residual, activation).astype(plan.out_dtype)
    names = ("bias", "scale", "residual")
    present = [name for name, x in zip(names, extras, strict=True) if x is not None]
    return pl.pallas_call(
        functools.partial(
            _kernel, plan=plan, present=tuple(present), activation=activation
        ),
        grid=plan.grid,
        in_specs=[plan.a_spec(), plan.b_spec(), *map(plan.extra_spec, present)],
        out_specs=plan.extra_spec("residual"),
        out_shape=jax.ShapeDtypeStruct(
            (plan.out_batch, plan.m, plan.n), plan.out_dtype
        ),
        scratch_shapes=[pltpu.VMEM((plan.tile_m, plan.tile_n), plan.sum_dtype)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=plan.semantics),
        interpret=interpret,
        name="matmul",
    )(a, b, *plan.rows(bias, scale), *([] if residual is None else [residual]))


def _kernel(a_ref, b_ref, *refs, plan: Plan, present, activation):
    *extra_refs, out_ref, sum_ref = refs
    accumulate(a_ref, b_ref, sum_ref, plan)

    @pl.when(plan.is_last())
    def _():
        extras: dict[str, Any] = dict.fromkeys(("bias", "scale", "residual"))
        for name, ref in zip(present, extra_refs, strict=True):
            extras[name] = ref[...]
        result = finish(sum_ref[...], **extras, activation=activation)
        out_ref[...] = result.astype(out_ref.dtype)


def accumulate(a_ref, b_ref, sum_ref, plan: Plan) -> None:
    """Add the product of two blocks to the running sum, which the first step zeroes.

    **Arguments:**

    - `a_ref`, `b_ref`: The blocks of this step, of two dimensions.
    - `sum_ref`: The running sum, `[tile_m, tile_n]`.
    - `plan`: How the product is tiled.
    """

    @pl.when(plan.is_first())
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    a, b = a_ref[...].astype(plan.dtype), b_ref[...].astype(plan.dtype)
    a_axis, b_axis = (0 if plan.transpose_a else 1), (1 if plan.transpose_b else 0)
    if plan.k % plan.tile_k:
        # Both, since garbage times zero is NaN where the garbage is NaN.
        left = plan.k - pl.program_id(plan.k_dim) * plan.tile_k
        a, b = keep_first(a, a_axis, left), keep_first(b, b_axis, left)
    sum_ref[...] += jax.lax.dot_general(
        *(a, b, (((a_axis,), (b_axis,)), ((), ()))),
        precision=plan.precision,
        preferred_element_type=sum_ref.dtype,
    )


def finish(total, bias, scale, residual, activation: str | None) -> jax.Array:
    """Apply the epilogue to a finished sum.

    **Arguments:**

    - `total`: The sum, `[..., M, N]`.
    - `bias`, `scale`: Broadcast against it, or None.
    - `residual`: Of the shape of `total`, or None.
    - `activation`: A name, or None.

    **Returns:**

    The result, in the type of the sum; f32 if that was an integer and there is an
    epilogue.

        >>> float(finish(jnp.float32(2), jnp.float32(1), None, None, None))
        3.0
    """
    present = [x for x in (bias, scale, residual) if x is not None]
    if not present and activation is None:
        return total
    z = pre_activation(total, bias, scale)
    apply = find_activation(activation)
    if apply is not None:
        z = apply(z)
    return z if residual is None else z + residual.astype(z.dtype)


def pre_activation(total, bias, scale) -> jax.Array:
    """Scale a finished sum and add the bias.

    **Arguments:**

    - `total`: The sum, `[..., M, N]`.
    - `bias`, `scale`: Broadcast against it, or None.

    **Returns:**

    A floating array of the shape of `total`.

        >>> float(pre_activation(jnp.float32(2), None, jnp.float32(3)))
        6.0
    """
    z = total
    if jnp.issubdtype(z.dtype, jnp.integer):
        z = z.astype(jnp.float32)
    if scale is not None:
        z = z * scale.astype(z.dtype)
    return z if bias is None else z + bias.astype(z.dtype)
