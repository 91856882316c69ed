"""Counting the work of plain equations, for whatever has no cost of its own.

Counts are of the mathematics, not of what a compiler makes of it: a product of m x k by
k x n is 2mnk operations, a reduction one an element read, an element-wise equation one
an element written. Moving, selecting and naming data is no operation.
"""

import math
from collections.abc import Iterable

import numpy as np

from tilejax._jax.jaxprs import Eqn, Program
from tilejax.ir.walk import walk
from tilejax.targets import Cost

_TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p tanh sin cos tan asin acos atan atan2 sinh cosh asinh "
    "acosh atanh logistic erf erfc erf_inv pow cbrt lgamma digamma".split()
)
_ARITHMETIC = frozenset(
    "add add_any sub mul div rem neg abs max min sqrt rsqrt square integer_pow sign "
    "floor ceil round clamp nextafter and or xor not eq ne lt le gt ge "
    "shift_left shift_right_logical shift_right_arithmetic".split()
)
_REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor "
    "argmax argmin cumsum cumprod cummax cummin cumlogsumexp reduce "
    "reduce_window_sum reduce_window_max reduce_window_min reduce_window".split()
)


_MOVES = frozenset("convert_element_type select_n copy is_finite real imag".split())


def is_elementwise(name: str) -> bool:
    """Say whether a primitive computes each element from those at the same place.

    >>> is_elementwise("exp"), is_elementwise("reduce_sum")
    (True, False)
    """
    return name in _TRANSCENDENTAL or name in _ARITHMETIC or name in _MOVES


def is_sized(eqns: Iterable[Eqn]) -> bool:
    """Say whether all sizes are numbers; exported programs may leave some open."""
    return all(
        isinstance(n, int)
        for eqn in eqns
        for v in (*eqn.invars, *eqn.outvars)
        for n in getattr(v.aval, "shape", ())
    )


def size(aval) -> int:
    """Return the number of elements of a type; 0 for what is no array."""
    return math.prod(getattr(aval, "shape", ())) if hasattr(aval, "shape") else 0


def nbytes(aval) -> int:
    """Return the bytes of a value of a type; 0 for what is no array."""
    try:
        return size(aval) * np.dtype(aval.dtype).itemsize
    except (TypeError, AttributeError):  # keys, references and tokens
        return 0


def work_of(eqn: Eqn) -> Cost:
    """Count what one plain equation does, its bodies aside.

    **Returns:**

    Operations by dtype, transcendentals, and the bytes of operands and results.
    """
    name = eqn.primitive.name
    reads = float(sum(nbytes(v.aval) for v in eqn.invars))
    writes = float(sum(nbytes(v.aval) for v in eqn.outvars))
    out = eqn.outvars[0].aval if eqn.outvars else None
    if name == "dot_general":
        return Cost(_dot(eqn), reads, writes, dtype=eqn.invars[0].aval.dtype)
    if name == "conv_general_dilated":
        return Cost(_conv(eqn), reads, writes, dtype=eqn.invars[0].aval.dtype)
    if name in _TRANSCENDENTAL:
        return Cost({}, reads, writes, transcendentals=float(size(out)))
    if name in _ARITHMETIC:
        return Cost({}, reads, writes, elementwise={_dtype(eqn): float(size(out))})
    if name in _REDUCTIONS:
        count = float(size(eqn.invars[0].aval))
        return Cost({}, reads, writes, elementwise={_dtype(eqn): count})
    return Cost({}, reads, writes)


def work_inside(program: Program) -> Cost:
    """Count the arithmetic of a whole program, as if no intermediate touched memory.

    **Returns:**

    The operations of all its equations, loops by their lengths where known, and the
    bytes of its inputs and outputs.
    """
    total = Cost()
    for visit in walk(program):
        one = work_of(visit.eqn) * (visit.trips or 1)
        total = total + Cost(
            one.flops, transcendentals=one.transcendentals, elementwise=one.elementwise
        )
    reads = sum(nbytes(v.aval) for v in (*program.invars, *program.constvars))
    writes = sum(nbytes(v.aval) for v in program.outvars)
    return total + Cost({}, float(reads), float(writes))


def _dtype(eqn: Eqn):
    return np.dtype(eqn.invars[0].aval.dtype)


def _dot(eqn: Eqn) -> float:
    (contract, _), _ = eqn.params["dimension_numbers"]
    depth = math.prod(eqn.invars[0].aval.shape[d] for d in contract)
    return 2.0 * size(eqn.outvars[0].aval) * depth


def _conv(eqn: Eqn) -> float:
    kernel = eqn.invars[1].aval.shape
    spec = eqn.params["dimension_numbers"].rhs_spec
    taps = math.prod(kernel[d] for d in spec[2:]) * kernel[spec[1]]
    return 2.0 * size(eqn.outvars[0].aval) * taps
