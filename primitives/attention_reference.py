"""What attention means, in plain JAX, forward and backward, by blocks of queries.

A block of queries sees all keys, so a row of scores is whole and there is one softmax a
block. Few enough scores are one block; more of them are never in memory together, and
neither pass keeps any for the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.primitives.dtypes import accumulator

# Scores in one block, of all batches and heads: 64 MiB in float32.
BLOCK = 1 << 24


@dataclass(frozen=True)
class Options:
    """The parameters of attention that its equations read."""

    scale: float
    causal: bool
    window: tuple[int, int] | None
    soft_cap: float | None
    masked_rows: str
    precision: Any


def forward(q, k, v, bias, mask, q_segments, kv_segments, **params):
    """Return the output as `q` (with the depth of `v`), and the logsumexp."""
    options = Options(**params)
    heads = k.shape[1]
    dtype = accumulator(q.dtype)
    if 0 in q.shape[:3] or k.shape[2] == 0:
        lse = jnp.full(q.shape[:3], -jnp.inf, dtype)
        return jnp.zeros((*q.shape[:3], v.shape[3]), q.dtype), lse

    def block(start, q, bias, mask, q_segments):
        scores, _ = _scores(options, q, k, bias)
        seen = _visible(options, scores.shape, start, mask, q_segments, kv_segments)
        p, lse = _weights(options, scores, seen)
        o = _dot(options, "bkgst,bktd->bkgsd", p.astype(v.dtype), v)
        return [o.astype(q.dtype), lse], []

    grouped = _grouped(q, heads), _grouped(bias, heads), _grouped(mask, heads)
    (o, lse), _ = _by_blocks(block, q, k, (*grouped, q_segments))
    return o.reshape(*q.shape[:3], v.shape[3]), lse.reshape(q.shape[:3])


def backward(operands, saved, cotangents, **params):
    """Return the gradients of q, k, v and bias, None for the rest.

    With `p` made again from the logsumexp: `delta = sum(do o) - dlse`,
    `ds = p (do v^T - delta)`, `dv = p^T do`, `dbias = ds`; the soft cap's slope times
    `ds` gives `dq = scale ds k` and `dk = scale ds^T q`. (Dao, "FlashAttention-2",
    2023, section 3.1; `dlse` follows from `dlse / ds = p`.)
    """
    options = Options(**params)
    q, k, v, bias, mask, q_segments, kv_segments = operands
    (o, lse), (do, dlse) = saved, cotangents
    if 0 in q.shape[:3] or k.shape[2] == 0:
        zeros = [None if x is None else jnp.zeros_like(x) for x in (q, k, v, bias)]
        return (*zeros, None, None, None)
    heads, dtype = k.shape[1], lse.dtype
    delta = jnp.sum(o.astype(dtype) * do.astype(dtype), -1) - dlse

    def block(start, q, bias, mask, q_segments, lse, do, delta):
        scores, slope = _scores(options, q, k, bias)
        seen = _visible(options, scores.shape, start, mask, q_segments, kv_segments)
        p, spread = _weights_again(options, scores, seen, lse)
        if bias is not None:
            p, spread = _normal(p), _normal(spread)
        dp = _dot(options, "bkgsd,bktd->bkgst", do, v)
        ds = p * (dp - delta[..., None])
        draw = (ds if slope is None else ds * slope) * options.scale
        rows = [_dot(options, "bkgst,bktd->bkgsd", draw.astype(k.dtype), k)]
        if bias is not None:
            rows.append(_summed_to(ds, bias.shape))
        dk = _dot(options, "bkgst,bkgsd->bktd", draw.astype(q.dtype), q)
        dv = _dot(options, "bkgst,bkgsd->bktd", spread.astype(do.dtype), do)
        return rows, [dk, dv]

    grouped = [_grouped(x, heads) for x in (q, bias, mask)]
    results = [_grouped(x, heads) for x in (lse, do, delta)]
    (dq, *dbias), (dk, dv) = _by_blocks(block, q, k, (*grouped, q_segments, *results))
    dbias = None if bias is None else dbias[0].reshape(bias.shape)
    return dq.reshape(q.shape), dk, dv, dbias, None, None, None


def _grouped(x, heads: int):
    """(batch, query heads, ...) as (batch, key heads, group, ...); 1 stays 1."""
    if x is None:
        return None
    split = (1, 1) if x.shape[1] == 1 else (heads, x.shape[1] // heads)
    return x.reshape(x.shape[0], *split, *x.shape[2:])


def _dot(options: Options, equation: str, x, y):
    """A product in the accumulator's dtype."""
    return jnp.einsum(
        equation,
        x,
        y,
        precision=options.precision,
        preferred_element_type=accumulator(x.dtype),
    )


