"""Compute once what is made of a frozen function's weights alone."""

from math import prod

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    consts,
    is_literal,
    new_outvars,
    new_var,
    renamed,
    with_,
)
from tilejax.ir import rewrite
from tilejax.ir.work import nbytes
from tilejax.passes.constants import Constants
from tilejax.passes.record import note

# The most elements of a constant that is read or made, and the bytes that are made.
MAX_ELEMENTS = 1 << 24
MAX_BYTES = 1 << 28


def freeze_weights(
    program: Program, *, max_elements: int = MAX_ELEMENTS, max_bytes: int = MAX_BYTES
) -> Program:
    """Compute what depends on large constants alone, and keep the results instead.

    **Rewrite:** with a constant `w`

        b = mul w scale
        c = tiled_matmul x (transpose b)    -->    c = tiled_matmul x (transpose w')

    Weights become constants where a function closes over them. What is kept is no
    larger than what it was made of. A transpose or reshape alone is left: a product
    reads its operands in any order. Nor is anything made of random numbers, of arrays
    that the user placed on a device, or within loops.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `max_elements`: The most elements of an array that is read or made.
    - `max_bytes`: The most bytes that are made in all.

    **Returns:**

    A program with the same inputs and outputs.
    """

    def freeze(body: Program, has_room: bool) -> Program:
        if not has_room or not body.constvars:
            return body
        return _freeze(body, max_elements, max_bytes)

    return rewrite(program, freeze)


def _freeze(body: Program, max_elements: int, max_bytes: int) -> Program:
    constants = Constants(body, max_elements)
    names: dict[Atom, Atom] = {}
    held = list(zip(body.constvars, consts(body), strict=True))
    for v in _needed(body, constants):
        size = nbytes(v.aval)
        value = constants.value(v) if size <= max_bytes else None
        if value is None:
            continue
        max_bytes -= size
        names[v] = new = new_var(v.aval)
        held.append((new, value))
        note(f"computed weights once: {prod(v.aval.shape)} elements")
    if not names:
        return body
    eqns = [renamed(eqn, names) for eqn in body.eqns]
    return with_(body, eqns=eqns, outvars=new_outvars(body, names), constants=held)


def _needed(body: Program, constants: Constants) -> list[Atom]:
    """What is computed from constants and read by what is not, or kept as it is."""
    kept: list[Eqn] = [
        eqn
        for eqn in body.eqns
        if not all(v in constants for v in eqn.outvars)
        or not any(map(constants.is_computed, eqn.outvars))
    ]
    read = [v for eqn in kept for v in eqn.invars] + list(body.outvars)
    found = [v for v in read if not is_literal(v) and constants.is_computed(v)]
    return list(dict.fromkeys(found))
