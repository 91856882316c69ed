"""Compute at trace time what depends on no input."""

from math import prod

import numpy as np

from tilejax._jax.jaxprs import (
    Eqn,
    Program,
    consts,
    is_literal,
    is_pure,
    new_outvars,
    new_var,
    renamed,
    with_,
)
from tilejax._jax.values import (
    compute,
    is_placed,
    known_constant,
    literal,
    literal_value,
)
from tilejax.ir import rewrite
from tilejax.passes.exact import exactly
from tilejax.passes.record import note

# The most elements that one folded result may have.
MAX_ELEMENTS = 1 << 16

# Only what gives the same bits wherever it runs, or may be expected to: neither random
# numbers nor dots, whose precision is the device's. What is not named is never folded.
FOLDED = frozenset(
    """
    abs acos acosh add and argmax argmin asin asinh atan atan2 atanh
    bitcast_convert_type broadcast_in_dim cbrt ceil clamp clz complex concatenate
    conj convert_element_type cos cosh cummax cummin cumprod cumsum digamma div
    dynamic_slice eq erf erf_inv erfc exp exp2 expand_dims expm1 floor ge gt imag
    integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg
    nextafter not or pad population_count pow real reduce_and reduce_max reduce_min
    reduce_or reduce_precision reduce_prod reduce_sum reduce_xor rem reshape rev
    round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign
    sin sinh slice sqrt square squeeze sub tan tanh transpose xor
    """.split()
)


def fold_constants(program: Program, *, max_elements: int = MAX_ELEMENTS) -> Program:
    """Compute the equations all of whose operands are constants.

    **Rewrite:**

        b = sqrt 16.0
        c = mul a b      -->   c = mul a 4.0

    JAX itself computes them, one by one, on the CPU; NumPy those that no choice is left
    in. Never folded: effects, random
    numbers and keys, callbacks, collectives, values of an outer trace, arrays that the
    user placed on a device, and whatever would grow: a broadcast or an `iota` says the
    same in fewer words. Bodies of loops cannot hold arrays, so only scalars are folded
    there.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `max_elements`: The most elements of an operand or result.

    **Returns:**

    A program with the same inputs and outputs.
    """

    def fold(body: Program, has_room: bool) -> Program:
        return _fold(body, max_elements if has_room else 1, has_room)

    return rewrite(program, fold)


def _fold(body: Program, limit: int, has_room: bool) -> Program:
    constants = dict(zip(body.constvars, consts(body), strict=True))
    known: dict = {}
    names: dict = {}
    eqns = []
    for eqn in body.eqns:
        eqn = renamed(eqn, names)
        values = _operands(eqn, known, constants, limit)
        if values is None or not _is_folded(eqn, values, limit, has_room):
            eqns.append(eqn)
            continue
        note(f"folded {eqn.primitive.name}")
        exact = exactly(eqn, values)
        results = compute(eqn, values) if exact is None else [exact]
        for variable, value in zip(eqn.outvars, results, strict=True):
            if variable.aval.shape == ():
                names[variable] = literal(value, variable.aval)
            else:
                names[variable] = held = new_var(variable.aval)
                constants[held] = known[held] = value
    if not names:
        return body
    outvars = new_outvars(body, names)
    return with_(
        body, eqns=eqns, outvars=outvars, constants=list(constants.items()) or None
    )


def _operands(eqn: Eqn, known: dict, constants: dict, limit: int) -> list | None:
    """Return the operands' values, or `None` if the equation may not be folded."""
    if eqn.primitive.name not in FOLDED or not eqn.invars or not is_pure(eqn):
        return None
    values = []
    for atom in eqn.invars:
        if is_literal(atom):
            value = literal_value(atom)
        elif atom in known:
            value = known[atom]
        elif atom in constants:
            value = known[atom] = known_constant(constants[atom], limit)
        else:
            return None
        if value is None:
            return None
        values.append(value)
    return values


def _is_folded(eqn: Eqn, values: list[np.ndarray], limit: int, has_room: bool) -> bool:
    """Say whether the results fit: in size, and in what a constant's type can say."""
    largest = max(1, *(value.size for value in values))
    for variable in eqn.outvars:
        aval = variable.aval
        size = prod(aval.shape)
        if size > min(limit, largest) or is_placed(aval):
            return False
        # An array that is a constant cannot be weakly typed.
        if aval.shape != () and (aval.weak_type or not has_room):
            return False
    return eqn.ctx.compute_type is None and not eqn.ctx.xla_metadata
