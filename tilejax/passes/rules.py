"""What the rules of `simplify` share: looking up how an operand was made."""

import numpy as np

from tilejax._jax.jaxprs import Eqn, Literal, is_literal
from tilejax._jax.values import is_placed, literal, literal_value


class Definitions:
    """The equations of one body so far, by their result."""

    def __init__(self):
        self._made: dict = {}
        self._readers: dict = {}

    def add(self, eqn: Eqn) -> None:
        """Remember an equation of one result."""
        if len(eqn.outvars) == 1:
            self._made[eqn.outvars[0]] = eqn
            for v in eqn.invars:
                if not is_literal(v):
                    self._readers.setdefault(v, []).append(eqn)

    def readers(self, atom, primitive: str) -> list[Eqn]:
        """Return the equations of a primitive so far that read the operand."""
        found = [] if is_literal(atom) else self._readers.get(atom, [])
        return [eqn for eqn in found if eqn.primitive.name == primitive]

    def of(self, atom, *primitives: str) -> Eqn | None:
        """Return the equation that made the operand, if it is of these primitives."""
        if is_literal(atom):
            return None
        eqn = self._made.get(atom)
        return eqn if eqn is not None and eqn.primitive.name in primitives else None

    def any(self, atom) -> Eqn | None:
        """Return the equation of one result that made the operand."""
        return None if is_literal(atom) else self._made.get(atom)

    def splat(self, atom) -> np.ndarray | None:
        """Return the one value that all elements have, if it is known."""
        while (made := self.of(atom, "broadcast_in_dim", "pvary")) is not None:
            atom = made.invars[0]
        return literal_value(atom) if is_literal(atom) else None


def is_splat(definitions: Definitions, atom, value: float) -> bool:
    """Say whether all elements are `value`, zeros told apart by their sign."""
    known = definitions.splat(atom)
    if known is None or known.dtype.kind in "bc" or known != value:
        return False
    if known.dtype.kind in "iu":
        return True
    return bool(np.signbit(np.real(known).astype(float)) == np.signbit(float(value)))


def is_integer(aval) -> bool:
    """Say whether the type is of integers, for which arithmetic is exact."""
    return np.dtype(aval.dtype).kind in "iu"


def is_free(*avals) -> bool:
    """Say whether no type says anything of a mesh, so that shapes may change freely."""
    return not any(map(is_placed, avals))


def filled(eqn: Eqn, value, broadcast) -> Eqn | Literal:
    """Return what gives the equation's result when all its elements are `value`."""
    aval = eqn.outvars[0].aval
    scalar = aval.update(shape=()) if aval.shape else aval
    if aval.shape == ():
        return literal(value, aval)
    return eqn.replace(
        primitive=broadcast,
        invars=[literal(value, scalar)],
        params={"shape": aval.shape, "broadcast_dimensions": (), "sharding": None},
    )
