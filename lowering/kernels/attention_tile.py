"""A tile of weights made again, and what the cotangents of its scores are."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp

from tilejax.lowering.kernels.attention_grid import Grid, Pair, Step
from tilejax.lowering.kernels.attention_rule import NT, real, scores, select, visible

# Of each row of scores: p is exp(score - maximum) / total.
STATISTICS = ("maximum", "total")


def inputs(grid: Grid, operands: SimpleNamespace) -> dict[str, Pair]:
    """Pair what every backward kernel reads with its blocks."""
    return {
        **grid.inputs(operands),
        "do": grid.query(operands.do),
        "delta": grid.statistic(operands.delta),
    }


def statistics(grid: Grid, operands: SimpleNamespace) -> dict[str, Pair]:
    """Pair the maximum and the sum of each row with their blocks."""
    return {name: grid.statistic(getattr(operands, name)) for name in STATISTICS}


def seen_scores(
    step: Step, ref: SimpleNamespace
) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
    """Return the scores of a tile, -inf at pairs that are hidden or not real.

    With them comes the derivative of the soft cap, `None` without one, and which pairs
    are seen and real, `None` for all.
    """
    rule, row, column = step.rule, step.row, step.column
    score, slope = scores(rule, ref)
    both = real(rule, row, column)
    seen = visible(rule, ref, row, column)
    if seen is not None:
        both = seen if both is None else seen & both
    return select(both, score, -jnp.inf), slope, both


def changes(
    step: Step,
    ref: SimpleNamespace,
    weights: jax.Array,
    slope: jax.Array | None,
    both: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Return `ds` for these weights, and `ds` before the soft cap.

    Both are zero, whatever garbage the arrays end in, at pairs that are not seen.
    """
    values = step.real_keys(ref.v[...])
    change = step.rule.dot(ref.do[...], values, NT) - ref.delta[...]
    ds = select(both, weights * change, 0.0)
    return ds, ds if slope is None else select(both, ds * slope, 0.0)


def tile(step: Step, ref: SimpleNamespace) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the weights of a tile, `ds`, and `ds` before the soft cap."""
    score, slope, both = seen_scores(step, ref)
    maximum = ref.maximum[...]
    weights = jnp.exp(score - jnp.where(maximum == -jnp.inf, 0.0, maximum))
    weights = weights * (1.0 / divisor(ref.total[...]))
    # The statistics end in garbage too, so what is hidden is hidden after them.
    weights = select(both, weights, 0.0)
    return weights, *changes(step, ref, weights, slope, both)


def divisor(total: jax.Array) -> jax.Array:
    """Return what to divide weights by: their sum, but 1 for a sum of nothing."""
    return jnp.where(total == 0.0, 1.0, total)
