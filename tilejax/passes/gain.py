"""What a rewrite gains, by a model that passes are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilejax._jax.jaxprs import Atom, Eqn
from tilejax.ir.work import is_sized

# From equations, and those of their results that are needed, to modelled seconds.
Seconds: TypeAlias = Callable[[Sequence[Eqn], Sequence[Atom]], float]

# Sums of the same terms in another order.
_SAME = 1 + 1e-9


@dataclass(frozen=True)
class Gain:
    """The modelled seconds of equations, and of those in their place."""

    before: float
    after: float

    @property
    def pays(self) -> bool:
        """Whether nothing is lost."""
        return self.after <= self.before * _SAME

    @property
    def is_something(self) -> bool:
        """Whether something is gained."""
        return self.before > self.after * _SAME

    def __str__(self) -> str:
        if self.pays and not self.is_something:
            return f"{_time(self.after)} as before by the model"
        return f"{_time(self.after)} instead of {_time(self.before)} by the model"


def gain_of(
    seconds: Seconds | None,
    old: tuple[Sequence[Eqn], Sequence[Atom]],
    new: tuple[Sequence[Eqn], Sequence[Atom]],
) -> Gain | None:
    """Compare equations and their needed results with others.

    None without a model, or where sizes are not known yet.
    """
    if seconds is None or not is_sized(old[0]):
        return None
    return Gain(seconds(*old), seconds(*new))


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if float(f"{seconds:.3g}") >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
