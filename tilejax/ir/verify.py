"""Whether a program is well formed."""

from tilejax._jax.jaxprs import (
    JaxprTypeError,
    Program,
    check,
    consts,
    is_dropped,
    is_literal,
)
from tilejax._jax.nested import nested
from tilejax.errors import PassError
from tilejax.ir.walk import KERNELS


def verify(program: Program, *, name: str) -> None:
    """Check scopes, constants and types of a program and of all its bodies.

    **Arguments:**

    - `program`: A closed program.
    - `name`: The pass that made it, for the message.

    **Raises:**

    `PassError` naming the pass, the body and the fault.
    """
    verify_scopes(program, name=name)
    try:
        check(program)
    except (JaxprTypeError, TypeError, ValueError) as error:
        raise PassError(f"pass {name!r} left an ill-typed program: {error}") from error


def verify_scopes(program: Program, *, name: str) -> None:
    """Check that each variable is defined once, before its use, in its own body.

    This is the quick part of `verify`: it looks at no type.

    **Raises:**

    `PassError` naming the pass, the body and the fault.
    """
    _verify_body(program, name, "the program")


def _verify_body(body: Program, name: str, where: str) -> None:
    if len(consts(body)) not in (0, len(body.constvars)):
        raise PassError(
            f"pass {name!r} left {len(consts(body))} constants for "
            f"{len(body.constvars)} constant variables in {where}"
        )
    scope = _Scope(name, where)
    scope.define(body.constvars, "a constant")
    scope.define(body.invars, "an input")
    for i, eqn in enumerate(body.eqns):
        what = f"equation {i} ({eqn.primitive.name})"
        scope.read(eqn.invars, what)
        scope.define(eqn.outvars, f"a result of {what}")
        if eqn.primitive.name not in KERNELS:
            for label, inner in nested(eqn):
                _verify_body(inner, name, f"{label} of {what} in {where}")
    scope.read(body.outvars, "the outputs")


class _Scope:
    """The variables that a body has defined so far."""

    def __init__(self, name: str, where: str):
        self._name, self._where = name, where
        self._defined: set = set()

    def define(self, variables, what: str) -> None:
        for variable in variables:
            if variable in self._defined:
                raise PassError(
                    f"pass {self._name!r} defined a variable of type {variable.aval} "
                    f"twice, the second time as {what} in {self._where}"
                )
            if not is_dropped(variable):
                self._defined.add(variable)

    def read(self, atoms, what: str) -> None:
        for atom in atoms:
            if not is_literal(atom) and atom not in self._defined:
                raise PassError(
                    f"pass {self._name!r} left {what} in {self._where} reading a "
                    f"variable of type {atom.aval} that is not defined there"
                )
