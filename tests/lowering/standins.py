"""Kernels for the CPU while a test needs them: the TPU's, or references in their place.

A stand-in computes what its operation means, but the compiler cannot see into it until
it has been split over the devices, as with any kernel: that is what the tests of how
kernels are split look at, without the time that Pallas' interpreter takes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from tilejax.lowering import rules
from tilejax.lowering.adapt.families import FAMILIES
from tilejax.lowering.adapt.record import Adapted
from tilejax.primitives.op import Op

ADAPTED = [kernel for family in FAMILIES for kernel in family.KERNELS]


@dataclass(frozen=True)
class Seen:
    """One use of a kernel: what it computed, on which shapes."""

    op: str
    part: str
    shapes: tuple[tuple[int, ...], ...]


def interpreted(kernel: Adapted) -> Callable:
    """Return the kernel itself, in Pallas' interpreter."""

    def run(*args, **params):
        return kernel.run(*args, **params, interpret=True)

    return run


def stand_in(kernel: Adapted) -> Callable:
    """Return the operation's meaning, in the form of the kernel."""
    meant = kernel.op.reference
    if kernel.part == "backward":
        assert kernel.op.backward is not None
        meant = kernel.op.backward

    def run(*args, config, **params):
        del config
        return meant(*args, **params)

    return run


def _any_config(target, *avals, **params) -> list:
    return [None]


@contextmanager
def on_cpu(
    kernels: Sequence[Adapted] = tuple(ADAPTED),
    make: Callable[[Adapted], Callable] = stand_in,
    configs: Callable | None = _any_config,
) -> Iterator[list[Seen]]:
    """Register kernels for the CPU; yield a list that grows by each use.

    **Arguments:**

    - `kernels`: which; all by default.
    - `make`: what runs for each: `stand_in` or `interpreted`.
    - `configs`: the configs that are legal; None for each kernel's own.
    """
    seen: list[Seen] = []

    def noted(kernel: Adapted) -> Callable:
        run = make(kernel)

        def note(*args, **params):
            operands = args if kernel.part == "forward" else args[0]
            shapes = tuple(x.shape for x in operands if x is not None)
            seen.append(Seen(kernel.op.name, kernel.part, shapes))
            return run(*args, **params)

        return note

    keys: list[tuple[str, Op, str]] = []
    kept: dict[Any, Any] = {}
    try:
        for kernel in kernels:
            key = ("cpu", kernel.op, kernel.part)
            if key in rules._KERNELS:
                kept[key] = rules._KERNELS.pop(key)
            legal = configs or kernel.configs
            rules.register_kernel(
                kernel.op, "cpu", noted(kernel), configs=legal, part=kernel.part
            )
            keys.append(key)
        jax.clear_caches()
        yield seen
    finally:
        for key in keys:
            del rules._KERNELS[key]
        rules._KERNELS.update(kept)
        jax.clear_caches()
