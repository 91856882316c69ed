"""Putting what a function does in the place of an equation."""

from collections.abc import Callable, Sequence

from tilejax._jax.jaxprs import Atom, Eqn, context_of, copied, is_literal
from tilejax._jax.retiled import (
    ShardingTypeError,
    result_types,
    same_types,
    traced,
)
from tilejax.errors import TileJAXError


def splice(
    fun: Callable, operands: Sequence[Atom], eqn: Eqn
) -> tuple[list[Eqn], list[Atom]] | None:
    """Trace `fun` on the operands' types, as equations that stand where `eqn` does.

    **Arguments:**

    - `fun`: from arrays to a list of arrays; it may close over no array.
    - `operands`: of the enclosing program.
    - `eqn`: whose source line, name stack and context the new equations get.

    **Returns:** the equations and the operands that hold the results; None if the
    results have other types than those of `eqn` (weak types and shardings included),
    or if `fun` cannot take operands that are sharded or typed as these are.
    """
    try:
        with context_of(eqn):
            program = traced(fun, [v.aval for v in operands])
    except (TileJAXError, ShardingTypeError):
        return None
    wanted = [v.aval for v in eqn.outvars]
    if program.constvars or not same_types(result_types(program), wanted):
        return None
    names: dict = dict(zip(program.invars, operands, strict=True))
    scope = eqn.source_info.name_stack
    eqns = [
        copied(each.replace(source_info=eqn.source_info), names, scope[:0], None)
        for each in program.eqns
    ]
    outs = [v if is_literal(v) else names[v] for v in program.outvars]
    return eqns, outs
