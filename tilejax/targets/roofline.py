"""A roofline: how long an amount of work takes on a target at best.

Work is operations and bytes. With rate R and bandwidth W of one device,

    compute = operations / (R x efficiency x utilisation)        memory = bytes / W

and, after Williams, Waterman and Patterson, "Roofline" (2009), a kernel that overlaps
them perfectly takes the greater. Corrections, each derived where it is used: padding to
the matrix unit's granularity, waves of blocks over cores, filling of the pipeline, and
overheads of launch and grid steps. A figure that the record lacks is never taken as
zero: without a rate or a bandwidth there is no answer, and `missing` says which.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tilejax.errors import ParameterError
from tilejax.targets.cost import Cost
from tilejax.targets.figures import dtype_key
from tilejax.targets.records import Target, Unit


@dataclass(frozen=True)
class Estimate:
    """Hold a modelled time.

    **Arguments:**

    - `seconds`: The time; `None` when a figure in `missing` is unknown.
    - `compute_seconds`, `memory_seconds`: The terms, `None` likewise.
    - `overhead_seconds`: Launch and grid steps, as far as the target's are known.
    - `bound`: What dominates, `None` without an answer.
    - `intensity`: Operations a byte.
    - `at_least`: The time that the known terms alone take.
    - `missing`: Paths of unknown figures without which there is no answer.
    - `omitted`: Paths of unknown figures whose (small) terms were left out, so that
      `seconds` is a lower bound.
    """

    seconds: float | None
    compute_seconds: float | None
    memory_seconds: float | None
    overhead_seconds: float
    bound: Literal["compute", "memory", "launch"] | None
    intensity: float
    at_least: float
    missing: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()


def seconds(
    cost: Cost,
    target: Target,
    *,
    blocks: int | None = None,
    steps: int | None = None,
    efficiency: float = 1.0,
    overlap: bool = True,
) -> Estimate:
    """Model how long work takes on one device of a target.

    **Arguments:**

    - `cost`: The work.
    - `target`: Where.
    - `blocks`: Independent blocks that are spread over the cores; `None` for as many
      as keep all cores busy.
    - `steps`: Grid steps in all, each loading its blocks while the one before computes;
      `None` for infinitely fine ones.
    - `efficiency`: Fraction of the contractions' padded size that is true, as
      `padding_efficiency` returns it.
    - `overlap`: Whether loads run beside arithmetic at all.

    **Returns:**

    An `Estimate`.

    **Raises:**

    `tilejax.errors.ParameterError` for an efficiency outside (0, 1], or fewer than one
    block or step.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> work = Cost({"bfloat16": 197e9}, bytes_read=819e3)
    >>> seconds(work, v5e).seconds, seconds(work, v5e).bound
    (0.001, 'compute')
    """
    counts = [count for count in (blocks, steps) if count is not None]
    if not 0 < efficiency <= 1 or min(counts, default=1) < 1:
        raise ParameterError(
            f"seconds: efficiency {efficiency} must be in (0, 1], and blocks {blocks} "
            f"and steps {steps} at least one"
        )
    terms = _Terms()
    utilisation = _utilisation(target, blocks, terms)
    compute = _compute(cost, target, efficiency, terms) / utilisation
    memory = _memory(cost, target, terms)
    lanes = _parallel(target, blocks)
    rounds = None if steps is None else math.ceil(steps / lanes)
    overhead = _overhead(target, rounds, terms)
    at_least = max(compute, memory) + overhead
    if terms.missing:
        return Estimate(
            seconds=None,
            compute_seconds=None if terms.compute_unknown else compute,
            memory_seconds=None if terms.memory_unknown else memory,
            overhead_seconds=overhead,
            bound=None,
            intensity=cost.intensity,
            at_least=at_least,
            missing=tuple(terms.missing),
            omitted=tuple(terms.omitted),
        )
    if not overlap:
        busy = compute + memory
    elif rounds is None:
        busy = max(compute, memory)
    else:
        # A pipeline of S steps of c and m each: the first load is exposed, S - 1 steps
        # take the greater of the two, and the last one's arithmetic is exposed:
        #   m + (S - 1) max(c, m) + c = S max(c, m) + min(c, m)
        busy = max(compute, memory) + min(compute, memory) / rounds
    bound: Literal["compute", "memory", "launch"] = (
        "compute" if compute >= memory else "memory"
    )
    if overhead >= max(compute, memory):
        bound = "launch"
    return Estimate(
        seconds=busy + overhead,
        compute_seconds=compute,
        memory_seconds=memory,
        overhead_seconds=overhead,
        bound=bound,
        intensity=cost.intensity,
        at_least=at_least,
        omitted=tuple(terms.omitted),
    )


class _Terms:
    """Collect what is unknown while an estimate is put together."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.omitted: list[str] = []
        self.compute_unknown = False
        self.memory_unknown = False


