"""Replace calls by their bodies."""

from tilejax._jax.jaxprs import (
    Eqn,
    Program,
    consts,
    copied,
    is_dropped,
    is_literal,
    new_outvars,
    new_var,
    renamed,
    scope_of_call,
    with_,
)
from tilejax._jax.nested import NOT_A_CALL, nested, why_not_inline
from tilejax.ir import rewrite
from tilejax.passes.record import note


def inline_calls(program: Program) -> Program:
    """Put the body of each plain call in the place of the call.

    **Rewrite:**

        b = jit[name=f] a
            (x) { y = sin x; return y }    -->    b = sin a

    A `jit` with shardings, layouts or compiler options stays a call, as does what has
    a meaning of its own: `checkpoint`, custom derivatives, loops. So does a call whose
    body has constants, inside a loop's body, which cannot hold them. Name stacks and
    tracebacks are those that the call would have given.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _inline)


def _inline(body: Program, has_room: bool) -> Program:
    reasons = [_why_not(eqn, has_room) for eqn in body.eqns]
    for reason in reasons:
        if reason not in (None, NOT_A_CALL):
            note(f"kept a call that {reason}")
    if None not in reasons:
        return body
    names: dict = {}
    constants = list(zip(body.constvars, consts(body), strict=True))
    eqns: list[Eqn] = []
    for eqn, reason in zip(body.eqns, reasons, strict=True):
        eqn = renamed(eqn, names)
        if reason is None:
            note(f"inlined {eqn.primitive.name}")
            _expand(eqn, names, constants, eqns)
        else:
            eqns.append(eqn)
    outvars = new_outvars(body, names)
    # `None` rather than an empty list: an open body takes no constants at all.
    return with_(body, eqns=eqns, outvars=outvars, constants=constants or None)


def _why_not(eqn: Eqn, has_room: bool) -> str | None:
    """Say why the equation stays as it is; `None` for a call to inline."""
    reason = why_not_inline(eqn)
    if reason is not None:
        return reason
    ((_, body),) = nested(eqn)
    if body.constvars and not has_room:
        return "has constants, inside a loop"
    inner = [v.aval for v in (*body.invars, *body.outvars)]
    outer = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    # JAX lets weak types differ here; without the call they would spread.
    return None if inner == outer else "changes types at its border"


def _expand(eqn: Eqn, names: dict, constants: list, eqns: list[Eqn]) -> None:
    ((_, body),) = nested(eqn)
    inner = dict(zip(body.invars, eqn.invars, strict=True))
    inner |= _place_constants(body, constants)
    scope = scope_of_call(eqn)
    for each in body.eqns:
        eqns.append(copied(each, inner, scope, eqn.source_info.traceback))
    for outer, atom in zip(eqn.outvars, body.outvars, strict=True):
        if not is_dropped(outer):
            names[outer] = atom if is_literal(atom) else inner[atom]


def _place_constants(body: Program, constants: list) -> dict:
    """Give each constant of the body a name among the outer ones, shared if equal."""
    placed = {}
    known = {id(value): variable for variable, value in constants}
    for variable, value in zip(body.constvars, consts(body), strict=True):
        same = known.get(id(value))
        if same is None or same.aval != variable.aval:
            same = new_var(variable.aval)
            constants.append((same, value))
            known[id(value)] = same
        placed[variable] = same
    return placed