def _scores(options: Options, q, k, bias):
    """The scores of a block, and the slope of the soft cap (None without one)."""
    scores = _dot(options, "bkgsd,bktd->bkgst", q, k) * options.scale
    slope = None
    if options.soft_cap is not None:
        bent = jnp.tanh(scores / options.soft_cap)
        scores, slope = options.soft_cap * bent, 1 - bent * bent
    return scores if bias is None else scores + bias.astype(scores.dtype), slope


def _visible(options: Options, shape, start, mask, q_segments, kv_segments):
    """Which scores count: a boolean that broadcasts to them; None for all."""
    query = jax.lax.broadcasted_iota(jnp.int32, shape[-2:], 0) + start
    key = jax.lax.broadcasted_iota(jnp.int32, shape[-2:], 1)
    tests = []
    if options.causal:
        tests.append(key <= query)
    if options.window is not None:
        left, right = options.window
        tests += [key >= query - left, key <= query + right]
    if mask is not None:
        tests.append(mask)
    if q_segments is not None:
        same = q_segments[:, :, None] == kv_segments[:, None, :]
        tests.append(same[:, None, None])
    seen = None
    for test in tests:
        seen = test if seen is None else seen & test
    return seen


def _weights(options: Options, scores, seen):
    """The softmax over the visible keys, and its logsumexp.

    A row that sees nothing has the logsumexp -inf. All that divides by its empty sum is
    kept from it, so that no NaN arises, here or in a derivative.
    """
    if seen is not None:
        scores = jnp.where(seen, scores, -jnp.inf)
    top = jax.lax.stop_gradient(jnp.max(scores, -1, keepdims=True))
    blind = top == -jnp.inf
    top = jnp.where(blind, 0, top)
    raised = jnp.exp(scores - top)
    total = jnp.where(blind, 1, jnp.sum(raised, -1, keepdims=True))
    lse = jnp.where(blind, -jnp.inf, top + jnp.log(total))
    return _spread(options, raised / total, blind), lse[..., 0]


def _weights_again(options: Options, scores, seen, lse):
    """The weights from the logsumexp, without and with what blind rows spread."""
    if seen is not None:
        scores = jnp.where(seen, scores, -jnp.inf)
    blind = (lse == -jnp.inf)[..., None]
    p = jnp.exp(scores - jnp.where(blind, 0, lse[..., None]))
    return p, _spread(options, p, blind)


def _normal(p):
    """Make rows sum to one again.

    Where a bias hides all keys, by -1e9 or less, the logsumexp is as large, and what
    its logarithm of the number of keys was is lost to rounding.
    """
    total = jnp.sum(p, -1, keepdims=True)
    return p / jnp.where(total == 0, 1, total)


def _spread(options: Options, p, blind):
    if options.masked_rows == "zeros":
        return p
    return jnp.where(blind, 1 / p.shape[-1], p)


def _summed_to(x, shape: tuple[int, ...]):
    """Sum over the axes that a bias of `shape` was broadcast over."""
    axes = tuple(
        i for i, (a, b) in enumerate(zip(x.shape, shape, strict=True)) if a != b
    )
    return jnp.sum(x, axes, keepdims=True)


def _by_blocks(block: Callable, q, k, by_rows: tuple):
    """Call `block(start, *rows)` on blocks of queries and join what it gives.

    Each of `by_rows` has the queries at axis 3 (segments at axis 1). `block` gives
    a list of results with the queries at axis 3, and a list to be summed over blocks.
    """
    queries = q.shape[2]
    row = q.shape[0] * q.shape[1] * k.shape[2]
    if not isinstance(row * queries, int):  # a symbolic size has no best block
        return block(0, *by_rows)
    size = max(1, BLOCK // row)
    if size >= queries:
        return block(0, *by_rows)

    def at(start, length):
        return [
            None
            if x is None
            else jax.lax.dynamic_slice_in_dim(x, start, length, 1 if x.ndim == 2 else 3)
            for x in by_rows
        ]

    def step(sums, start):
        rows, more = block(start, *at(start, size))
        return [s + x for s, x in zip(sums, more, strict=True)], rows

    # The first block takes what does not divide, and starts the sums: they vary over
    # the manual axes that its operands do, as a `scan` wants of what it carries.
    first = queries % size or size
    head, sums = block(0, *at(0, first))
    starts = jnp.arange(first, queries, size, dtype=jnp.int32)
    sums, rows = jax.lax.scan(step, sums, starts)
    joined = [
        jnp.concatenate([x, _joined(y)], axis=3)
        for x, y in zip(head, rows, strict=True)
    ]
    return joined, sums


def _joined(x):
    """(blocks, batch, heads, group, rows, ...) with the blocks' rows in one axis."""
    x = jnp.moveaxis(x, 0, 3)
    return x.reshape(*x.shape[:3], -1, *x.shape[5:])
