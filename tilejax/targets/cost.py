"""How much work an operation is: operations by dtype, and bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilejax.errors import ParameterError
from tilejax.targets.figures import dtype_key
from tilejax.targets.table import Table


@dataclass(frozen=True, init=False)
class Cost:
    """Hold the work of an operation, true sizes, without padding.

    **Arguments:**

    - `flops`: Operations of contractions (a multiply-add is two), by dtype of the
      operands, or a number with `dtype`.
    - `bytes_read`, `bytes_written`: Between main memory and the chip.
    - `transcendentals`: Evaluations of exp, log, tanh and the like.
    - `elementwise`: Other arithmetic, which no matrix unit does, by dtype.
    - `dtype`: Dtype of `flops`, where that is a number.

    **Raises:**

    `tilejax.errors.ParameterError` for a negative amount, or operations without dtype.

    Example:

    >>> product = Cost(2 * 8 * 8 * 8, 256, 128, dtype="bfloat16")
    >>> (product + product).operations
    2048.0
    """

    flops: Mapping[str, float]
    bytes_read: float
    bytes_written: float
    transcendentals: float
    elementwise: Mapping[str, float]

    def __init__(
        self,
        flops: Mapping[Any, float] | float = 0.0,
        bytes_read: float = 0.0,
        bytes_written: float = 0.0,
        transcendentals: float = 0.0,
        elementwise: Mapping[Any, float] | None = None,
        *,
        dtype: Any = None,
    ) -> None:
        """Name the dtypes, and check the amounts."""
        if not isinstance(flops, Mapping):
            if dtype is None and flops:
                raise ParameterError(
                    f"Cost: {flops!r} operations of which dtype? Give dtype=, or a "
                    "mapping from dtype to operations"
                )
            flops = {dtype: flops} if flops else {}
        values = {
            "flops": _by_key(flops),
            "bytes_read": bytes_read,
            "bytes_written": bytes_written,
            "transcendentals": transcendentals,
            "elementwise": _by_key(elementwise or {}),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        amounts = {
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "transcendentals": self.transcendentals,
            **{f"flops[{name}]": count for name, count in self.flops.items()},
            **{f"elementwise[{name}]": n for name, n in self.elementwise.items()},
        }
        for name, amount in amounts.items():
            if not amount >= 0:
                raise ParameterError(
                    f"Cost: {name} is {amount!r}; it must not be negative"
                )

    @property
    def operations(self) -> float:
        """Return all operations, a transcendental counting as one."""
        return (
            float(sum(self.flops.values()))
            + sum(self.elementwise.values())
            + self.transcendentals
        )

    @property
    def bytes(self) -> float:
        """Return all bytes moved."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Return operations a byte; infinite where nothing is moved."""
        if self.bytes:
            return self.operations / self.bytes
        return math.inf if self.operations else 0.0

    def __add__(self, other: "Cost") -> "Cost":
        """Return the work of one after the other."""
        return Cost(
            _added(self.flops, other.flops),
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.transcendentals + other.transcendentals,
            _added(self.elementwise, other.elementwise),
        )

    def __mul__(self, times: float) -> "Cost":
        """Return the work of doing it so many times."""
        return Cost(
            {name: count * times for name, count in self.flops.items()},
            self.bytes_read * times,
            self.bytes_written * times,
            self.transcendentals * times,
            {name: count * times for name, count in self.elementwise.items()},
        )


def _by_key(counts: Mapping[Any, float]) -> Table[float]:
    found: dict[str, float] = {}
    for dtype, count in counts.items():
        key, _ = dtype_key(dtype)
        found[key] = found.get(key, 0) + count
    return Table(found)


def _added(one: Mapping[str, float], two: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0) + two.get(name, 0) for name in {**one, **two}}
