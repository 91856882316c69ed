"""Attention, lookups and losses over a vocabulary, and dropout."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax import primitives
from tilejax.errors import DTypeError, ParameterError
from tilejax.ops.checks import all_of, kinds, typed
from tilejax.ops.registry import Sample, declare as _declare

declare = partial(_declare, family="sequences")


def _dropout(x, key=None, *, rate):
    if key is None or rate == 0:
        return x
    kept = jax.random.bernoulli(key, 1 - rate, jnp.shape(x))
    return jnp.where(kept, x / (1 - rate), 0).astype(jnp.result_type(x))


def _is_rate(name: str, given: Mapping[str, Any]) -> None:
    rate = given.get("rate")
    if not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise ParameterError(
            f"{name}: rate={rate!r}; it is the share that is dropped, from 0 to below 1"
        )
    if given.get("key") is not None:
        key = typed(given["key"])
        is_raw = key.shape == (2,) and key.dtype == jnp.uint32
        if not is_raw and not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            raise DTypeError(
                f"{name}: key is {key.dtype}{list(key.shape)}; give a key of "
                "jax.random.key, or None to drop nothing"
            )


def _entropy_oracle(logits, labels):
    rows = np.log(np.exp(logits).sum(-1))
    return rows - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def _attention_oracle(q, k, v):
    scores = np.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.einsum("bhst,bhtd->bhsd", weights, v)


attention = declare(
    "attention",
    primitives.attention,
    "Compute softmax(scale * q @ k.T + bias, where=visible) @ v.",
    operands="q, k, v, bias, mask",
    oracle=_attention_oracle,
    samples=["f32[1,2,5,4] f32[1,2,6,4] f32[1,2,6,3]"],
)
embedding = declare(
    "embedding",
    primitives.embedding,
    "Look up a row for each index.",
    operands="table, ids",
    oracle=lambda table, ids: table[ids],
    samples=["f32[5,3] i32[2,4]<5"],
)
embedding_bag = declare(
    "embedding_bag",
    primitives.embedding_bag,
    "Look up a bag of rows and add them up.",
    operands="table, ids, weights",
    oracle=lambda table, ids, mode="sum": getattr(np, mode)(table[ids], -2),
    samples=["f32[5,3] i32[2,4]<5", Sample("f32[5,3] i32[2,4]<5", {"mode": "mean"})],
)
cross_entropy = declare(
    "cross_entropy",
    primitives.cross_entropy,
    "Compute the loss of each row of logits against its label.",
    operands="logits, labels",
    oracle=_entropy_oracle,
    samples=["f32[4,6] i32[4]<6"],
)
dropout = declare(
    "dropout",
    _dropout,
    "Drop a share of the elements at random and enlarge the others; none without key.",
    operands="x, key",
    check=all_of(kinds("floating", "x"), _is_rate),
    oracle=lambda x, rate: x,
    samples=[Sample("f32[2,3]", {"rate": 0.5})],
)
