"""Dtypes that the row operations and attention take, and what they sum in."""

from typing import Any

import jax.numpy as jnp

FLOATS = ("float16", "bfloat16", "float32", "float64")


def accumulator(dtype: Any) -> jnp.dtype:
    """Return float64 for float64, else float32.

    >>> accumulator(jnp.bfloat16).name
    'float32'
    """
    return jnp.promote_types(dtype, jnp.float32)
