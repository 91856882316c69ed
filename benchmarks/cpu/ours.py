"""How TileJAX does it: its own operations, on kernels wherever there is one."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp

from benchmarks.cpu import plain_kernels
from benchmarks.cpu.cases import Case
from benchmarks.cpu.compiled import Compiled
from tilejax import jit, primitives
from tilejax.lowering.cpu import rule
from tilejax.lowering.cpu.runtime import allowed_threads
from tilejax.options import set_for_all


def _matmul(case: Case) -> Callable:
    if case.sizes["blocks"] is not None:
        return partial(plain_kernels.matmul, blocks=case.sizes["blocks"])
    return _product(case)


def _product(case: Case) -> Callable:
    sums = jnp.int32 if case.dtype == "int8" else None
    return partial(primitives.matmul, preferred_element_type=sums)


FUNCTIONS: dict[str, Callable[[Case], Callable]] = {
    "matmul": _matmul,
    "matvec": _product,
    "attention": lambda case: partial(
        primitives.attention, causal=case.sizes["causal"]
    ),
    "softmax": lambda case: primitives.softmax,
    "layer_norm": lambda case: primitives.layer_norm,
    "rms_norm": lambda case: primitives.rms_norm,
    "cross_entropy": lambda case: primitives.cross_entropy,
    "embedding_bag": lambda case: primitives.embedding_bag,
    "depthwise_conv": lambda case: partial(primitives.conv, groups=case.sizes["x"][-1]),
    "interpret": lambda case: plain_kernels.of_case(case.sizes, interpret=False),
}


class Ours(Compiled):
    """TileJAX's side of a case; its scratch counts as temporary memory."""

    jit = staticmethod(jit)

    def __init__(self, case: Case):
        set_for_all(kernels="native")
        super().__init__(case, FUNCTIONS[case.family](case))

    def description(self) -> dict:
        launches = [launch for name, launch in made() if name in self.text]
        arenas = sum(allowed_threads() * each.arena_bytes for each in launches)
        found = super().description()
        kernel = "native" if launches else "reference"
        return found | {"temp_bytes": found["temp_bytes"] + arenas, "kernel": kernel}


def made() -> list:
    """List the kernels of this process: the names they are called by, and launches."""
    return list(rule._MADE.values())
