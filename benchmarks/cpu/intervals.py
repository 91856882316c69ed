"""Comparing times that were taken in the same rounds."""

from collections.abc import Sequence

import numpy as np

_RESAMPLED = 2000


def median_ratio(
    above: Sequence[float], below: Sequence[float]
) -> tuple[float, list[float]]:
    """Compare two implementations round by round.

    **Arguments:**

    - `above`, `below`: a number a round.

    **Returns:** the median of the rounds' ratios, and the interval that holds it with a
    probability of 95 %, by drawing as many rounds from these again and again.
    """
    each = np.asarray(above) / np.asarray(below)
    rng = np.random.default_rng(0)
    drawn = rng.choice(each, (_RESAMPLED, each.size))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(np.median(each)), [float(low), float(high)]


def quartiles(seconds: Sequence[float]) -> list[float]:
    """Return the first and the third quartile."""
    return [float(x) for x in np.quantile(seconds, (0.25, 0.75))]


def difference(one: Sequence[float], two: Sequence[float]) -> float:
    """Return the largest difference, in units of the largest value of the second."""
    a, b = np.asarray(one), np.asarray(two)
    if a.shape != b.shape or not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))