def _parallel(target: Target, blocks: int | None) -> int:
    cores = max(1, (target.cores or 1) // target.devices)
    return cores if blocks is None else min(cores, blocks)


def _utilisation(target: Target, blocks: int | None, terms: _Terms) -> float:
    if blocks is None:
        return 1.0
    if target.cores is None:
        terms.omitted.append("cores")
        return 1.0
    # Blocks run in waves of one a core; the last wave takes as long as a full one.
    cores = max(1, target.cores // target.devices)
    return blocks / (math.ceil(blocks / cores) * cores)


def _compute(cost: Cost, target: Target, efficiency: float, terms: _Terms) -> float:
    """Return the time of the busiest unit; the units run beside each other."""
    busy: dict[str, float] = {}
    work = [("matrix", name, count / efficiency) for name, count in cost.flops.items()]
    work += [("vector", name, count) for name, count in cost.elementwise.items()]
    for kind, dtype, count in work:
        if not count:
            continue
        unit, key, path = _find_rate(target, kind, dtype)
        rate = None if unit is None else unit.rates[key]
        if unit is None or rate is None:
            terms.missing.append(path)
            terms.compute_unknown = True
            continue
        busy[unit.name] = busy.get(unit.name, 0.0) + count / (rate / target.devices)
    if cost.transcendentals:
        name, time = _transcendental(cost.transcendentals, target, terms)
        busy[name] = busy.get(name, 0.0) + time
    return max(busy.values(), default=0.0)


def _find_rate(target: Target, kind: str, dtype: str) -> tuple[Unit | None, str, str]:
    """Return the unit, the dtype it computes in, and the figure's path."""
    unit = target.unit_for(dtype, kind)
    if unit is not None:
        return unit, dtype, f"units.{unit.name}.{dtype}"
    # A vector unit without a narrow dtype widens it to 32 bits; a matrix unit does not,
    # but a CPU's contractions run on the vector unit.
    vector = target.unit("vector")
    _, bits = dtype_key(dtype)
    widens = vector is not None and "float32" in vector.rates and bits <= 32
    if widens and (kind == "vector" or target.kind == "cpu"):
        return vector, "float32", f"units.{vector.name}.float32" if vector else ""
    wanted = target.unit(kind) or vector
    return None, dtype, f"units.{wanted.name if wanted else kind}.{dtype}"


def _transcendental(count: float, target: Target, terms: _Terms) -> tuple[str, float]:
    for unit in target.units:
        rate = unit.rates.get("transcendental")
        if rate is not None:
            return f"{unit.name}.transcendental", count / (rate / target.devices)
    # No figure: at least one operation of the vector unit each.
    vector = target.unit("vector")
    name = vector.name if vector else "vector"
    terms.omitted.append(f"units.{name}.transcendental")
    rate = target.rate("float32", "vector")
    if rate is None:
        return name, 0.0
    return name, count / (rate / target.devices)


def _memory(cost: Cost, target: Target, terms: _Terms) -> float:
    if not cost.bytes:
        return 0.0
    if target.main.bandwidth is None:
        terms.missing.append(f"memories.{target.main.name}.bandwidth")
        terms.memory_unknown = True
        return 0.0
    return cost.bytes / (target.main.bandwidth / target.devices)


def _overhead(target: Target, rounds: int | None, terms: _Terms) -> float:
    total = 0.0
    if target.limits.launch_seconds is None:
        terms.omitted.append("limits.launch_seconds")
    else:
        total += target.limits.launch_seconds
    if rounds is not None:
        if target.limits.step_seconds is None:
            terms.omitted.append("limits.step_seconds")
        else:
            total += rounds * target.limits.step_seconds
    return total
