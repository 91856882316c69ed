"""Activation functions."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.ops.checks import has_axes, kinds
from tilejax.ops.registry import Operation, Sample, declare as _declare

declare = partial(_declare, family="activations")


def _activation(
    name: str, function: Callable, doc: str, oracle: Callable, **params
) -> Operation:
    return declare(
        name,
        function,
        doc,
        check=kinds("number", "x"),
        oracle=oracle,
        samples=[Sample("f32[2,4]", params)],
    )


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softplus(x):
    return np.log1p(np.exp(x))


def _gelu_tanh(x, approximate=True):
    assert approximate
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _halves(x, axis=-1):
    left, right = np.split(x, 2, axis)
    return left * _sigmoid(right)


relu = _activation("relu", jax.nn.relu, "Clip below 0.", lambda x: np.maximum(x, 0))
relu6 = _activation("relu6", jax.nn.relu6, "Clip to 0..6.", lambda x: np.clip(x, 0, 6))
leaky_relu = _activation(
    "leaky_relu",
    jax.nn.leaky_relu,
    "Multiply what is below 0 by a small slope.",
    lambda x, negative_slope: np.where(x >= 0, x, negative_slope * x),
    negative_slope=0.1,
)
elu = _activation(
    "elu",
    jax.nn.elu,
    "Give alpha (exp(x) - 1) below 0.",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    alpha=0.5,
)
selu = _activation(
    "selu",
    jax.nn.selu,
    "Apply the self-normalising ELU.",
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
)
gelu = _activation(
    "gelu",
    jax.nn.gelu,
    "Multiply by the normal distribution, by tanh or exactly (approximate=False).",
    _gelu_tanh,
)
silu = _activation(
    "silu", jax.nn.silu, "Multiply by the sigmoid.", lambda x: x * _sigmoid(x)
)
sigmoid = _activation("sigmoid", jax.nn.sigmoid, "Give 1 / (1 + exp(-x)).", _sigmoid)
log_sigmoid = _activation(
    "log_sigmoid",
    jax.nn.log_sigmoid,
    "Take the logarithm of the sigmoid.",
    lambda x: np.log(_sigmoid(x)),
)
softplus = _activation("softplus", jax.nn.softplus, "Give log(1 + exp(x)).", _softplus)
softsign = _activation(
    "softsign", jax.nn.soft_sign, "Give x / (1 + |x|).", lambda x: x / (1 + np.abs(x))
)
mish = _activation(
    "mish",
    lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "Give x tanh(log(1 + exp(x))).",
    lambda x: x * np.tanh(_softplus(x)),
)
hard_sigmoid = _activation(
    "hard_sigmoid",
    jax.nn.hard_sigmoid,
    "Give x / 6 + 1/2, clipped to 0..1.",
    lambda x: np.clip(x + 3, 0, 6) / 6,
)
hard_swish = _activation(
    "hard_swish",
    jax.nn.hard_swish,
    "Multiply by the hard sigmoid.",
    lambda x: x * np.clip(x + 3, 0, 6) / 6,
)
glu = declare(
    "glu",
    jax.nn.glu,
    "Multiply the first half of an axis by the sigmoid of the second.",
    check=has_axes(),
    oracle=_halves,
    samples=["f32[2,4]", Sample("f32[4,3]", {"axis": 0})],
)
