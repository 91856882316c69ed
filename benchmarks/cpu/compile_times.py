"""How long kernels take to compile, cold and from the disk cache.

A kernel's time is from its jaxpr to code in memory that XLA can call, without the rest
of the program around it. Each time is taken in a new process.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.cpu.cases import Case
from benchmarks.cpu.processes import Process


def measure(cases: list[Case], tries: int) -> Iterator[dict]:
    """Compile the kernels of cases, each in new processes so many times.

    **Returns:** a line of results for each way, with the kernels' medians over the
    tries.
    """
    cold, warm, errors = [], [], []
    asked = [asdict(case) for case in cases]
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as folder:
            for times in (cold, warm):
                process = Process("tilejax", {"TILEJAX_CACHE_DIR": folder})
                found = process.ask("compile", cases=asked)
                process.stop()
                if "error" in found:
                    errors.append(found["error"])
                else:
                    times.append(found["seconds"])
    for name, times in (("cold", cold), ("from the disk cache", warm)):
        yield _line(name, times, errors)


def _line(name: str, tries: list[Mapping[str, float]], errors: list[str]) -> dict:
    kernels = {
        key: float(np.median([each[key] for each in tries if key in each]))
        for key in (tries[0] if tries else {})
    }
    seconds = sorted(kernels.values())
    slowest = max(kernels, key=lambda key: kernels[key], default=None)
    line: dict[str, Any] = {
        "family": "compile",
        "case": name,
        "dtype": None,
        "direction": "forward",
        "kernels": len(kernels),
        "median_s": {"tilejax": float(np.median(seconds)) if seconds else None},
        "p95_s": float(np.quantile(seconds, 0.95)) if seconds else None,
        "slowest": slowest,
        "slowest_s": seconds[-1] if seconds else None,
    }
    return line | ({"error": errors[0]} if errors else {})


def compiled(cases: list[Case]) -> dict[str, float]:
    """Compile the kernels of cases in this process; return seconds by kernel."""
    import jax

    from benchmarks.cpu.operands import operands
    from benchmarks.cpu.ours import FUNCTIONS
    from tilejax import jit
    from tilejax.lowering.cpu import runtime
    from tilejax.options import set_for_all

    set_for_all(kernels="native")
    runtime.start()  # once a process, whatever the kernels
    found: dict[str, float] = {}
    with _watched() as watched:
        for case in cases:
            watched.clear()
            structs = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in operands(case)]
            jit(FUNCTIONS[case.family](case)).lower(*structs)
            for k, seconds in enumerate(watched):
                found[f"{case.family} {case.name} {case.dtype} {k}"] = seconds
    return found


@contextmanager
def _watched() -> Iterator[list[float]]:
    """List the seconds that each kernel takes that is compiled inside."""
    from tilejax.lowering.cpu import rule

    seconds: list[float] = []
    normalise, compile = rule.tile_program, rule._compiled
    started = [0.0]

    def begun(params):
        started[0] = time.perf_counter()
        return normalise(params)

    def done(program, host):
        known = len(rule._MADE)
        result = compile(program, host)
        if len(rule._MADE) > known:  # not one that was made for another case
            seconds.append(time.perf_counter() - started[0])
        return result

    rule.tile_program, rule._compiled = begun, done
    try:
        yield seconds
    finally:
        rule.tile_program, rule._compiled = normalise, compile
