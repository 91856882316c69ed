"""Mistakes in calls of the row operations and attention, one of each kind."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.attention import attention
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.group_norm import group_norm
from tilejax.primitives.norms import layer_norm, rms_norm
from tilejax.primitives.softmax import log_softmax, softmax

X = jnp.ones((2, 6))
IDS = jnp.zeros((2, 6), jnp.int32)
TEXT: Any = "abc"
Q = jnp.ones((2, 4, 5, 3))
KV = jnp.ones((2, 2, 7, 3))
HALF = KV.astype(jnp.float16)
ROWS = jnp.zeros((2, 5), jnp.int32)


def _attend(**changed):
    return lambda: attention(**{"q": Q, "k": KV, "v": KV, **changed})


MISTAKES = [
    (lambda: softmax(IDS), DTypeError, r"softmax: operand 0 is int32\[2,6\]"),
    (lambda: softmax(TEXT), DTypeError, "softmax: operand 0 is no array"),
    (lambda: softmax(X, axis=2), ParameterError, r"axis 2 .* \(2, 6\); give axes"),
    (lambda: log_softmax(X, axis=(0, -2)), ParameterError, "twice"),
    (lambda: softmax(1.0, axis=0), ParameterError, "axis 0 is out of range"),
    (lambda: cross_entropy(X, X[:, 0]), DTypeError, "labels must be integers"),
    (lambda: cross_entropy(IDS, IDS[:, 0]), DTypeError, "logits must be of float16"),
    (lambda: cross_entropy(X, IDS), ShapeError, r"int32\[2, 6\].*without their last"),
    (lambda: layer_norm(X, X), ShapeError, r"scale has shape \(2, 6\).*\(6,\)"),
    (lambda: layer_norm(X, None, X[0, :3]), ShapeError, "bias has shape"),
    (lambda: layer_norm(IDS), DTypeError, "x is int32"),
    (lambda: layer_norm(X, eps=-1.0), ParameterError, "must not be negative"),
    (lambda: layer_norm(X, eps=TEXT), ParameterError, "is no number"),
    (lambda: rms_norm(X, IDS[0]), DTypeError, "scale is int32"),
    (lambda: rms_norm(1.0), ShapeError, "single number"),
    (
        lambda: jax.jit(lambda e: rms_norm(X, eps=e))(1e-6),
        ParameterError,
        "static",
    ),
    (lambda: group_norm(X, groups=4), ParameterError, "groups=4 must divide the 6"),
    (lambda: group_norm(X[0], groups=1), ShapeError, "needs a batch axis"),
    (lambda: group_norm(X, groups=2, channel_axis=0), ShapeError, "channel_axis=0"),
    (_attend(q=Q[0]), ShapeError, r"q has shape \(4, 5, 3\); it needs four axes"),
    (_attend(q=Q[:, :3]), ShapeError, "3 query heads are no multiple of 2 key heads"),
    (_attend(q=Q[..., :2]), ShapeError, "q and k must have one depth"),
    (_attend(q=Q[:1]), ShapeError, "their batches differ"),
    (_attend(v=KV[:, :, 1:]), ShapeError, "k and v must agree"),
    (_attend(k=HALF), DTypeError, "float32, float16 and float32"),
    (_attend(mask=jnp.ones((5, 7))), DTypeError, "mask is float32; it must be boolean"),
    (_attend(bias=jnp.ones((5, 7), bool)), DTypeError, "a boolean is a mask"),
    (_attend(bias=jnp.ones((3, 5, 7))), ShapeError, r"must be \(2, 4, 5, 7\), 1 allow"),
    (_attend(mask=jnp.ones(7, bool)), ShapeError, "two to four axes"),
    (_attend(q_segments=ROWS), ParameterError, "kv_segments is missing"),
    (
        _attend(q_segments=ROWS, kv_segments=ROWS),
        ShapeError,
        r"kv_segments has shape \(2, 5\); it must be \(2, 7\)",
    ),
    (
        _attend(q_segments=ROWS * 1.0, kv_segments=ROWS),
        DTypeError,
        "q_segments is float32",
    ),
    (_attend(window=-1), ParameterError, "window=-1"),
    (_attend(window=(1, 2, 3)), ParameterError, r"window=\(1, 2, 3\)"),
    (_attend(soft_cap=0.0), ParameterError, "soft_cap=0.0 must be positive"),
    (_attend(masked_rows="ones"), ParameterError, "'ones' is neither"),
    (_attend(layout="sbhd"), ParameterError, "layout='sbhd'"),
    (_attend(scale=jnp.ones(2)), ParameterError, "no static number"),
    (
        lambda: jax.jit(lambda s: attention(Q, KV, KV, scale=s))(0.5),
        ParameterError,
        "multiply q by it",
    ),
]


@pytest.mark.parametrize(("call", "kind", "says"), MISTAKES)
def test_a_mistake_says_what_and_where(call, kind, says):
    with pytest.raises(kind, match=says):
        call()


def test_an_option_that_attention_lacks_is_refused_by_name():
    with pytest.raises(TypeError, match="dropout"):
        attention(Q, KV, KV, dropout=0.1)  # pyright: ignore[reportCallIssue]
