"""Measuring a case: every implementation once a round, and the machine's peak."""

import math
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from benchmarks.cpu.cases import Case
from benchmarks.cpu.intervals import difference, median_ratio, quartiles
from benchmarks.cpu.processes import Process

OURS, MACHINE = "tilejax", "machine"
# Threads that wait for work spin for a while, and would take a core from who is next.
_SETTLE = 0.003
_AGREEMENT = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 6e-2, "int8": 0.0}


@dataclass(frozen=True)
class Effort:
    """How much time a case gets.

    **Arguments:**

    - `seconds`: of a case, as far as there is a choice.
    - `turn`: at least so many seconds of calls a round and implementation.
    - `least`, `most`: rounds.
    - `tiny`: only see that it runs.
    """

    seconds: float = 20.0
    turn: float = 0.03
    least: int = 7
    most: int = 51
    tiny: bool = False


FULL = Effort()
QUICK = Effort(seconds=2.0, turn=0.01, least=3)
TINY = Effort(seconds=0.0, turn=0.0, least=2, most=2, tiny=True)


def measure(case: Case, sides: Mapping[str, Process], effort: Effort) -> dict:
    """Measure a case.

    **Arguments:**

    - `sides`: the processes, `machine` among them. Those that are no peers of the case
      are left alone.

    **Returns:** a line of results. What has no result is null, and `notes` says why; it
    has an `error` if that is our own.
    """
    names = [n for n in (OURS, *case.peers) if n in sides]
    asked = [*names, MACHINE] if case.limit else names
    told, notes = _prepare(case, sides, asked, effort.tiny)
    for name in names:
        if name in told and (wrong := _disagreement(case, told, name)):
            notes[name] = wrong
            del told[name]
    seconds, least = _take_turns({n: sides[n] for n in told}, effort, notes)
    for name in asked:
        sides[name].ask("forget")
    missing = [n for n in case.peers if n not in sides]
    return _line(case, told, seconds, notes, missing) | _share(case, told, least)


def _prepare(case: Case, sides, asked, tiny: bool) -> tuple[dict, dict]:
    told, notes = {}, {}
    for name in asked:
        found = sides[name].ask("prepare", case=asdict(case), tiny=tiny)
        if "error" in found:
            notes[name] = found["error"]
        else:
            told[name] = found
    return told, notes


def _disagreement(case: Case, told: dict, name: str) -> str | None:
    """Why what an implementation gives is not what another one gives."""
    other = next((n for n in case.peers if n in told and n != name), None)
    if other is None or name != OURS:
        return None
    found = difference(told[name]["sample"], told[other]["sample"])
    if found <= _AGREEMENT[case.dtype]:
        return None
    return f"differs from {other} by {found:.2g} of the largest value"


def _take_turns(sides: dict[str, Process], effort: Effort, notes: dict):
    """Time in rounds: the medians of the turns, and the least of all calls."""
    calls, least = {}, {}
    for name in list(sides):
        first = sides[name].ask("time", calls=1).get("seconds", 1.0)
        calls[name] = min(max(math.ceil(effort.turn / first), 1), 10_000)
    order, seconds = list(sides), {name: [] for name in sides}
    start, done = time.perf_counter(), 0
    while done < effort.least or (
        done < effort.most and time.perf_counter() - start < effort.seconds
    ):
        random.shuffle(order)
        for name in list(order):
            found = sides[name].ask("time", calls=calls[name])
            if "error" in found:
                notes[name] = found["error"]
                order.remove(name)
                del seconds[name]
            else:
                seconds[name].append(found["seconds"])
                least[name] = min(least.get(name, math.inf), found["least"])
            time.sleep(0.0 if effort.tiny else _SETTLE)
        done += 1
    return seconds, least


def _line(case: Case, told: dict, seconds: dict, notes: dict, missing: list) -> dict:
    names = (OURS, *case.peers)
    medians = {
        n: statistics.median(seconds[n]) if seconds.get(n) else None for n in names
    }
    line = {
        "family": case.family,
        "case": case.name,
        "dtype": case.dtype,
        "direction": case.direction,
        "median_s": medians,
        "quartiles_s": {
            n: quartiles(seconds[n]) if seconds.get(n) else None for n in names
        },
        "rounds": max(map(len, seconds.values()), default=0),
        **_ratios(case, medians, seconds),
        "peak_temp_bytes": {n: told.get(n, {}).get("temp_bytes") for n in names},
        "kernel": told.get(OURS, {}).get("kernel"),
    }
    for name in missing:
        notes[name] = "was not asked for or is not installed"
    if OURS in notes:
        line["error"] = notes[OURS]
    return line | {"notes": notes}


def _ratios(case: Case, medians: dict, seconds: dict) -> dict:
    """Their time to ours: above one, ours is the faster."""
    found: dict = {}
    there = [n for n in case.peers if medians[n] is not None]
    peer = min(there, key=lambda n: medians[n], default=None)
    pairs = {n: n for n in case.peers if n != "torch"} | {"peer": peer}
    for name, other in pairs.items():
        value, interval = None, None
        if medians[OURS] is not None and other in there:
            value, interval = median_ratio(seconds[other], seconds[OURS])
        found |= {f"ratio_{name}": value, f"ratio_{name}_interval": interval}
    return {"peer": peer, **found}


def _share(case: Case, told: dict, least: dict) -> dict:
    """How much of the machine's peak ours reaches: the best of either.

    Other programs only ever slow both, and a peak most of all, which wants all cores.
    """
    line = {"limit": case.limit, "peak": None, "of_limit": None}
    if MACHINE in least:
        line["peak"] = told[MACHINE]["work"] / least[MACHINE]
        if OURS in least:
            line["of_limit"] = case.work / least[OURS] / line["peak"]
    return line
