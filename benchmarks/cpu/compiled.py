"""A case as a compiled JAX program, however it is written."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cpu.cases import Case
from benchmarks.cpu.operands import filled, operands, spread_out


class Compiled:
    """One implementation of a case, ready to be called.

    **Arguments:**

    - `case`: the case.
    - `function`: of its inputs, in the order of `operands`.
    """

    jit: Callable = staticmethod(jax.jit)

    def __init__(self, case: Case, function: Callable):
        arrays = [
            self.arranged(jnp.asarray(x, each.dtype))
            for x, each in zip(filled(case), operands(case), strict=True)
        ]
        self.buffers, self.turn = case.buffers, 0
        options: dict[str, Any] = {}
        if case.buffers == "donated":
            options = {"donate_argnums": 0}
        if case.buffers == "reused":
            # The result is of the type of an input that is there for its memory alone.
            options = {"donate_argnums": len(arrays), "keep_unused": True}
            arrays.append(jnp.zeros_like(arrays[0]))
            function = _without_last(function)
        self.run = self.jit(function, **options)
        program = self.run.lower(*arrays).compile()
        self.text = program.as_text()
        self.temp_bytes = program.memory_analysis().temp_size_in_bytes
        first, *self.rest = arrays
        self.firsts = [first, *[jnp.array(first) for _ in range(case.cycle - 1)]]
        out = self.run(jnp.array(first), *self.rest)
        if self.buffers == "reused":
            self.rest[-1] = out
        flat = np.asarray(self.arranged(out).astype(jnp.float32)).ravel()
        self.sample = spread_out(flat)

    def arranged(self, x: jax.Array) -> jax.Array:
        """Bring an array to the axes that this implementation wants, and back."""
        return x

    def __call__(self) -> None:
        """Run it once, to its end."""
        self.turn = (self.turn + 1) % len(self.firsts)
        out = self.run(self.firsts[self.turn], *self.rest)
        if self.buffers == "donated":
            self.firsts[0] = out
        if self.buffers == "reused":
            self.rest[-1] = out
        jax.block_until_ready(out)

    def description(self) -> dict:
        """Say what it takes and gives, beside time."""
        return {"temp_bytes": self.temp_bytes, "sample": self.sample}


def _without_last(function: Callable) -> Callable:
    return lambda *arrays: function(*arrays[:-1])
