"""The loops that XLA makes of a program: what they read, compute and write."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilejax.targets import Cost


@dataclass(frozen=True, eq=False)
class Value:
    """An array: in memory, or computed where it is needed.

    **Arguments:**

    - `bytes`: Its size.
    - `level`: How many loops one after the other have to end before it is in memory.
    - `stored`: Whether it is in memory.
    - `work`: Operations of its own equation, bytes aside.
    - `of`: What it is computed from.
    - `part`: Whether it needs no more of them than it has itself.
    - `view`: Whether it has the very values of what it is computed from.
    """

    bytes: float
    level: int = 0
    stored: bool = True
    work: Cost = field(default_factory=Cost)
    of: tuple["Value", ...] = ()
    part: bool = False
    view: bool = False


@dataclass
class Loop:
    """One fusion: what it reads and writes, and the values it computes."""

    level: int
    reads: dict[Value, float]
    inside: set[Value]
    written: float

    def shares(self, other: "Loop") -> bool:
        """Whether both read some array, which a joint loop reads once."""
        return self.level == other.level and not self.reads.keys().isdisjoint(
            other.reads
        )


def closure(value: Value) -> tuple[dict[Value, float], set[Value]]:
    """What a loop for a value reads, with how much of it, and what it computes."""
    reads: dict[Value, float] = {}
    inside: set[Value] = set()
    waiting = [(value, math.inf)]
    while waiting:
        each, most = waiting.pop()
        if each.stored:
            reads[each] = max(reads.get(each, 0.0), min(each.bytes, most))
            continue
        if each in inside:
            continue
        inside.add(each)
        inner = min(most, each.bytes) if each.part else most
        waiting += [(v, inner) for v in each.of]
    return reads, inside


def joined(loops: Sequence[Loop]) -> list[Loop]:
    """Put loops together that read the same array and wait for the same."""
    found: list[Loop] = []
    for loop in loops:
        twin = next((f for f in found if f.shares(loop)), None)
        if twin is None:
            found.append(
                Loop(loop.level, dict(loop.reads), set(loop.inside), loop.written)
            )
            continue
        for value, moved in loop.reads.items():
            twin.reads[value] = max(twin.reads.get(value, 0.0), moved)
        twin.inside |= loop.inside
        twin.written += loop.written
    return found
