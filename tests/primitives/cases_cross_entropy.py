"""Cases of cross-entropy."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.cross_entropy import cross_entropy, cross_entropy_with_lse


def _make(*shape, outside=False):
    def make(rng):
        labels = rng.integers(0, max(1, shape[-1]), shape[:-1]).astype(np.int32)
        if outside:
            labels.reshape(-1)[:2] = (-1, shape[-1])
        return [rng.normal(size=shape) * 2, labels]

    return make


def _wide(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _reference_with_lse(logits, labels):
    hot = jnp.arange(logits.shape[-1]) == labels[..., None]
    lse = jax.nn.logsumexp(_wide(logits), axis=-1)
    return lse - jnp.sum(jnp.where(hot, _wide(logits), 0), -1), lse


def _reference(logits, labels):
    known = (labels >= 0) & (labels < logits.shape[-1])
    return jnp.where(known, _reference_with_lse(logits, labels)[0], 0)


def _oracle(logits, labels):
    top = logits.max(-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return lse - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def _kept(logits, labels):
    """Out-of-range labels are dropped by the caller, their gradients with them."""
    loss = cross_entropy(logits, labels)
    return jnp.where((labels >= 0) & (labels < logits.shape[-1]), loss, 0)


CASES = [
    Case(
        "cross_entropy",
        cross_entropy,
        _reference,
        _make(8, 6),
        oracle=_oracle,
        layouts=(
            (("x", None), ("x",)),
            (("x", "y"), ("x",)),
            ((None, None), ("x",)),
        ),
        local=(0,),
        # the derived one gathers two parts of the gradient before it adds them up
        fewer={(2, "explicit", "gradient"): ({"all-gather": 1}, {"all-gather": 2})},
    ),
    Case(
        "cross_entropy with lse",
        cross_entropy_with_lse,
        _reference_with_lse,
        _make(4, 2, 5),
        layouts=((("x", "y", None), ("x", "y")),),
    ),
    Case(
        "cross_entropy of padding",
        _kept,
        _reference,
        _make(5, 7, outside=True),
        special=False,
    ),
    Case("cross_entropy of one row", cross_entropy, _reference, _make(5), thin=True),
    Case("cross_entropy of no rows", cross_entropy, _reference, _make(0, 5), thin=True),
    Case(
        "cross_entropy of one class", cross_entropy, _reference, _make(3, 1), thin=True
    ),
]
