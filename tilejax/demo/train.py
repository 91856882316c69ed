"""The steps of the training, compiled by TileJAX and, to compare, by JAX alone."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tilejax.demo.model import PLAIN, TILED, Operations, Transformer, loss
from tilejax.front.filter_jit import filter_jit

# Raised before it is differentiated, so that attention keeps no scores.
tiled_loss = filter_jit(loss)


def optimizer(steps: int) -> optax.GradientTransformation:
    """Adam with a warm-up and a cosine's half, gradients clipped."""
    warm_up = min(max(1, steps // 15), steps - 1)
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, warm_up, steps)
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98, weight_decay=0.05)
    )


def gradients(model: Transformer, pieces: jax.Array, ops: Operations):
    """Return the loss and its gradients."""
    of = tiled_loss if ops is TILED else loss
    return eqx.filter_value_and_grad(of)(model, pieces, ops)


def make_step(
    optimiser: optax.GradientTransformation,
    ops: Operations = TILED,
    donate: Any = "all-except-first",
):
    """Return the training step: (model, state, pieces) to (model, state, loss).

    **Arguments:**

    - `ops`: `PLAIN` makes it plain JAX, compiled by Equinox.
    - `donate`: as `equinox.filter_jit` takes it.
    """

    def step(model: Transformer, state: Any, pieces: jax.Array):
        value, grads = gradients(model, pieces, ops)
        updates, state = optimiser.update(
            grads, state, eqx.filter(model, eqx.is_inexact_array)
        )
        return eqx.apply_updates(model, updates), state, value

    compiler = eqx.filter_jit if ops is PLAIN else filter_jit
    return compiler(step, donate=donate)


def agreement(model: Transformer, pieces: jax.Array) -> tuple[float, float, float]:
    """Compare the first step with plain JAX.

    **Returns:** both losses, and the greatest difference of a gradient over the
    greatest gradient.
    """
    ours, our_grads = filter_jit(gradients)(model, pieces, TILED)
    theirs, their_grads = eqx.filter_jit(gradients)(model, pieces, PLAIN)
    one, two = (jax.tree.leaves(g) for g in (our_grads, their_grads))
    largest = max(float(jnp.max(jnp.abs(g))) for g in two)
    apart = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(one, two, strict=True))
    return float(ours), float(theirs), apart / largest


@filter_jit
def _next(model: Transformer, window: jax.Array, last: jax.Array, key: jax.Array):
    logits = model(window[None], TILED)[0, last]
    return jax.random.categorical(key, logits / 0.7)


def sample(model: Transformer, start: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Continue `start` by `count` characters, drawn one by one.

    **Returns:** the new characters, `int[count]`.
    """
    length = model.places.shape[0]
    window = np.zeros(length, np.int32)
    have = min(len(start), length // 2)
    window[:have] = start[len(start) - have :]
    found = []
    for key in jax.random.split(jax.random.key(seed), count):
        drawn = int(_next(model, jnp.asarray(window), jnp.asarray(have - 1), key))
        found.append(drawn)
        if have == length:
            window[:-1] = window[1:].copy()
            have -= 1
        window[have] = drawn
        have += 1
    return np.array(found)
