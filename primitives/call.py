"""How one use of an operation differs from its plain form, as one hashable record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from tilejax.primitives.factors import Rule


@dataclass(frozen=True)
class Level:
    """One `vmap`: the operands and results that have its axis, in front.

    A result without the axis is summed over it: the gradient of an operand that all
    members of the batch share.
    """

    ins: tuple[bool, ...]
    outs: tuple[bool, ...]


@dataclass(frozen=True)
class Call:
    """What the mechanism keeps beside an operation's own parameters.

    **Arguments:**

    - `given`: for each operand of the reference whether it is there (not None).
    - `levels`: the `vmap`s around it, outermost first.
    - `moving`: for each operand that is there, whether it has a tangent (in a tangent)
      or wants a gradient (in a backward); empty in the forward.
    - `target`: the name of the target that kernels are chosen for; None for the device
      that the program is lowered for.
    - `apart`: whether it was put together of several equations, and is differentiated
      as those, so that no more is computed again than they would.
    """

    given: tuple[bool, ...]
    levels: tuple[Level, ...] = ()
    moving: tuple[bool, ...] = ()
    target: str | None = None
    apart: bool = False

    def __repr__(self) -> str:
        parts = ["".join("x" if g else "-" for g in self.given)]
        if self.moving:
            parts.append("d" + "".join("x" if m else "-" for m in self.moving))
        parts += [
            "v" + "".join("x" if m else "-" for m in level.ins) for level in self.levels
        ]
        parts += ["apart"] * self.apart
        return ":".join(parts) + (f"@{self.target}" if self.target else "")

    def pushed(self, level: Level) -> "Call":
        """Return the call inside one more `vmap`."""
        return replace(self, levels=(level, *self.levels))

    def expand(self, operands: Sequence) -> list:
        """Put None where an operand was not given."""
        there = iter(operands)
        return [next(there) if g else None for g in self.given]


def batched(fun: Callable, levels: Sequence[Level]) -> Callable:
    """Map `fun(*arrays) -> list of arrays` over the levels' axes."""
    for level in reversed(levels):
        fun = _mapped(fun, level)
    return fun


def _mapped(fun: Callable, level: Level) -> Callable:
    axes = tuple(0 if m else None for m in level.ins)

    def run(*args):
        outs = jax.vmap(lambda *xs: list(fun(*xs)), in_axes=axes)(*args)
        return [
            out if mapped else jnp.sum(out, axis=0)
            for out, mapped in zip(outs, level.outs, strict=True)
        ]

    return run


def batched_rule(rule: Rule, levels: Sequence[Level]) -> Rule:
    """Give each level's axis a factor of its own, in front."""
    operands, results = rule.operands, rule.results
    for depth, level in enumerate(reversed(levels)):
        name = f"vmap{depth}"
        operands = tuple(
            (name, *dims) if m else dims
            for dims, m in zip(operands, level.ins, strict=True)
        )
        results = tuple(
            (name, *dims) if m else dims
            for dims, m in zip(results, level.outs, strict=True)
        )
    return replace(rule, operands=operands, results=results)
