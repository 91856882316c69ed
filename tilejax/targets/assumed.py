"""What is taken for figures that nobody has published, so that a choice can be made.

A record says what is known, and an explanation's times stand on that alone. To choose
between two ways of computing the same thing some number is needed for every figure,
and the same one each time: this file has them, each a rule of thumb, never measured.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilejax.targets.figures import dtype_key, shown
from tilejax.targets.records import Target, Unit
from tilejax.targets.table import Table

# A kernel or fusion that a device starts by itself, inside one program.
_LAUNCH = 1e-6
# Setting up the transfers of a step, which a scratchpad needs and a cache does not;
# Pallas' documentation has 0.35 us for a TPU.
_STEP = {"tpu": 3.5e-7, "ascend": 3.5e-7, "gpu": 1e-7, "cpu": 1e-7}
# Main memory of a host, each core's part.
_BANDWIDTH_A_CORE = 1e10
# TPUs of known rates have a 32nd (128 x 128 units); a unit four times as large is
# about twice as fast at two units instead of four.
_VECTOR_SHARE = 1 / 64
# A TPU evaluates one in the time of four operations a lane.
_TRANSCENDENTAL_SHARE = 1 / 4
_DTYPES = (
    "float64 float32 bfloat16 float16 float8 int64 int32 int16 int8 int4 "
    "complex64 complex128"
).split()


@dataclass(frozen=True)
class Assumed:
    """Hold a record without unknown figures.

    **Arguments:**

    - `target`: The record, whose figures that count for modelled times are all there.
    - `values`: The ones that were assumed, by path.
    """

    target: Target
    values: Mapping[str, float]

    def told(self, path: str) -> str:
        """Return a figure that was assumed as text.

        >>> import tilejax.targets
        >>> assumed(tilejax.targets.get("tpu:v5e")).told("limits.launch_seconds")
        'limits.launch_seconds 1 us'
        """
        return f"{path} {shown(path, self.values[path])}"


@functools.lru_cache(maxsize=64)
def assumed(target: Target) -> Assumed:
    """Fill in what a record does not know of rates, bandwidth and overheads.

    **Arguments:**

    - `target`: Any record.

    **Returns:**

    An `Assumed`. Known figures are never changed. A rate follows from one of the same
    unit by the width of the operands.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> sorted(assumed(v5e).values)[:2]
    ['limits.launch_seconds', 'limits.step_seconds']
    """
    values: dict[str, float] = {}
    limits = target.limits
    if limits.launch_seconds is None:
        values["limits.launch_seconds"] = _LAUNCH
        limits = replace(limits, launch_seconds=_LAUNCH)
    if limits.step_seconds is None:
        values["limits.step_seconds"] = _STEP[target.kind]
        limits = replace(limits, step_seconds=_STEP[target.kind])
    main, cores = target.main, target.cores or 1
    if main.bandwidth is None:
        bandwidth = _BANDWIDTH_A_CORE * cores
        values[f"memories.{main.name}.bandwidth"] = bandwidth
        main = replace(main, bandwidth=bandwidth)
    if target.cores is None:
        values["cores"] = 1
    filled = replace(
        target,
        cores=cores,
        memories=(main, *target.memories[1:]),
        units=_with_vector_rate(target, values),
        limits=limits,
    )
    return Assumed(_with_all_rates(filled, values), Table(values))


def _with_vector_rate(target: Target, values: dict[str, float]) -> tuple[Unit, ...]:
    """Give the vector unit a rate for float32, and one for transcendentals."""
    vector, matrix = target.unit("vector"), target.unit("matrix")
    if vector is None:
        return target.units
    rates, plain = dict(vector.rates), vector.rates.get("float32")
    if plain is None:
        known = [r for r in matrix.rates.values() if r] if matrix else []
        plain = min(known, default=1e12) * _VECTOR_SHARE
        rates["float32"] = values[f"units.{vector.name}.float32"] = plain
    if all(unit.rates.get("transcendental") is None for unit in target.units):
        rate = plain * _TRANSCENDENTAL_SHARE
        rates["transcendental"] = rate
        values[f"units.{vector.name}.transcendental"] = rate
    return tuple(
        replace(unit, rates=rates) if unit is vector else unit for unit in target.units
    )


def _with_all_rates(target: Target, values: dict[str, float]) -> Target:
    """Give a rate to each dtype, on the unit that has it or, failing that, on one."""
    units = []
    for unit in target.units:
        wanted = [n for n, r in unit.rates.items() if r is None]
        wanted += [n for n in _DTYPES if _lacks(target, unit, n)]
        rates = dict(unit.rates)
        for name in dict.fromkeys(wanted):
            rate = _by_width(name, unit, target)
            rates[name] = values[f"units.{unit.name}.{name}"] = rate
        units.append(replace(unit, rates=rates))
    return replace(target, units=tuple(units))


def _lacks(target: Target, unit: Unit, dtype: str) -> bool:
    """Say whether a dtype needs a rate here; a vector unit widens to 32 bits."""
    if unit.kind == "vector" and dtype_key(dtype)[1] <= 32:
        return False
    return unit.kind != "scalar" and target.unit_for(dtype, unit.kind) is None


def _by_width(dtype: str, unit: Unit, target: Target) -> float:
    """Return a known rate of the unit, or else of the vector unit, by the width."""
    for name in ("bfloat16", "float32", *unit.rates):
        rate = unit.rates.get(name)
        if rate and name != "transcendental":
            return rate * dtype_key(name)[1] / dtype_key(dtype)[1]
    vector = target.unit("vector")
    rate = None if vector is None else vector.rates.get("float32")
    return (rate or 1e12) * 32 / dtype_key(dtype)[1]
