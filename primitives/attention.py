"""Attention: the public function and the declaration."""

from typing import Literal

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives import attention_reference
from tilejax.primitives.attention_checks import check, number, window_of
from tilejax.primitives.attention_cost import cost, rule
from tilejax.primitives.define import define


def attention(
    q: jax.typing.ArrayLike,
    k: jax.typing.ArrayLike,
    v: jax.typing.ArrayLike,
    bias: jax.typing.ArrayLike | None = None,
    mask: jax.typing.ArrayLike | None = None,
    *,
    q_segments: jax.typing.ArrayLike | None = None,
    kv_segments: jax.typing.ArrayLike | None = None,
    scale: float | None = None,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    soft_cap: float | None = None,
    masked_rows: Literal["zeros", "uniform"] = "zeros",
    layout: Literal["bhsd", "bshd"] = "bhsd",
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """Compute `softmax(scale * q @ k.T + bias, where=visible) @ v`.

    Scores and softmax are in float32 (float64 for float64); the weights are cast to the
    dtype of `v` before they meet it. With a soft cap, scores are `cap * tanh(s / cap)`
    before the bias. Key j is visible to query i if it passes every test that is given:
    causal, `j <= i`; window, `i - left <= j <= i + right`; equal segments; a true mask.
    Neither pass keeps an array of the size of the scores, save a bias and its gradient.

    **Arguments:**

    - `q`: (batch, query heads, queries, depth), floating.
    - `k`: (batch, key heads, keys, depth); key heads divide query heads, and each
      serves as many neighbouring query heads as there are for it.
    - `v`: (batch, key heads, keys, value depth), of one dtype with `q` and `k`.
    - `bias`: floating; `mask`: boolean; each (batch or 1, query heads or 1, queries,
      keys) in both layouts, or with fewer axes, in front of which come ones.
    - `q_segments`: (batch, queries), `kv_segments`: (batch, keys), integers; or none.
    - `scale`: `1 / sqrt(depth)` by default.
    - `window`: neighbours to the left and right; one number for both.
    - `soft_cap`: positive.
    - `masked_rows`: what a query gets that sees no key: "zeros", or "uniform", the mean
      of all values, as `jax.nn.dot_product_attention` gives.
    - `layout`: "bshd" takes and gives (batch, queries, heads, depth).
    - `precision`: of both products, as `jax.numpy.einsum` takes it.

    **Returns:** (batch, query heads, queries, value depth), or as `layout` says, in the
    dtype of `q`.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`.

    >>> q = k = jnp.ones((1, 2, 3, 4))
    >>> v = jnp.arange(3.0).reshape(1, 1, 3, 1) * jnp.ones((1, 2, 1, 1))
    >>> attention(q, k, v, causal=True)[0, 0, :, 0].tolist()
    [0.0, 0.5, 1.0]
    """
    if layout not in ("bhsd", "bshd"):
        raise ParameterError(f"attention: layout={layout!r} is neither bhsd nor bshd")
    q, k, v = (_to_heads_first(at, x, layout) for at, x in enumerate((q, k, v)))
    if scale is None:
        scale = q.shape[3] ** -0.5 if q.shape[3] else 1.0
    o, _ = attention_op(
        q,
        k,
        v,
        _with_four_axes(3, bias),
        _with_four_axes(4, mask),
        q_segments,
        kv_segments,
        scale=number("scale", scale),
        causal=bool(causal),
        window=window_of(window),
        soft_cap=None if soft_cap is None else number("soft_cap", soft_cap),
        masked_rows=masked_rows,
        precision=precision,
    )
    return o if layout == "bhsd" else jnp.swapaxes(o, 1, 2)


def _to_heads_first(at: int, x, layout: str) -> jax.Array:
    x, label = attention_op.array(at, x), "qkv"[at]
    if x.ndim != 4:
        middle = "heads, length" if layout == "bhsd" else "length, heads"
        raise ShapeError(
            f"attention: {label} has shape {x.shape}; it needs four axes, with layout="
            f"{layout!r} (batch, {middle}, depth)"
        )
    return x if layout == "bhsd" else jnp.swapaxes(x, 1, 2)


def _with_four_axes(at: int, x) -> jax.Array | None:
    if x is None:
        return None
    x, label = attention_op.array(at, x), "bias" if at == 3 else "mask"
    if not 2 <= x.ndim <= 4:
        raise ShapeError(
            f"attention: {label} has shape {x.shape}; it needs two to four axes, the "
            "last of them queries and keys"
        )
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


attention_op = define(
    "attention",
    reference=attention_reference.forward,
    sharding=rule,
    backward=attention_reference.backward,
    saves=(0, 1),
    cost=cost,
    check=check,
)
