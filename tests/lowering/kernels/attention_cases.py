"""Attention as plain mathematics, operands for it, and one check for all tests."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.lowering.kernels.agreement import assert_agree, exactly_with_cotangents
from tilejax.lowering.kernels.attention import AttentionConfig, attention
from tilejax.lowering.kernels.attention_backward import attention_backward

NAMES = ("q", "k", "v", "bias", "mask", "q_segments", "kv_segments")


@dataclass(frozen=True)
class Sizes:
    """Of one attention; `bias` and `mask` are the leading sizes of theirs."""

    batch: int = 2
    query_heads: int = 2
    key_heads: int = 2
    queries: int = 11
    keys: int = 13
    depth: int = 8
    value_depth: int = 5
    bias: tuple[int, int] | None = None
    mask: tuple[int, int] | None = None
    segments: bool = False
    params: dict[str, Any] = field(default_factory=dict)


def operands(rng: np.random.Generator, sizes: Sizes, dtype: Any = "float32") -> list:
    """Random operands; a mask and segments leave some queries without any key."""
    s = sizes

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    def integers(high, *shape):
        return jnp.asarray(rng.integers(0, high, shape), "int32")

    mask = None
    if s.mask is not None:
        mask = rng.random((*s.mask, s.queries, s.keys)) < 0.5
        mask[..., s.queries // 2, :] = False
        mask = jnp.asarray(mask)
    return [
        normal(s.batch, s.query_heads, s.queries, s.depth),
        normal(s.batch, s.key_heads, s.keys, s.depth),
        normal(s.batch, s.key_heads, s.keys, s.value_depth),
        None if s.bias is None else normal(*s.bias, s.queries, s.keys),
        mask,
        integers(3, s.batch, s.queries) if s.segments else None,
        integers(2, s.batch, s.keys) if s.segments else None,
    ]


def reference(
    q,
    k,
    v,
    bias=None,
    mask=None,
    q_segments: Any = None,
    kv_segments: Any = None,
    *,
    scale: float,
    causal: bool = False,
    window: Any = None,
    soft_cap=None,
    masked_rows="zeros",
):
    """All scores at once, in whatever type the operands have."""
    group = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(x, group, axis=1) for x in (k, v))
    score = jnp.einsum("bhsd,bhtd->bhst", q, k) * scale
    if soft_cap is not None:
        score = soft_cap * jnp.tanh(score / soft_cap)
    if bias is not None:
        score = score + bias
    queries, keys = score.shape[2:]
    i, j = np.arange(queries)[:, None], np.arange(keys)[None, :]
    seen = np.ones((queries, keys), bool)
    if causal:
        seen &= j <= i
    if window is not None:
        seen &= (i - window[0] <= j) & (j <= i + window[1])
    seen = jnp.broadcast_to(jnp.asarray(seen), score.shape)
    if q_segments is not None:
        seen &= q_segments[:, None, :, None] == kv_segments[:, None, None, :]
    if mask is not None:
        seen &= mask
    some = jnp.any(seen, axis=3)
    # Of a query without keys the scores are taken as they are, and the result replaced.
    score = jnp.where(seen | ~some[..., None], score, -jnp.inf)
    lse = jax.nn.logsumexp(score, axis=3)
    weights = jnp.exp(score - lse[..., None])
    instead = 1.0 / max(keys, 1) if masked_rows == "uniform" else 0.0
    weights = jnp.where(some[..., None], weights, instead)
    return jnp.einsum("bhst,bhtd->bhsd", weights, v), jnp.where(some, lse, -jnp.inf)


def kernels(given, cotangents, params, config, interpret):
    """Run the forward kernel and the three backward ones."""
    options = dict(**params, config=config, interpret=interpret)
    out = attention(*given, **options)
    operands = [*given, *out, *cotangents]
    return out, attention_backward(*operands, **options)


def check(
    given: list,
    params: dict[str, Any],
    config: AttentionConfig,
    interpret: Any = True,
) -> None:
    """Compare values and gradients with the reference in float64."""
    rng = np.random.default_rng(0)
    q, _, v, *_ = given
    wide = "float64" if q.dtype == jnp.float64 else "float32"
    do = jnp.asarray(rng.normal(size=(*q.shape[:3], v.shape[3])), q.dtype)
    dlse = jnp.asarray(rng.normal(size=q.shape[:3]), wide)
    params = {"scale": 0.4, **params}

    def plain(*some):
        o, lse = reference(*some, **params)
        # The logsumexp of no keys is a constant.
        return o, jnp.where(jnp.isinf(lse), -jnp.inf, lse)

    out, grads = jax.jit(lambda a, b: kernels(a, b, params, config, interpret))(
        given, (do, dlse)
    )
    assert out[0].dtype == q.dtype and out[1].dtype == wide
    want_out, wanted = exactly_with_cotangents(plain, (do, dlse), *given)
    for name, got, want in zip(("o", "lse"), out, want_out, strict=True):
        assert_agree(got, want, q.dtype, name)
    for name, x, got, want in zip(NAMES, given[:4], grads, wanted, strict=False):
        assert (got is None) == (x is None)
        if got is not None:
            assert got.dtype == x.dtype
            assert_agree(got, want, q.dtype, f"d{name}")
