"""A character-level transformer in Equinox, its operations given from outside."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.norms import rms_norm


@dataclass(frozen=True)
class Operations:
    """The operations of the model that TileJAX also has by name.

    **Arguments:**

    - `rms_norm`: `(x[..., d], scale[d])` to the shape of `x`.
    - `cross_entropy`: `(logits[..., v], labels[...])` to a loss a label.
    """

    rms_norm: Callable[..., Any]
    cross_entropy: Callable[..., Any]


def _plain_rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def _plain_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


PLAIN = Operations(_plain_rms_norm, _plain_cross_entropy)
TILED = Operations(lambda x, scale: rms_norm(x, scale, eps=1e-6), cross_entropy)


@dataclass(frozen=True)
class Size:
    """How large the model is."""

    width: int = 128
    heads: int = 4
    layers: int = 2
    length: int = 64


class Block(eqx.Module):
    """Attention and a feed-forward part, each added to what comes in."""

    norms: jax.Array
    qkv: jax.Array
    out: jax.Array
    up: jax.Array
    down: jax.Array
    heads: int = eqx.field(static=True)

    def __init__(self, size: Size, key: jax.Array):
        d, keys = size.width, jax.random.split(key, 4)
        self.norms = jnp.ones((2, d))
        self.qkv = _weights(keys[0], d, 3 * d)
        self.out = _weights(keys[1], d, d) / (2 * size.layers) ** 0.5
        self.up = _weights(keys[2], d, 4 * d)
        self.down = _weights(keys[3], 4 * d, d) / (2 * size.layers) ** 0.5
        self.heads = size.heads

    def __call__(self, x: jax.Array, ops: Operations) -> jax.Array:
        """Map `[batch, length, width]` to the same."""
        b, s, d = x.shape
        qkv = ops.rms_norm(x, self.norms[0]) @ self.qkv
        q, k, v = jnp.moveaxis(qkv.reshape(b, s, 3, self.heads, -1), 2, 0)
        seen = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + seen.reshape(b, s, d) @ self.out
        return x + jax.nn.gelu(ops.rms_norm(x, self.norms[1]) @ self.up) @ self.down


class Transformer(eqx.Module):
    """Embeddings, blocks, and logits for the next character."""

    characters: jax.Array
    places: jax.Array
    blocks: list[Block]
    norm: jax.Array
    head: jax.Array

    def __init__(self, alphabet: int, size: Size, key: jax.Array):
        keys = jax.random.split(key, 3 + size.layers)
        self.characters = 0.3 * jax.random.normal(keys[0], (alphabet, size.width))
        self.places = 0.3 * jax.random.normal(keys[1], (size.length, size.width))
        self.blocks = [Block(size, k) for k in keys[3:]]
        self.norm = jnp.ones(size.width)
        self.head = _weights(keys[2], size.width, alphabet)

    def __call__(self, tokens: jax.Array, ops: Operations) -> jax.Array:
        """Map `int32[batch, length]` to logits `[batch, length, alphabet]`."""
        x = self.characters[tokens] + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, ops)
        return ops.rms_norm(x, self.norm) @ self.head


def _weights(key: jax.Array, inputs: int, outputs: int) -> jax.Array:
    return jax.random.normal(key, (inputs, outputs)) * inputs**-0.5


def loss(model: Transformer, pieces: jax.Array, ops: Operations) -> jax.Array:
    """Return the mean cross-entropy, in nats a character, of `pieces[batch, n + 1]`."""
    logits = model(pieces[:, :-1], ops)
    return jnp.mean(ops.cross_entropy(logits, pieces[:, 1:]))
