"""Attention that never holds more than a tile of the scores, forward."""

import dataclasses
from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.attention_grid import Grid
from tilejax.lowering.kernels.attention_rule import (
    NN,
    Rule,
    real,
    scores,
    select,
    visible,
)
from tilejax.lowering.kernels.online import log_sum, online_step
from tilejax.lowering.kernels.tiles import accumulator, fit


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Tile of scores: `queries` by `keys`."""

    queries: int = 128
    keys: int = 128


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    q_segments: jax.Array | None = None,
    kv_segments: jax.Array | None = None,
    *,
    scale: float,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    soft_cap: float | None = None,
    masked_rows: Literal["zeros", "uniform"] = "zeros",
    precision: jax.lax.PrecisionLike = None,
    config: AttentionConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array]:
    """Compute `softmax(soft_cap(scale * q @ k.T) + bias, where=visible) @ v`.

    Key j is visible to query i if it passes every test there is: `j <= i` when causal;
    `i - left <= j <= i + right` for a window; equal segments; a true mask. A query that
    sees no key (or only scores of -inf) gives zeros, or with "uniform" the mean of all
    values. Tiles that causality or the window hide altogether are not computed.

    **Arguments:**

    - `q`: `[batch, query heads, queries, depth]`, floating.
    - `k`: `[batch, key heads, keys, depth]`; query heads are a multiple of key heads.
    - `v`: `[batch, key heads, keys, value depth]`.
    - `bias`: `[batch or 1, query heads or 1, queries, keys]`, floating, or `None`.
    - `mask`: The same of booleans, true where a key is visible.
    - `q_segments`, `kv_segments`: `[batch, queries]` and `[batch, keys]`, int32; both
      or neither.
    - `scale`: Of the scores.
    - `causal`, `window`: As above; the window is `(left, right)`, neither negative.
    - `soft_cap`: Bends scores to `soft_cap * tanh(scores / soft_cap)`.
    - `masked_rows`: What a query that sees no key gives: "zeros" or "uniform".
    - `precision`: Of the contractions, as `jax.lax.dot_general` takes it.
    - `config`: The tile.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    The output, `[batch, query heads, queries, value depth]` as `q`, and the logsumexp
    of the visible scores, `[batch, query heads, queries]`, float32 (float64 for
    float64), -inf where there are none.

        >>> q = k = jnp.zeros((1, 1, 2, 4))
        >>> v = jnp.array([[[[1.0], [3.0]]]])
        >>> config = AttentionConfig()
        >>> o, _ = attention(
        ...     q, k, v, scale=0.5, causal=True, config=config, interpret=True
        ... )
        >>> o.tolist()
        [[[[1.0], [2.0]]]]
    """
    operands = SimpleNamespace(
        q=q,
        k=k,
        v=v,
        bias=bias,
        mask=mask,
        q_segments=q_segments,
        kv_segments=kv_segments,
    )
    shape = (*q.shape[:3], v.shape[3])
    dtype = accumulator(q.dtype)
    if 0 in q.shape[:3] or k.shape[2] == 0:
        return jnp.zeros(shape, q.dtype), jnp.full(shape[:3], -jnp.inf, dtype)
    operands = with_depth(operands)
    rule = make_rule(
        operands, scale, causal, window, soft_cap, masked_rows, precision, config
    )
    grid = make_grid(operands, rule, "bhgqk", 1, interpret)
    depth = operands.v.shape[3]
    # What a query gets that sees nothing. The kernel needs no pass over all keys for it
    # then, and skips tiles all the same.
    mean = None
    if rule.spreads:
        mean = jnp.mean(operands.v.astype(dtype), axis=2, keepdims=True)
    out = grid.call(
        _kernel,
        "attention",
        inputs={**grid.inputs(operands), "mean": grid.head(mean)},
        outputs={
            "o": grid.query(jax.ShapeDtypeStruct((*shape[:3], depth), q.dtype)),
            "lse": grid.statistic(jax.ShapeDtypeStruct(shape[:3], dtype)),
        },
        scratch={
            "maximum": pltpu.VMEM((rule.tile_queries, 1), dtype),
            "total": pltpu.VMEM((rule.tile_queries, 1), dtype),
            "sums": pltpu.VMEM((rule.tile_queries, depth), dtype),
        },
    )
    o = out.o.reshape(*shape[:3], depth)[..., : shape[3]]
    return o, out.lse.reshape(shape[:3])


def make_rule(
    operands: SimpleNamespace,
    scale: float,
    causal: bool,
    window: tuple[int, int] | None,
    soft_cap: float | None,
    masked_rows: str,
    precision: jax.lax.PrecisionLike,
    config: AttentionConfig,
) -> Rule:
    """Return the rule for these operands, its tiles no larger than they are."""
    queries, keys = operands.q.shape[2], operands.k.shape[2]
    return Rule(
        queries=queries,
        keys=keys,
        tile_queries=fit(config.queries, queries),
        tile_keys=fit(config.keys, keys),
        scale=scale,
        causal=causal,
        window=window,
        soft_cap=soft_cap,
        uniform=masked_rows == "uniform",
        masked=any(
            x is not None for x in (operands.bias, operands.mask, operands.q_segments)
        ),
        precision=precision,
    )


def make_grid(
    operands: SimpleNamespace, rule: Rule, order: str, sequential: int, interpret: Any
) -> Grid:
    """Return the grid for these operands."""
    batch, query_heads = operands.q.shape[:2]
    heads = operands.k.shape[1]
    return Grid(batch, heads, query_heads // heads, rule, order, sequential, interpret)


def with_depth(operands: SimpleNamespace) -> SimpleNamespace:
    """Give vectors of depth zero one zero: it changes no score, and blocks need it."""
    found = {
        name: jnp.zeros((*x.shape[:3], 1), x.dtype)
        for name, x in vars(operands).items()
        if name in ("q", "k", "v", "o", "do") and x.shape[3] == 0
    }
    return SimpleNamespace(**{**vars(operands), **found})


def _kernel(step, ref):
    rule, row, column = step.rule, step.row, step.column

    @pl.when(step.first)
    def _():
        ref.maximum[...] = jnp.full_like(ref.maximum, -jnp.inf)
        ref.total[...] = jnp.zeros_like(ref.total)
        ref.sums[...] = jnp.zeros_like(ref.sums)

    @step.when_needed
    def _():
        score, _ = scores(rule, ref)
        score = select(visible(rule, ref, row, column), score, -jnp.inf)
        score = select(real(rule, None, column), score, -jnp.inf)
        weights, ref.maximum[...], ref.total[...], shrink = online_step(
            score, ref.maximum[...], ref.total[...]
        )
        values = step.real_keys(ref.v[...])
        added = rule.dot(weights.astype(values.dtype), values, NN)
        ref.sums[...] = ref.sums[...] * shrink + added

    @pl.when(step.last)
    def _():
        maximum, total = ref.maximum[...], ref.total[...]
        blind = maximum == -jnp.inf
        o = ref.sums[...] / jnp.where(blind, 1.0, total)
        if ref.mean is not None:
            o = jnp.where(blind, ref.mean[...], o)
        ref.o[...] = o.astype(ref.o.dtype)
        ref.lse[...] = jnp.where(blind, -jnp.inf, log_sum(maximum, total))
