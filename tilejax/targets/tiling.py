"""What a kernel does with one of its configs, and how long that takes by the model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tilejax.errors import ParameterError
from tilejax.targets.assumed import assumed
from tilejax.targets.cost import Cost
from tilejax.targets.records import Target
from tilejax.targets.roofline import Estimate, seconds


@dataclass(frozen=True)
class Tiling:
    """State the work of a kernel with a config; the ranking is the model's.

    **Arguments:**

    - `config`: As the kernel takes it.
    - `cost`: Operations, and bytes as they are moved: a block that is loaded again
      counts again.
    - `steps`: Grid steps, of all its calls together.
    - `blocks`: How many of them may run side by side.
    - `efficiency`: Fraction of the contractions' padded size that is true, as
      `padding_efficiency` returns it.
    - `calls`: How many kernels run one after another.
    - `code`: Under what name the target's `code` has a share of this kernel, as
      "matmul.forward.float32"; nothing for what is no call of a kernel of ours.
    - `cached`: Bytes that its steps move within caches before they compute, of packed
      operands and running sums. They count where the target's `code` knows at what
      rate.

    **Raises:**

    `tilejax.errors.ParameterError` for an efficiency outside (0, 1], or fewer than one
    step, block or call.

    Example:

    >>> Tiling(128, Cost(bytes_read=4096.0), steps=8, blocks=8).calls
    1
    """

    config: Any
    cost: Cost
    steps: int = 1
    blocks: int = 1
    efficiency: float = 1.0
    calls: int = 1
    code: str = ""
    cached: float = 0.0

    def __post_init__(self) -> None:
        """Check the amounts."""
        least = min(self.steps, self.blocks, self.calls)
        if least < 1 or not 0 < self.efficiency <= 1:
            raise ParameterError(
                f"Tiling of {self.config!r}: steps {self.steps}, blocks {self.blocks} "
                f"and calls {self.calls} must be at least one, and efficiency "
                f"{self.efficiency} in (0, 1]"
            )

    def after_copies(self, moved: float, calls: int = 1) -> "Tiling":
        """Return the same behind copies that bring operands into the kernel's layout.

        **Arguments:**

        - `moved`: Bytes of what is copied, each read and written; for none, nothing
          changes.
        - `calls`: How many copies.
        """
        if not moved:
            return self
        cost = self.cost + Cost({}, moved, moved)
        return replace(self, cost=cost, calls=self.calls + calls)

    def estimate(self, target: Target) -> Estimate:
        """Return the modelled time on a target, without what its record lacks."""
        return seconds(
            self.cost,
            target,
            blocks=self.blocks,
            steps=self.steps,
            efficiency=self.efficiency,
        )

    def seconds(self, target: Target) -> float:
        """Return the modelled time on a target, unknown figures as `assumed` has them.

        Example:

        >>> import tilejax.targets
        >>> v5e = tilejax.targets.get("tpu:v5e")
        >>> copy = Tiling(None, Cost({}, 819e3, 819e3), steps=2, blocks=2)
        >>> round(copy.seconds(v5e) * 1e6, 3)  # 2 us, a launch and two steps
        3.7
        """
        full = assumed(target).target
        found, launch = self.estimate(full).seconds, full.limits.launch_seconds
        assert found is not None and launch is not None
        again = (self.calls - 1) * launch
        if not self.code:
            return found + again
        share = full.reached(f"kernel.{self.code}")
        calls = self.calls * call_seconds(full)
        return found / share + again + calls + self._cached_seconds(full)

    def _cached_seconds(self, target: Target) -> float:
        rate = target.code.get("kernel.cached_bytes_per_second")
        if rate is None:
            return 0.0
        return self.cached / (rate * min(self.blocks, target.cores or 1))


def call_seconds(target: Target) -> float:
    """Return what a call of a kernel costs on top of a launch of the compiler's code.

    Example:

    >>> import tilejax.targets
    >>> call_seconds(tilejax.targets.get("tpu:v5e"))
    0.0
    """
    return target.code.get("kernel.call_seconds", 0.0)


def ranked(target: Target, tilings: Iterable[Tiling]) -> list[tuple[float, Tiling]]:
    """Sort by modelled time, those that come first going first among equals.

    **Arguments:**

    - `target`: Where.
    - `tilings`: In an order that does not change.

    **Returns:**

    Pairs of seconds and a tiling.

    Example:

    >>> import tilejax.targets
    >>> tilings = [Tiling(n, Cost(bytes_read=1e6), steps=n) for n in (8, 2, 4)]
    >>> [t.config for _, t in ranked(tilejax.targets.get("tpu:v5e"), tilings)]
    [2, 4, 8]
    """
    pairs = [(tiling.seconds(target), tiling) for tiling in tilings]
    return sorted(pairs, key=lambda pair: pair[0])


def fastest(target: Target, tilings: Iterable[Tiling]) -> Tiling:
    """Return the tiling with the least modelled time, the first among equals.

    **Arguments:**

    - `target`: Where.
    - `tilings`: One at least.

    Example:

    >>> import tilejax.targets
    >>> tilings = [Tiling(n, Cost(bytes_read=1e6), steps=n) for n in (8, 2, 4)]
    >>> fastest(tilejax.targets.get("tpu:v5e"), tilings).config
    2
    """
    return min(tilings, key=lambda tiling: tiling.seconds(target))
