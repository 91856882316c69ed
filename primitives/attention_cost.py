"""How much work attention is, and how its dimensions belong together."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilejax.primitives.dtypes import accumulator
from tilejax.primitives.sizes import nbytes
from tilejax.targets.cost import Cost


def visible_pairs(
    queries: int, keys: int, causal: bool, window: tuple[int, int] | None
) -> int:
    """Count the (query, key) pairs that causality and the window leave.

    >>> visible_pairs(4, 4, True, None)
    10
    >>> visible_pairs(4, 4, True, (1, 0))
    7
    """
    left, right = (queries + keys,) * 2 if window is None else window
    if causal:
        right = min(right, 0)
    return sum(
        max(0, min(keys - 1, i + right) - max(0, i - left) + 1) for i in range(queries)
    )


def cost(
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    mask: Any,
    q_segments: Any,
    kv_segments: Any,
    *,
    causal: bool,
    window: tuple[int, int] | None,
    soft_cap: float | None,
    **params: Any,
) -> Cost:
    """Two products a visible pair: `2 depth + 2 value depth` operations.

    Beside them an exp (and a tanh under a soft cap), and scale, max, subtract, add and
    divide; a bias adds one. What a mask or segments hide depends on values: it counts.
    Bytes are those of operands and results, each moved once, as a tiled kernel does
    whose keys stay on the chip (Dao et al., "FlashAttention", 2022).
    """
    del params
    wide = accumulator(q.dtype)
    pairs = visible_pairs(q.shape[2], k.shape[2], causal, window) * math.prod(
        q.shape[:2]
    )
    rows = math.prod(q.shape[:3])
    return Cost(
        2 * pairs * (q.shape[3] + v.shape[3]),
        dtype=q.dtype,
        bytes_read=nbytes(q, k, v, bias, mask, q_segments, kv_segments),
        bytes_written=rows * (v.shape[3] * q.dtype.itemsize + wide.itemsize),
        transcendentals=pairs * (1 + (soft_cap is not None)) + rows,
        elementwise={wide.name: pairs * (5 + (bias is not None))},
    )


def rule(avals: Sequence[Any], params: Mapping[str, Any]) -> str:
    """Return the factor rule.

    Keys and depths are whole, and queries too where their places count. Grouped heads
    are a factor whose sizes differ: a device's share of the key heads serves its share
    of the query heads.
    """
    q, k, _, bias, mask, q_segments, _ = avals
    head = "h" if q.shape[1] == k.shape[1] else "h*" if k.shape[1] > 1 else "1"
    places = params["causal"] or params["window"] is not None
    query = "s!" if places else "s"
    own = "h*" if head == "h*" else "h"
    operands = [f"b {own} {query} d!", f"b {head} t! d", f"b {head} t dv!"]
    for x in (bias, mask):
        if x is not None:
            batch = "b" if x.shape[0] == q.shape[0] else "1"
            heads = "h" if x.shape[1] == q.shape[1] else "1"
            operands.append(f"{batch} {heads} s t")
    if q_segments is not None:
        operands += ["b s", "b t"]
    return f"{', '.join(operands)} -> b h s dv, b h s"
