"""Attention, backward: the scores are made again tile by tile."""

from types import SimpleNamespace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.lowering.kernels.attention import (
    AttentionConfig,
    make_grid,
    make_rule,
    with_depth,
)
from tilejax.lowering.kernels.attention_rule import NN, TN
from tilejax.lowering.kernels.attention_tile import (
    STATISTICS,
    changes,
    divisor,
    inputs,
    seen_scores,
    statistics,
    tile,
)
from tilejax.lowering.kernels.online import online_step
from tilejax.lowering.kernels.tiles import accumulator


def attention_backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array | None,
    q_segments: jax.Array | None,
    kv_segments: jax.Array | None,
    o: jax.Array,
    lse: jax.Array,
    do: jax.Array,
    dlse: jax.Array,
    *,
    scale: float,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    soft_cap: float | None = None,
    masked_rows: Literal["zeros", "uniform"] = "zeros",
    precision: jax.lax.PrecisionLike = None,
    config: AttentionConfig,
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Compute the cotangents of the floating operands of `attention`.

    With the weights p and `delta = sum(do * o) - dlse`, a score has the cotangent
    `ds = p * (do @ v.T - delta)`; from it `dq = scale * ds @ k`,
    `dk = scale * ds.T @ q`, `dbias = ds` (summed where the bias was broadcast), and
    `dv = p.T @ do`. With a soft cap, dq and dk see `ds` times its derivative. One
    kernel gives dq, one dk and dv, one dbias: what is not asked for is not computed,
    and nothing of the size of the scores is kept unless it is dbias.

    `p` is `exp(score - lse)`, but not computed so: next to scores of -1e9, as a bias
    gives that hides all keys, the logarithm in `lse` is lost to rounding. The kernel
    that gives dq also finds each row's maximum and sum, online as the forward pass
    does; it walks whole rows and dq is linear in p, so that the sum divides it last.

    **Arguments:**

    - `q`, `k`, `v`, `bias`, `mask`, `q_segments`, `kv_segments`: As of `attention`.
    - `o`, `lse`: Its results; `lse` is read for the queries that see nothing.
    - `do`, `dlse`: Their cotangents.
    - The parameters of `attention`.

    **Returns:**

    `dq`, `dk`, `dv` and `dbias`, each of the shape and dtype of its operand; `dbias` is
    `None` without a bias.

        >>> q = k = v = jnp.ones((1, 1, 1, 2))
        >>> lse = jnp.full((1, 1, 1), 2.0)
        >>> operands = (q, k, v, None, None, None, None, v, lse, v, lse)
        >>> _, _, dv, _ = attention_backward(
        ...     *operands, scale=1.0, config=AttentionConfig(), interpret=True
        ... )
        >>> dv.tolist()  # one key takes all the weight
        [[[[1.0, 1.0]]]]
    """
    if 0 in q.shape[:3] or k.shape[2] == 0:
        dbias = None if bias is None else jnp.zeros_like(bias)
        return jnp.zeros_like(q), jnp.zeros_like(k), jnp.zeros_like(v), dbias
    dtype = accumulator(q.dtype)
    products = o.astype(dtype) * do.astype(dtype)
    operands = with_depth(
        SimpleNamespace(
            q=q,
            k=k,
            v=v,
            bias=bias,
            mask=mask,
            q_segments=q_segments,
            kv_segments=kv_segments,
            do=do,
            lse=lse,
            delta=jnp.sum(products, axis=3) - dlse.astype(dtype),
        )
    )
    rule = make_rule(
        operands, scale, causal, window, soft_cap, masked_rows, precision, config
    )
    dq, found = _query_gradient(operands, rule, interpret)
    operands = SimpleNamespace(**vars(operands), **found)
    dk, dv = _key_gradients(operands, rule, interpret)
    dbias = None if bias is None else _bias_gradient(operands, rule, interpret)
    return dq[..., : q.shape[3]], dk[..., : k.shape[3]], dv[..., : v.shape[3]], dbias


def _query_kernel(step, ref):
    # The statistics stay in their output blocks while a row of tiles is walked.
    @pl.when(step.first)
    def _():
        ref.sums[...] = jnp.zeros_like(ref.sums)
        ref.maximum[...] = jnp.full_like(ref.maximum, -jnp.inf)
        ref.total[...] = jnp.zeros_like(ref.total)

    @step.when_needed
    def _():
        score, slope, both = seen_scores(step, ref)
        weights, ref.maximum[...], ref.total[...], shrink = online_step(
            score, ref.maximum[...], ref.total[...]
        )
        _, raw = changes(step, ref, weights, slope, both)
        keys = step.real_keys(ref.k[...])
        added = step.rule.dot(raw.astype(keys.dtype), keys, NN)
        ref.sums[...] = ref.sums[...] * shrink + added

    @pl.when(step.last)
    def _():
        dq = ref.sums[...] * (step.rule.scale / divisor(ref.total[...]))
        ref.dq[...] = dq.astype(ref.dq.dtype)


def _query_gradient(operands, rule, interpret):
    """Return dq, and the statistics of each row."""
    grid = make_grid(operands, rule, "bhgqk", 1, interpret)
    q, dtype = operands.q, accumulator(operands.q.dtype)
    statistic = jax.ShapeDtypeStruct(q.shape[:3], dtype)
    out = grid.call(
        _query_kernel,
        "attention_dq",
        inputs=inputs(grid, operands),
        outputs={
            "dq": grid.query(jax.ShapeDtypeStruct(q.shape, q.dtype)),
            **{name: grid.statistic(statistic) for name in STATISTICS},
        },
        scratch={"sums": pltpu.VMEM((rule.tile_queries, q.shape[3]), dtype)},
    )
    found = {name: getattr(out, name).reshape(q.shape[:3]) for name in STATISTICS}
    return out.dq.reshape(q.shape), found


def _key_kernel(step, ref):
    @pl.when(step.first)
    def _():
        ref.k_sums[...] = jnp.zeros_like(ref.k_sums)
        ref.v_sums[...] = jnp.zeros_like(ref.v_sums)
        if ref.shared is not None:
            ref.v_sums[...] += ref.shared[...]

    @step.when_needed
    def _():
        weights, _, raw = tile(step, ref)
        do = step.real_queries(ref.do[...])
        queries = step.real_queries(ref.q[...])
        ref.v_sums[...] += step.rule.dot(weights.astype(do.dtype), do, TN)
        ref.k_sums[...] += step.rule.dot(raw.astype(queries.dtype), queries, TN)

    @pl.when(step.last)
    def _():
        ref.dk[...] = (ref.k_sums[...] * step.rule.scale).astype(ref.dk.dtype)
        ref.dv[...] = ref.v_sums[...].astype(ref.dv.dtype)


def _key_gradients(operands, rule, interpret):
    # The query heads of a group are steps of the walk: their sum is never in memory.
    grid = make_grid(operands, rule, "bhkgq", 2, interpret)
    k, v = operands.k, operands.v
    dtype = accumulator(k.dtype)
    shared = _shared(operands, rule, dtype) if rule.spreads else None
    out = grid.call(
        _key_kernel,
        "attention_dkv",
        inputs={
            **inputs(grid, operands),
            **statistics(grid, operands),
            "shared": grid.head(shared),
        },
        outputs={
            "dk": grid.key(jax.ShapeDtypeStruct(k.shape, k.dtype)),
            "dv": grid.key(jax.ShapeDtypeStruct(v.shape, v.dtype)),
        },
        scratch={
            "k_sums": pltpu.VMEM((rule.tile_keys, k.shape[3]), dtype),
            "v_sums": pltpu.VMEM((rule.tile_keys, v.shape[3]), dtype),
        },
    )
    return out.dk, out.dv


def _shared(operands, rule, dtype):
    """Sum what each value gets from queries that see nothing: the same for all."""
    do, k = operands.do, operands.k
    blind = (operands.lse == -jnp.inf)[..., None]
    do = jnp.where(blind, do.astype(dtype), 0.0)
    do = do.reshape(*k.shape[:2], -1, do.shape[3])
    return jnp.sum(do, axis=2, keepdims=True) / rule.keys


def _bias_kernel(step, ref):
    @pl.when(step.first)
    def _():
        ref.sums[...] = jnp.zeros_like(ref.sums)

    @step.when_needed
    def _():
        ref.sums[...] += tile(step, ref)[1]

    @pl.when(step.last)
    def _():
        ref.dbias[...] = ref.sums[...].astype(ref.dbias.dtype)


def _bias_gradient(operands, rule, interpret):
    bias = operands.bias
    # Dimensions that the bias was broadcast over are summed, so they are walked last.
    summed = ("b" if bias.shape[0] == 1 else "") + ("hg" if bias.shape[1] == 1 else "")
    kept = "".join(name for name in "bhg" if name not in summed)
    order, sequential = f"{kept}qk{summed}", max(len(summed), 1)
    if not summed:
        order, sequential = "bhgqk", 0
    grid = make_grid(operands, rule, order, sequential, interpret)
    dbias = grid.call(
        _bias_kernel,
        "attention_dbias",
        inputs={**inputs(grid, operands), **statistics(grid, operands)},
        outputs={"dbias": grid.score(jax.ShapeDtypeStruct(bias.shape, bias.dtype))},
        scratch={
            "sums": pltpu.VMEM(
                (rule.tile_queries, rule.tile_keys), accumulator(operands.q.dtype)
            )
        },
    ).dbias
    return dbias.reshape(bias.shape)
