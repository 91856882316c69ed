"""What is kept between a forward and a backward pass: never a second big array."""

import jax
import jax.numpy as jnp
import pytest

from tilejax.primitives.attention import attention
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.group_norm import group_norm
from tilejax.primitives.norms import layer_norm, rms_norm
from tilejax.primitives.softmax import log_softmax, softmax


def _x(*shape):
    return jnp.linspace(-1, 1, 8 * 16 * 32).reshape(-1)[: _size(shape)].reshape(shape)


def _size(shape):
    size = 1
    for n in shape:
        size *= n
    return size


_QKV = (_x(1, 2, 32, 4),) * 3
_LABELS = jnp.zeros(16, jnp.int32)
_ROW = jnp.ones(32)

# function, operands, how many floating numbers may be kept beside the operands
CASES = {
    "attention": (attention, _QKV, _x(1, 2, 32, 5).size),
    "attention with all options": (
        lambda q, k, v, bias: attention(
            q, k, v, bias, causal=True, window=9, soft_cap=3.0
        ),
        (*_QKV, _x(1, 1, 32, 32)),
        _x(1, 2, 32, 5).size,
    ),
    "cross-entropy": (lambda x: cross_entropy(x, _LABELS), (_x(16, 32),), 16),
    "layer norm": (layer_norm, (_x(16, 32), _ROW, _ROW), 2 * 16),
    "rms norm": (rms_norm, (_x(16, 32), _ROW), 16),
    "group norm": (
        lambda x, s, b: group_norm(x, s, b, groups=2),
        (_x(2, 8, 32), _ROW, _ROW),
        2 * 2 * 2,
    ),
    "softmax": (softmax, (_x(16, 32),), 16 * 32),
    "log-softmax": (log_softmax, (_x(16, 32),), 16 * 32),
}


def kept(fun, operands) -> tuple[int, list]:
    """How many floating numbers a pullback holds, and in which shapes."""
    _, pullback = jax.vjp(jax.jit(fun), *operands)
    floats = [
        x
        for x in jax.tree.leaves(pullback)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return sum(x.size for x in floats), [x.shape for x in floats]


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_kept_than_the_operands_and_what_the_backward_reads(name):
    fun, operands, allowed = CASES[name]
    size, shapes = kept(fun, operands)
    assert size <= sum(x.size for x in operands) + allowed, f"{name} keeps {shapes}"


def test_plain_attention_would_keep_the_scores():
    def plain(q, k, v):
        p = jax.nn.softmax(jnp.einsum("bhsd,bhtd->bhst", q, k))
        return jnp.einsum("bhst,bhtd->bhsd", p, v)

    size, shapes = kept(plain, _QKV)
    assert size > sum(x.size for x in _QKV) + CASES["attention"][2]
    assert (1, 2, 32, 32) in shapes
