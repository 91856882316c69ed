"""Measuring the one figure of the host that no table gives: its memory bandwidth.

Explanations use it for the times that they model. What runs is never chosen by it, so
that a program compiles the same each time.
"""

import functools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tilejax.targets.records import Target

_BANDWIDTH = "memories.ram.bandwidth"
_BYTES = 1 << 26  # a core's, more than its share of any cache
_ROUNDS = 4


def with_bandwidth(target: Target) -> Target:
    """Return the host's record with its memory bandwidth measured, once a process.

    Copies 64 MiB a core, all cores at once, as McCalpin's STREAM "copy" (read and write
    counted; the best of four rounds), in about 0.1 seconds. Any other target, or one
    whose bandwidth is known, is returned as it is.

    >>> import tilejax.targets
    >>> host = with_bandwidth(tilejax.targets.get("cpu"))
    >>> host.memory("ram").bandwidth > 1e8
    True
    """
    if target.kind != "cpu" or target.figures().get(_BANDWIDTH) is not None:
        return target
    found = _copied_a_second(target.cores or 1)
    return target.with_figure(_BANDWIDTH, found, "measured: STREAM copy, this process")


@functools.cache
def _copied_a_second(cores: int) -> float:
    pairs = [
        (np.ones(_BYTES, np.uint8), np.ones(_BYTES, np.uint8)) for _ in range(cores)
    ]
    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), pairs))
            seconds = time.perf_counter() - start
            best = max(best, 2 * cores * _BYTES / seconds)
    return best
