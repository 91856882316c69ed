"""Which keys a query attends to, and its scores on one tile."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.lowering.kernels.edges import inside
from tilejax.lowering.kernels.tiles import accumulator

NT = (((1,), (1,)), ((), ()))
NN = (((1,), (0,)), ((), ()))
TN = (((0,), (0,)), ((), ()))


@dataclasses.dataclass(frozen=True)
class Rule:
    """What turns a query and a key into a score, and the sizes of both.

    `queries` and `keys` are how many there are, `tile_queries` and `tile_keys` how many
    are in a tile. `masked` says that operands (bias, mask, segments) may hide keys too,
    so that nothing is known before they are read.
    """

    queries: int
    keys: int
    tile_queries: int
    tile_keys: int
    scale: float
    causal: bool
    window: tuple[int, int] | None
    soft_cap: float | None
    uniform: bool
    masked: bool
    precision: jax.lax.PrecisionLike

    @property
    def left(self) -> int | None:
        """How many keys before its own place a query sees, `None` for all."""
        return None if self.window is None else self.window[0]

    @property
    def right(self) -> int | None:
        """How many keys after its own place a query sees, `None` for all."""
        limits = [0] if self.causal else []
        limits += [] if self.window is None else [self.window[1]]
        return min(limits, default=None)

    @property
    def spreads(self) -> bool:
        """Whether some query may see no key and must then attend to all alike.

        Without operands that hide keys, a query sees key 0 at least unless its window
        starts behind the last key. Where none can be blind, "uniform" asks for nothing.
        """
        behind = self.left is not None and self.queries - self.left > self.keys
        return self.uniform and (self.masked or behind)

    def needed(self, row: jax.Array | int, column: jax.Array | int) -> Any:
        """Return whether tile (row, column) has a pair that is seen; `None`: surely."""
        if self.left is None and self.right is None:
            return None
        first_query, first_key = row * self.tile_queries, column * self.tile_keys
        tests = []
        if self.right is not None:
            last_query = first_query + (self.tile_queries - 1)
            tests.append(first_key <= last_query + self.right)
        if self.left is not None:
            last_key = first_key + (self.tile_keys - 1)
            tests.append(last_key + self.left >= first_query)
        return tests[0] if len(tests) == 1 else tests[0] & tests[1]

    def dot(self, a: jax.Array, b: jax.Array, dimensions) -> jax.Array:
        """Contract two tiles, summing in float32 (float64 for float64)."""
        dtype = accumulator(a.dtype)
        if dimensions == NT and b.shape[0] == 1:
            # JAX lowers this for TPU as a product with a vector, and for operands
            # narrower than the sum it emits a broadcast that its verifier refuses.
            a, b = a.astype(dtype), b.astype(dtype)
        return jax.lax.dot_general(
            a,
            b,
            dimensions,
            precision=self.precision,
            preferred_element_type=dtype,
        )


def scores(rule: Rule, ref: SimpleNamespace) -> tuple[jax.Array, jax.Array | None]:
    """Compute `cap * tanh(scale * q @ k.T / cap) + bias` on one tile.

    **Returns:** the scores (queries, keys), and the derivative of the soft cap, `None`
    without one. Both are garbage past the ends of the arrays.
    """
    score = rule.dot(ref.q[...], ref.k[...], NT) * rule.scale
    slope = None
    if rule.soft_cap is not None:
        bent = jnp.tanh(score / rule.soft_cap)
        score, slope = bent * rule.soft_cap, 1.0 - bent * bent
    if ref.bias is not None:
        score = score + ref.bias[...].astype(score.dtype)
    return score, slope


def visible(
    rule: Rule, ref: SimpleNamespace, row: jax.Array, column: jax.Array
) -> jax.Array | None:
    """Return which pairs of a tile may meet, `None` for all; garbage past the ends."""
    shape = (rule.tile_queries, rule.tile_keys)
    tests = []
    if rule.left is not None or rule.right is not None:
        query = jax.lax.broadcasted_iota(jnp.int32, shape, 0) + row * shape[0]
        key = jax.lax.broadcasted_iota(jnp.int32, shape, 1) + column * shape[1]
        if rule.right is not None:
            tests.append(key <= query + rule.right)
        if rule.left is not None:
            tests.append(key >= query - rule.left)
    if ref.q_segments is not None:
        tests.append(ref.q_segments[...] == ref.kv_segments[...])
    if ref.mask is not None:
        # Eight-bit comparisons are not everywhere; 32-bit ones are.
        tests.append(ref.mask[...].astype(jnp.int32) != 0)
    return _all(tests)


def real(rule: Rule, row: jax.Array | None, column: jax.Array) -> jax.Array | None:
    """Return which pairs of a tile lie inside the arrays, `None` for all.

    With `row=None` only keys are looked at: a query past the end does no harm where
    nothing is summed over queries.
    """
    shape = (rule.tile_queries, rule.tile_keys)
    tests = []
    if rule.keys % rule.tile_keys:
        tests.append(inside(shape, 1, column, rule.keys))
    if row is not None and rule.queries % rule.tile_queries:
        tests.append(inside(shape, 0, row, rule.queries))
    return _all(tests)


def select(condition: jax.Array | None, x: jax.Array, otherwise: float) -> jax.Array:
    """Return `x` where the condition holds; where there is none it always does."""
    return x if condition is None else jnp.where(condition, x, otherwise)


def _all(tests):
    result = None
    for test in tests:
        result = test if result is None else result & test
    return result
