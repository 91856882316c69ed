"""Using an equation's primitive again, on other operands and parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from jax._src import source_info_util

from tilejax._jax.jaxprs import Eqn, Program, close, context_of, is_literal


def rebind(eqn: Eqn, operands: Sequence, params: Mapping[str, Any]) -> list:
    """Bind the primitive of an equation, in its context and at its line.

    **Returns:** a list of results.
    """
    bound = eqn.primitive.get_bind_params(dict(params))
    with at_line_of(eqn), context_of(eqn):
        outs = eqn.primitive.bind(*operands, **bound)
    return list(outs) if eqn.primitive.multiple_results else [outs]


def at_line_of(eqn: Eqn) -> Any:
    """Let what is traced inside report the equation's line and scopes."""
    info = eqn.source_info
    stack = source_info_util.current_name_stack() + info.name_stack
    return source_info_util.user_context(info.traceback, name_stack=stack)


def jvp_program(eqn: Eqn, zeros: Sequence[bool]) -> tuple[Program, list[bool]]:
    """Return the derivative rule of a `custom_jvp_call` as a program.

    **Arguments:**

    - `zeros`: for each operand that is no constant, whether its tangent is zero.

    **Returns:**

    A program from those operands and the other tangents to results and tangents, and
    for each result whether its tangent is zero, and so left out.
    """
    jaxpr, constants, out_zeros = eqn.params["jvp_jaxpr_fun"].call_wrapped(*zeros)
    return close(jaxpr, constants), list(out_zeros)


def value_of(atom: Any, known: Mapping) -> Any:
    """Return the value of an operand: a literal's own, or that of a variable."""
    return atom.val if is_literal(atom) else known[atom]
