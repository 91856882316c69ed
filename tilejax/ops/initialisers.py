"""What parameters start as, by name."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError

Initialiser = str | float | Callable[..., Any]

_init = jax.nn.initializers

# Functions of (key, shape, dtype). In kernels the inputs are second to last and the
# outputs last, what is before them being the window; where they are first, see `named`.
INITIALISERS: dict[str, Callable[..., Any]] = {
    "zeros": _init.zeros,
    "ones": _init.ones,
    "normal": _init.normal(0.02),
    "uniform": _init.uniform(0.05),
    "glorot_uniform": _init.glorot_uniform(),
    "glorot_normal": _init.glorot_normal(),
    "he_uniform": _init.he_uniform(),
    "he_normal": _init.he_normal(),
    "lecun_uniform": _init.lecun_uniform(),
    "lecun_normal": _init.lecun_normal(),
    "orthogonal": _init.orthogonal(),
}

# The same for kernels with outputs first: (outputs, inputs, *window).
_OUTPUTS_FIRST: dict[str, Callable[..., Any]] = {
    name: getattr(_init, name)(in_axis=1, out_axis=0)
    for name in INITIALISERS
    if name.startswith(("glorot", "he", "lecun"))
}


def named(init: Initialiser, *, outputs_first: bool = False) -> Callable[..., Any]:
    """Return an initialiser: a function of (key, shape, dtype).

    **Arguments:**

    - `init`: a name in `INITIALISERS`, a number that all elements get, or such a
      function itself.
    - `outputs_first`: whether kernels are (outputs, inputs, ...).

    **Raises:** `ParameterError` for an unknown name.

    >>> named("ones")(jax.random.key(0), (2,), "float32").tolist()
    [1.0, 1.0]
    """
    if callable(init):
        return init
    if isinstance(init, int | float):
        return lambda key, shape, dtype: jnp.full(shape, init, dtype)
    if outputs_first and init in _OUTPUTS_FIRST:
        return _OUTPUTS_FIRST[init]
    if init not in INITIALISERS:
        raise ParameterError(
            f"initialiser {init!r} is unknown; there are {', '.join(INITIALISERS)}, a "
            "number, or a function of (key, shape, dtype)"
        )
    return INITIALISERS[init]
