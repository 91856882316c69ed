"""Functions with the heavy parts that the passes look for, and arguments for them.

Each takes a pytree of parameters and an input, both of floats, and returns a scalar.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_RNG = np.random.default_rng(7)


def _draw(*shape):
    return jnp.asarray(_RNG.normal(size=shape) / 2, jnp.float32)


def dense(p, x):
    """Two layers with bias, activation and a residual."""
    y = jax.nn.gelu(x @ p["w"] + p["b"])
    y = x + lax.dot_general(y, p["v"], (((1,), (1,)), ((), ())))
    return jnp.sum(y**2)


def batched(p, x):
    """Contractions with batch dimensions, outer and full."""
    y = jnp.einsum("bij,bkj->bik", x, p)
    return jnp.sum(jnp.sin(y)) + jnp.vdot(x, x) + jnp.sum(jnp.outer(x[0, 0], p[0, 0]))


def normalised(p, x):
    """Softmax, log-softmax and a norm."""
    y = jax.nn.softmax(x * p["scale"], axis=-1)
    z = jax.nn.log_softmax(x + p["bias"], axis=0)
    mean = jnp.mean(x, axis=-1, keepdims=True)
    n = (x - mean) * lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + 1e-5)
    return jnp.sum(y * z * n)


def attended(p, x):
    """Causal attention, by JAX's own function."""
    q, k, v = jnp.split(x @ p, 3, axis=-1)
    q, k, v = (a.reshape(2, 5, 2, 4) for a in (q, k, v))
    out = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return jnp.sum(out**2)


def convolved(p, x):
    """A strided convolution, and a depthwise one."""
    y = lax.conv_general_dilated(
        x, p["k"], (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = lax.conv_general_dilated(
        jnp.tanh(y),
        p["d"],
        (1, 1),
        [(1, 0), (0, 1)],
        rhs_dilation=(1, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=4,
    )
    return jnp.sum(y**2)


def looked_up(p, x):
    """Rows of a table by position, in and out of range, and a reordering."""
    ids = jnp.array([0, 3, 3, -1, 7])
    rows = p[ids] * x
    taken = jnp.take(p, jnp.array([[1, 2], [4, 0]]), axis=0)
    return jnp.sum(rows**2) + jnp.sum(jnp.cos(taken))


MODELS = {
    "dense": (
        dense,
        ({"w": _draw(4, 6), "b": _draw(6), "v": _draw(4, 6)}, _draw(3, 4)),
    ),
    "batched": (batched, (_draw(2, 3, 4), _draw(2, 5, 4))),
    "normalised": (normalised, ({"scale": _draw(7), "bias": _draw(5, 1)}, _draw(5, 7))),
    "attended": (attended, (_draw(6, 24), _draw(2, 5, 6))),
    "convolved": (
        convolved,
        ({"k": _draw(3, 2, 2, 4), "d": _draw(2, 2, 1, 4)}, _draw(2, 5, 4, 2)),
    ),
    "looked_up": (looked_up, (_draw(6, 3), _draw(5, 3))),
}
