"""How one does it in JAX alone."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax

from benchmarks.cpu.cases import Case
from benchmarks.cpu.compiled import Compiled

_F32 = jnp.float32


def _product(case: Case) -> Callable:
    sums = jnp.int32 if case.dtype == "int8" else None
    return partial(jnp.matmul, preferred_element_type=sums)


def _layer_norm(x, scale, bias):
    wide = x.astype(_F32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return (normal * scale + bias).astype(x.dtype)


def _rms_norm(x, scale):
    wide = x.astype(_F32)
    normal = wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
    return (normal * scale).astype(x.dtype)


def _cross_entropy(logits, labels):
    wide = logits.astype(_F32)
    return optax.softmax_cross_entropy_with_integer_labels(wide, labels)


def _embedding_bag(table, ids):
    return table[ids].astype(_F32).sum(1).astype(table.dtype)


def _conv(case: Case) -> Callable:
    space = len(case.sizes["window"])
    names = ("NWC", "WIO", "NWC") if space == 1 else ("NHWC", "HWIO", "NHWC")
    return partial(
        jax.lax.conv_general_dilated,
        window_strides=(1,) * space,
        padding="SAME",
        dimension_numbers=names,
        feature_group_count=case.sizes["x"][-1],
    )


FUNCTIONS: dict[str, Callable[[Case], Callable]] = {
    "matmul": _product,
    "matvec": _product,
    "attention": lambda case: partial(
        jax.nn.dot_product_attention, is_causal=case.sizes["causal"]
    ),
    "softmax": lambda case: jax.nn.softmax,
    "layer_norm": lambda case: _layer_norm,
    "rms_norm": lambda case: _rms_norm,
    "cross_entropy": lambda case: _cross_entropy,
    "embedding_bag": lambda case: _embedding_bag,
    "depthwise_conv": _conv,
}


class InJax(Compiled):
    """JAX's side of a case."""

    def __init__(self, case: Case):
        # Its attention takes heads after the length.
        self.turned = case.family == "attention"
        super().__init__(case, FUNCTIONS[case.family](case))

    def arranged(self, x: jax.Array) -> jax.Array:
        return x.swapaxes(1, 2) if self.turned else x
