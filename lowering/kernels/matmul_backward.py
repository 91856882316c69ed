"""Gradients of the batched matrix product and its epilogue."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.activations import pull_back
from tilejax.lowering.kernels.matmul import (
    MatmulConfig,
    accumulate,
    matmul,
    pre_activation,
)
from tilejax.lowering.kernels.matmul_operands import Plan, plan_matmul
from tilejax.lowering.kernels.tiles import ceil_div, float_like, keep_first

Gradient = jax.Array | None


def matmul_backward(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None,
    scale: jax.Array | None,
    residual: jax.Array | None,
    ct: jax.Array,
    *,
    activation: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    precision: Any = None,
    config: MatmulConfig,
    interpret: Any = False,
) -> tuple[Gradient, Gradient, Gradient, Gradient, Gradient]:
    """Pull a cotangent back through `matmul`.

    The sum before the epilogue is not kept by the forward pass: where an activation or
    a scale needs it, it is computed again, tile by tile, and never stored.

        z = (a @ b) * scale + bias
        dz = ct * activation'(z)
        da = (dz * scale) @ b.T,  db = a.T @ (dz * scale)

    **Arguments:**

    - `a`, `b`, `bias`, `scale`, `residual`, and the parameters: As `matmul` got them.
    - `ct`: `[B, M, N]`, the cotangent of the result.

    **Returns:**

    The gradients of `a`, `b`, `bias`, `scale` and `residual`, each of the shape and
    dtype of its operand; None for an operand that is not there or is an integer.

        >>> a, b = jnp.ones((1, 4, 3)), jnp.ones((1, 3, 5))
        >>> ct, config = jnp.ones((1, 4, 5)), MatmulConfig()
        >>> grads = matmul_backward(
        ...     a, b, None, None, None, ct, config=config, interpret=True
        ... )
        >>> float(grads[0][0, 0, 0])
        5.0
    """
    plan = plan_matmul(
        *(a, b, bias, scale, residual),
        activation=activation,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        precision=precision,
        config=config,
    )
    if plan.batch and plan.m and plan.n:
        ct_sum, dz_columns, dot_columns = _through_epilogue(
            *(a, b, bias, scale, ct, plan, activation, interpret)
        )
    else:
        ct_sum = ct.astype(plan.dtype)
        dz_columns = dot_columns = jnp.zeros((1, plan.n), jnp.float32)
    product = functools.partial(
        matmul, precision=precision, config=config, interpret=interpret
    )
    return (
        _left_gradient(ct_sum, a, b, transpose_a, transpose_b, product),
        _right_gradient(ct_sum, a, b, transpose_a, transpose_b, product),
        _column_sum(dz_columns, bias),
        _column_sum(dot_columns, scale),
        None if residual is None else ct.astype(residual.dtype),
    )


def _left_gradient(ct, a, b, transpose_a, transpose_b, product):
    """Compute da[M, K] = ct[M, N] b[K, N]^T; for a kept as [K, M], its transpose."""
    if not float_like(a.dtype):
        return None
    kept = {"out_dtype": a.dtype, "reduce_batch": len(a) == 1 and len(ct) != 1}
    if transpose_a:
        return product(b, ct, transpose_a=transpose_b, transpose_b=True, **kept)
    return product(ct, b, transpose_b=not transpose_b, **kept)


def _right_gradient(ct, a, b, transpose_a, transpose_b, product):
    """Compute db[K, N] = a[M, K]^T ct[M, N]; for b kept as [N, K], its transpose."""
    if not float_like(b.dtype):
        return None
    kept = {"out_dtype": b.dtype, "reduce_batch": len(b) == 1 and len(ct) != 1}
    if transpose_b:
        return product(ct, a, transpose_a=True, transpose_b=transpose_a, **kept)
    return product(a, ct, transpose_a=not transpose_a, **kept)


def _column_sum(columns, like):
    if like is None:
        return None
    total = columns.sum(axis=0)
    if like.shape == (1,):
        total = total.sum(keepdims=True)
    return total.astype(like.dtype)


def _through_epilogue(a, b, bias, scale, ct, plan: Plan, activation, interpret):
    """Return the cotangent of the sum, and what bias and scale add up, by column."""
    if activation is None and scale is None and bias is None:
        return ct.astype(plan.dtype), None, None
    wide = jnp.promote_types(plan.sum_dtype, jnp.float32)
    m_tiles = ceil_div(plan.m, plan.tile_m)
    columns = jax.ShapeDtypeStruct((plan.batch * m_tiles, 1, plan.n), wide)
    column_spec = pl.BlockSpec(
        (None, 1, plan.tile_n), lambda batch, m, n, k: (batch * m_tiles + m, 0, n)
    )
    block = plan.extra_spec("residual")
    extras = plan.rows(bias, scale)
    # Without a contraction the sum is zero, and a bias alone does not ask for it.
    needs_sum = plan.k > 0 and (scale is not None or activation is not None)
    kernel = functools.partial(
        _epilogue_kernel,
        plan=plan,
        present=(bias is not None, scale is not None),
        activation=activation,
        needs_sum=needs_sum,
    )
    grid = plan.grid if needs_sum else (*plan.grid[:3], 1)
    operands = (a, b) if needs_sum else ()
    specs = [plan.a_spec(), plan.b_spec()] if needs_sum else []
    ct_sum, dz, dot = pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[*specs, *[plan.extra_spec("bias")] * len(extras), block],
        out_specs=[block, column_spec, column_spec],
        out_shape=[jax.ShapeDtypeStruct(ct.shape, plan.dtype), columns, columns],
        scratch_shapes=[pltpu.VMEM((plan.tile_m, plan.tile_n), plan.sum_dtype)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=plan.semantics),
        interpret=interpret,
        name="matmul_epilogue_backward",
    )(*operands, *extras, ct)
    return ct_sum, dz.reshape(-1, plan.n), dot.reshape(-1, plan.n)


def _epilogue_kernel(*refs, plan: Plan, present, activation, needs_sum):
    # Read out here: interpret mode knows no program_id inside a conditional.
    left = plan.m - pl.program_id(1) * plan.tile_m
    sum_ref = refs[-1]
    if not needs_sum:
        sum_ref[...] = jnp.zeros_like(sum_ref)
        _store(refs[:-1], sum_ref, left, present, activation)
        return
    accumulate(refs[0], refs[1], sum_ref, plan)
    pl.when(plan.is_last())(
        lambda: _store(refs[2:-1], sum_ref, left, present, activation)
    )


def _store(refs, sum_ref, left, present, activation):
    *row_refs, ct_ref, ct_sum_ref, dz_ref, dot_ref = refs
    rows = iter(row_refs)
    bias, scale = (next(rows)[...] if there else None for there in present)
    wide = dz_ref.dtype
    total = sum_ref[...].astype(wide)
    dz = pull_back(
        activation, pre_activation(total, bias, scale), ct_ref[...].astype(wide)
    )
    ct_sum = dz if scale is None else dz * scale.astype(wide)
    ct_sum_ref[...] = ct_sum.astype(ct_sum_ref.dtype)
    dz_ref[...] = jnp.sum(keep_first(dz, 0, left), axis=0, keepdims=True)
    dot = keep_first(dz * total, 0, left)
    dot_ref[...] = jnp.sum(dot, axis=0, keepdims=True)
