"""Activation functions that an operation may apply to its result.

`relu` and `maximum` differ in their slope at 0 alone: 0, and a half as `jnp.maximum`'s.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "maximum": lambda x: jnp.maximum(x, 0),
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "exp": jnp.exp,
}


def activate(name: str | None, x: jax.Array) -> jax.Array:
    """Apply an activation by name.

    **Arguments:**

    - `name`: a key of `ACTIVATIONS`; None for the identity.
    - `x`: floating, any shape.

    **Returns:** the shape and dtype of `x`.

    >>> activate("relu", jnp.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return x if name is None else ACTIVATIONS[name](x)


def check_activation(op: str, name: str | None) -> None:
    """Raise `ParameterError` unless there is an activation of this name."""
    if name is not None and name not in ACTIVATIONS:
        raise ParameterError(
            f"{op}: activation={name!r} is unknown; it takes "
            f"{', '.join(ACTIVATIONS)}, or None"
        )
