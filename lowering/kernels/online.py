"""Softmax statistics of a row that is seen tile by tile."""

import jax
import jax.numpy as jnp


def online_step(
    tile: jax.Array, maximum: jax.Array, total: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Add a tile of a row to the row's running maximum and sum of exponentials.

    The sum is kept relative to the maximum: `total = sum(exp(x - maximum))` over what
    was seen. When the maximum rises, the old sum shrinks by `exp(old - new)`, and so
    must whatever else the caller accumulated with the old weights.

    A maximum of -inf (nothing but -inf so far) is replaced by zero in the exponent, or
    `-inf - -inf` would turn an empty start into NaN. One of +inf is not: a row with
    +inf in it has a NaN sum, as its softmax is NaN.

    **Arguments:**

    - `tile`: `[rows, columns]`, -inf where it is masked.
    - `maximum`, `total`: `[rows, 1]`, -inf and 0 at the start.

    **Returns:**

    The weights `exp(tile - maximum)`, the new maximum, the new sum, and the factor by
    which earlier sums shrink.

        >>> start = jnp.array([[-jnp.inf]]), jnp.array([[0.0]])
        >>> _, maximum, total, _ = online_step(jnp.array([[5.0, 5.0]]), *start)
        >>> maximum.tolist(), total.tolist()
        ([[5.0]], [[2.0]])
    """
    highest = jnp.maximum(maximum, jnp.max(tile, axis=1, keepdims=True))
    reference = jnp.where(highest == -jnp.inf, 0.0, highest)
    weights = jnp.exp(tile - reference)
    shrink = jnp.exp(maximum - reference)
    return (
        weights,
        highest,
        total * shrink + jnp.sum(weights, axis=1, keepdims=True),
        shrink,
    )


def log_sum(maximum: jax.Array, total: jax.Array) -> jax.Array:
    """Return `log(sum(exp(row)))` from the row's maximum and relative sum.

    It is -inf for a row of nothing but -inf, and +inf for a row with +inf in it (whose
    `total` is NaN).

    **Arguments:**

    - `maximum`, `total`: `[rows, 1]`, from `online_step`.

    **Returns:**

    `[rows, 1]`.

        >>> log_sum(jnp.array([[5.0]]), jnp.array([[1.0]])).tolist()
        [[5.0]]
    """
    reference = jnp.where(maximum == -jnp.inf, 0.0, maximum)
    return jnp.where(maximum == jnp.inf, jnp.inf, reference + jnp.log(total))
