"""Numbers as unevaluated sums of two floats, for twice the digits.

After T. J. Dekker, A Floating-Point Technique for Extending the Available Precision
(1971).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilejax.lowering.cpu.math.real import Real, fuses


@dataclass(frozen=True)
class Pair:
    """A sum high + low, of which the low part is below the high one's last digit."""

    high: Real
    low: Real

    def __add__(self, other: Pair) -> Pair:
        """Add; this must be the larger in magnitude."""
        total = ordered_sum(self.high, other.high)
        return ordered_sum(total.high, total.low + (self.low + other.low))

    def __mul__(self, other: Pair) -> Pair:
        """Multiply."""
        whole = product(self.high, other.high)
        rest = self.low.times(other.high, self.high * other.low)
        return ordered_sum(whole.high, whole.low + rest)


def ordered_sum(a: Real, b: Real) -> Pair:
    """Add exactly; a is the larger in magnitude."""
    total = a + b
    return Pair(total, b - (total - a))


def product(a: Real, b: Real) -> Pair:
    """Multiply exactly."""
    whole = a * b
    if fuses(a.nest):
        return Pair(whole, a.times(b, -whole))
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return Pair(whole, a2 * b2 - (((whole - a1 * b1) - a2 * b1) - a1 * b2))


def _halves(a: Real) -> tuple[Real, Real]:
    """Split a number into two of half the digits."""
    scaled = a * (2.0 ** ((a.format.digits + 2) // 2) + 1)
    high = scaled - (scaled - a)
    return high, a - high
