"""What attention refuses, and how it says so."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.dtypes import FLOATS


def number(label: str, value: Any) -> float:
    """Return a static parameter as a number, or raise `ParameterError`."""
    try:
        found = float(value)
    except (TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
        raise ParameterError(
            f"attention: {label}={value!r} is no static number; to trace a scale, "
            "multiply q by it and pass scale=1.0"
        ) from error
    if not math.isfinite(found) or (label == "soft_cap" and found <= 0):
        wanted = "positive and finite" if label == "soft_cap" else "finite"
        raise ParameterError(f"attention: {label}={found} must be {wanted}")
    return found


def window_of(window: Any) -> tuple[int, int] | None:
    """Return a window as (left, right), or raise `ParameterError`."""
    if window is None:
        return None
    found = (window, window) if isinstance(window, int) else window
    if (
        not isinstance(found, tuple)
        or len(found) != 2
        or not all(isinstance(side, int) and side >= 0 for side in found)
    ):
        raise ParameterError(
            f"attention: window={window!r} must be None, or how many neighbours are "
            "seen: (left, right), or one number for both, not negative"
        )
    return found


def check(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    mask: Any,
    q_segments: Any,
    kv_segments: Any,
    *,
    masked_rows: str,
    **params: Any,
) -> None:
    """Raise unless the operands fit each other, saying which do not."""
    del params
    if masked_rows not in ("zeros", "uniform"):
        raise ParameterError(
            f"attention: masked_rows={masked_rows!r} is neither 'zeros' nor 'uniform'"
        )
    _check_dtypes(q, k, v, bias, mask)
    _check_shapes(q, k, v)
    for label, x in (("bias", bias), ("mask", mask)):
        if x is not None:
            _check_scores(label, x, q, k)
    _check_segments(q, k, q_segments, kv_segments)


def _check_dtypes(q, k, v, bias, mask) -> None:
    if q.dtype.name not in FLOATS or k.dtype != q.dtype or v.dtype != q.dtype:
        raise DTypeError(
            f"attention: q, k and v are {q.dtype.name}, {k.dtype.name} and "
            f"{v.dtype.name}; they must be of one dtype of {', '.join(FLOATS)}"
        )
    if bias is not None and bias.dtype.name not in FLOATS:
        raise DTypeError(
            f"attention: bias is {bias.dtype.name}; it must be of {', '.join(FLOATS)}"
            " (a boolean is a mask)"
        )
    if mask is not None and mask.dtype != jnp.bool_:
        raise DTypeError(
            f"attention: mask is {mask.dtype.name}; it must be boolean, true where a "
            "key is visible (numbers to add are a bias)"
        )


def _check_shapes(q, k, v) -> None:
    shown = f"attention: q, k and v have shapes {q.shape}, {k.shape} and {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ShapeError(f"{shown}; each needs (batch, heads, length, depth)")
    if k.shape[:3] != v.shape[:3]:
        raise ShapeError(f"{shown}; k and v must agree but for the depth")
    if q.shape[0] != k.shape[0]:
        raise ShapeError(f"{shown}; their batches differ")
    if q.shape[3] != k.shape[3]:
        raise ShapeError(f"{shown}; q and k must have one depth")
    if q.shape[1] != k.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1]):
        raise ShapeError(
            f"{shown}; {q.shape[1]} query heads are no multiple of {k.shape[1]} key "
            "heads"
        )


def _check_scores(label: str, x, q, k) -> None:
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    fits = x.ndim == 4 and x.shape[2:] == wanted[2:]
    if not fits or any(
        n not in (1, m) for n, m in zip(x.shape[:2], wanted[:2], strict=True)
    ):
        raise ShapeError(
            f"attention: {label} has shape {x.shape}; for q of shape {q.shape} and k "
            f"of shape {k.shape} it must be {wanted}, 1 allowed for the first two"
        )


def _check_segments(q, k, q_segments, kv_segments) -> None:
    if (q_segments is None) != (kv_segments is None):
        missing = "q_segments" if q_segments is None else "kv_segments"
        raise ParameterError(f"attention: {missing} is missing; segments come in pairs")
    if q_segments is None:
        return
    for label, x, length in (
        ("q_segments", q_segments, q.shape[2]),
        ("kv_segments", kv_segments, k.shape[2]),
    ):
        if not jnp.issubdtype(x.dtype, jnp.integer):
            raise DTypeError(f"attention: {label} is {x.dtype.name}, not integer")
        if x.shape != (q.shape[0], length):
            raise ShapeError(
                f"attention: {label} has shape {x.shape}; it must be "
                f"{(q.shape[0], length)}, (batch, length)"
            )
