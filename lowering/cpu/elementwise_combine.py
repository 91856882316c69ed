"""What reductions and scans combine elements by."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from tilejax.lowering.cpu import (
    elementwise_arithmetic as arithmetic,
    elementwise_bits as bits,
)
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.elementwise_arithmetic import Rule
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt, constant, is_float, is_float8


@dataclass(frozen=True)
class Combine:
    """An associative operation and its identity.

    **Arguments:**

    - `rule`: the element-wise rule of two operands.
    - `name`: of the operation.
    """

    rule: Rule
    name: str

    def __call__(self, nest: Nest, a: Elt, b: Elt) -> Elt:
        """Combine two elements of one dtype."""
        return self.rule(nest, [a, b], a.dtype, {})

    def identity(self, dtype: str) -> Elt:
        """Return what changes nothing when combined with."""
        if self.name in ("sum", "or", "xor"):
            return constant(0, dtype)
        if self.name == "prod":
            return constant(1, dtype)
        if self.name == "and":
            return Elt("true" if dtype == "bool" else "-1", dtype)
        return constant(_end(dtype, lowest=self.name != "min"), dtype)


def _end(dtype: str, lowest: bool):
    """Return the least or the greatest number of a dtype, infinite if it has that."""
    if dtype == "bool":
        return not lowest
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        return limits.min if lowest else limits.max
    if is_float8(dtype) and dtype != "float8_e5m2":
        limits = jnp.finfo(dtype)
        return limits.min if lowest else limits.max
    return -np.inf if lowest else np.inf


def _logaddexp(nest: Nest, args: list[Elt], dtype: str, params: dict) -> Elt:
    """The logarithm of a sum of exponentials, right for infinities too."""
    a, b = args
    high = OPS["max"](nest, [a, b], dtype)
    gap = OPS["sub"](nest, [a, b], dtype)
    close = OPS["neg"](nest, [OPS["abs"](nest, [gap], dtype)], dtype)
    more = OPS["log1p"](nest, [OPS["exp"](nest, [close], dtype)], dtype)
    found = OPS["add"](nest, [high, more], dtype)
    # equal infinities have no difference
    is_nan = OPS["ne"](nest, [gap, gap], "bool")
    return nest.select(is_nan, OPS["add"](nest, [a, b], dtype), found)


COMBINE = {
    "logsumexp": Combine(_logaddexp, "logsumexp"),
    "sum": Combine(arithmetic.add, "sum"),
    "prod": Combine(arithmetic.mul, "prod"),
    "max": Combine(arithmetic.maximum, "max"),
    "min": Combine(arithmetic.minimum, "min"),
    "and": Combine(bits.logical("and"), "and"),
    "or": Combine(bits.logical("or"), "or"),
    "xor": Combine(bits.logical("xor"), "xor"),
}
"""The operations of reductions, by name."""
