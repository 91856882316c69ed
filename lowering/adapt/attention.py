"""Attention, whose operands need no other form; what its kernels do not take."""

import jax
import jax.numpy as jnp

from tilejax.lowering.adapt.record import Adapted, dtype_reason, precision_reason
from tilejax.lowering.kernels import attention as kernel
from tilejax.lowering.kernels.attention_backward import attention_backward
from tilejax.lowering.kernels.attention_configs import (
    attention_backward_configs,
    attention_configs,
)
from tilejax.lowering.kernels.matmul_operands import dot_precision
from tilejax.primitives.attention import attention_op


def _forward(q, k, v, bias, mask, q_segments, kv_segments, *, precision, **options):
    segments = (_as_int32(q_segments), _as_int32(kv_segments))
    precision = dot_precision(precision, q.dtype)
    return kernel.attention(
        q, k, v, bias, mask, *segments, precision=precision, **options
    )


def _backward(operands, saved, cotangents, *, precision, **options):
    q, k, v, bias, mask, q_segments, kv_segments = operands
    found = attention_backward(
        *(q, k, v, bias, mask, _as_int32(q_segments), _as_int32(kv_segments)),
        *(*saved, *cotangents),
        precision=dot_precision(precision, q.dtype),
        **options,
    )
    return *found, None, None, None


def _as_int32(segments):
    """Other integers of up to 32 bits, so that equal ones stay equal."""
    if segments is None or segments.dtype == jnp.int32:
        return segments
    if segments.dtype == jnp.uint32:
        return jax.lax.bitcast_convert_type(segments, jnp.int32)
    return segments.astype(jnp.int32)


def _configs(target, *operands, **params):
    reason = _why_not(target, operands, params)
    return reason or attention_configs(target, *operands, **params)


def _backward_configs(target, *operands, **params):
    reason = _why_not(target, operands, params)
    return reason or attention_backward_configs(target, *operands, **params)


def _why_not(target, operands, params) -> str | None:
    q, k, v, bias, _, *segments = operands
    if any(x is not None and x.dtype.itemsize > 4 for x in segments):
        return "no kernel for segments of 64 bits"
    return dtype_reason(target, q, k, v, bias) or precision_reason(params["precision"])


KERNELS = (
    Adapted(attention_op, "forward", _forward, _configs),
    Adapted(attention_op, "backward", _backward, _backward_configs),
)
