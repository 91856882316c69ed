"""The meaning of a product with an epilogue, and in which dtypes it is computed."""

import functools

import jax
import jax.numpy as jnp

from tilejax.primitives.activations import activate


def _has_epilogue(bias, scale, residual, activation, out_dtype) -> bool:
    extras = (bias, scale, residual, activation, out_dtype)
    return any(x is not None for x in extras)


def reference(
    a, b, bias=None, scale=None, residual=None, *, activation, out_dtype, **dot
):
    """Multiply, and finish the product; without an epilogue it is JAX's primitive."""
    if not _has_epilogue(bias, scale, residual, activation, out_dtype):
        return jax.lax.dot_general_p.bind(a, b, **dot)
    wide, out = dtypes_of(a, b, bias, scale, residual, activation, out_dtype, dot)
    z = sum_of(a, b, dot).astype(wide)
    z = pre_activation(z, bias, scale)
    z = activate(activation, z)
    if residual is not None:
        z = z + residual.astype(wide)
    return z.astype(out)


def sum_of(a, b, dot) -> jax.Array:
    """The product in the dtype that it is summed in."""
    dot = {**dot, "preferred_element_type": sum_dtype(a, b, dot)}
    return jax.lax.dot_general_p.bind(a, b, **dot)


def sum_dtype(a, b, dot):
    """Return the dtype that a product with an epilogue is summed in."""
    dtype = dot["preferred_element_type"]
    if dtype is None:
        dtype = jnp.promote_types(a.dtype, b.dtype)
        if jnp.issubdtype(dtype, jnp.integer):
            dtype = jnp.promote_types(dtype, jnp.int32)
        elif jnp.issubdtype(dtype, jnp.floating):
            dtype = jnp.promote_types(dtype, jnp.float32)
    return jnp.dtype(dtype)


def dtypes_of(a, b, bias, scale, residual, activation, out_dtype, dot):
    """The dtypes of the epilogue and of the result."""
    own = jnp.dtype(
        dot["preferred_element_type"] or jnp.promote_types(a.dtype, b.dtype)
    )
    real = jnp.issubdtype(own, jnp.floating)
    if not _has_epilogue(bias, scale, residual, activation, None):
        return (jnp.promote_types(own, jnp.float32) if real else own), out_dtype
    wide = functools.reduce(
        jnp.promote_types,
        [x.dtype for x in (bias, scale, residual) if x is not None],
        jnp.promote_types(own, jnp.float32) if real else jnp.dtype(jnp.float32),
    )
    return wide, out_dtype or (own if real else wide)


def along_last(x, z):
    """A scalar, or a vector along the last dimension, in the rank and dtype of z.

    Not broadcast to its shape: over Explicit axes that would be an unsharded array.
    """
    return jax.lax.expand_dims(x.astype(z.dtype), tuple(range(z.ndim - x.ndim)))


def pre_activation(z, bias, scale):
    """Scale a sum and add the bias."""
    if scale is not None:
        z = z * along_last(scale, z)
    return z if bias is None else z + along_last(bias, z)
