"""Activation functions that a kernel may apply before it stores its result."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError


def _gelu_tanh(x):
    return jax.nn.gelu(x, approximate=True)


def _gelu(x):
    # By erf and not by jax.nn.gelu's erfc, for which Mosaic has no rule.
    return 0.5 * x * (1 + jax.lax.erf(x * (0.5**0.5)))


def _silu(x):
    return x * jax.lax.logistic(x)


def _relu(x):
    # Written out: jax.nn.relu is a custom_jvp, which kernels need not carry. NaN stays.
    return jnp.maximum(x, jnp.zeros_like(x))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": _relu,
    "maximum": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.lax.logistic,
    "exp": jnp.exp,
}


def _relu_back(z, ct):
    # Zero at zero, as jax.nn.relu's; that of maximum would be a half.
    return jnp.where(z > 0, ct, jnp.zeros_like(ct))


def _gelu_back(z, ct):
    # JAX's derivative of erf asks exp for an accuracy that Mosaic does not implement.
    density = jnp.exp(-0.5 * z * z) * (2 * math.pi) ** -0.5
    return ct * (0.5 * (1 + jax.lax.erf(z * (0.5**0.5))) + z * density)


# Those whose derivative cannot be left to JAX.
_BACK = {"relu": _relu_back, "gelu": _gelu_back}


def find_activation(name: str | None) -> Callable[[jax.Array], jax.Array] | None:
    """Return the activation of a name.

    **Arguments:**

    - `name`: A key of `ACTIVATIONS`, or None.

    **Returns:**

    An elementwise function of a floating array, or None for None.

    **Raises:**

    `tilejax.errors.ParameterError` for a name that is not in the table.

        >>> float(find_activation("relu")(jnp.float32(-1)))
        0.0
    """
    if name is None:
        return None
    if name not in ACTIVATIONS:
        raise ParameterError(
            f"activation {name!r} is unknown; the table has {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def pull_back(name: str | None, z: jax.Array, ct: jax.Array) -> jax.Array:
    """Multiply a cotangent by the derivative of an activation.

    **Arguments:**

    - `name`: A key of `ACTIVATIONS`, or None for the identity.
    - `z`: What the activation was applied to.
    - `ct`: The cotangent of its result, of the shape and dtype of `z`.

    **Returns:**

    The cotangent of `z`.

        >>> float(pull_back("exp", jnp.float32(0), jnp.float32(3)))
        3.0
    """
    activation = find_activation(name)
    if activation is None:
        return ct
    if name in _BACK:
        return _BACK[name](z, ct)
    return jax.vjp(activation, z)[1](ct)[0]
