"""What a function makes of tiled operations: each use, with its operands and results.

The uses in a gradient are those that arise there, with the shapes, dimension numbers
and parameters that JAX's own rules give them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilejax.primitives import parts
from tilejax.primitives.call import Call
from tilejax.primitives.define import operations
from tilejax.primitives.op import Op


@dataclass(frozen=True)
class Use:
    """A forward or a backward that ran."""

    op: Op
    part: str
    call: Call
    params: dict
    args: Sequence[Any]
    results: Sequence[Any]

    @property
    def name(self) -> str:
        return f"{self.op.name} {self.part}"

    def operands(self) -> list:
        """Those of the reference, None where one was not given."""
        return self.call.expand(self.args[: sum(self.call.given)])

    def plain_params(self) -> dict:
        return self.op.params(self.params)

    def run(self, kernel: Callable, **options) -> list:
        """What a kernel gives for the same operands, as results of the primitive."""
        options |= self.plain_params()
        if self.part == "forward":
            out = kernel(*self.operands(), **options)
            return list(out) if isinstance(out, tuple | list) else [out]
        operands, saved, cotangents = parts.split_args(self.op, self.call, self.args)
        grads = kernel(self.call.expand(operands), saved, cotangents, **options)
        return parts.gradients(self.op, self.call, operands, grads)


@contextmanager
def recorded() -> Iterator[list[Use]]:
    """Collect the uses that run inside, outside of any `jit`."""
    found: list[Use] = []
    before = {}
    for op in operations().values():
        for part in ("forward", "backward"):
            primitive = getattr(op, f"{part}_p")
            before[primitive] = primitive.impl
            primitive.impl = _noting(found, op, part, primitive.impl)
    try:
        yield found
    finally:
        for primitive, impl in before.items():
            primitive.impl = impl


def _noting(found: list[Use], op: Op, part: str, impl: Callable) -> Callable:
    def run(*args, call: Call, **params):
        results = impl(*args, call=call, **params)
        if not call.levels:
            found.append(Use(op, part, call, params, args, results))
        return results

    return run
