"""Measuring two ways of doing a thing in turns, so that noise meets both alike."""

import random
import statistics
import time
from collections.abc import Callable, Mapping


def in_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict:
    """Time each way once a round, in an order drawn anew each round.

    **Arguments:**

    - `clock`: `time.thread_time` leaves out what other programs take from the core, and
      what other threads of this one do.

    **Returns:** by name the seconds, one a round.
    """
    order, seconds = list(ways), {name: [] for name in ways}
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start = clock()
            ways[name]()
            seconds[name].append(clock() - start)
    return seconds


def ratio(ours: list[float], theirs: list[float]) -> dict:
    """Compare two lists of times taken in the same rounds.

    **Returns:** the median of the rounds' ratios, and their quartiles.
    """
    each = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, _, high = (
        statistics.quantiles(each, n=4) if len(each) > 1 else (*each, 0, *each)
    )
    return {
        "ratio": round(statistics.median(each), 4),
        "quartiles": [round(low, 4), round(high, 4)],
        "rounds": len(each),
    }
