"""Which values of a body depend on its constants alone."""

from math import prod

import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn, Program, consts, is_literal, is_pure
from tilejax._jax.values import compute, is_placed, known_constant, literal_value
from tilejax.ir.work import is_sized
from tilejax.passes.fold import FOLDED

# The same numbers elsewhere: kept as they are, since who reads them may do without.
_VIEWS = frozenset("transpose reshape squeeze expand_dims broadcast_in_dim rev".split())


class Constants:
    """The constants of a body, and what is computed from them.

    **Arguments:**

    - `body`: with constants; an array that the user placed on a device is none.
    - `limit`: the most elements of a constant or of what is computed from some.
    """

    def __init__(self, body: Program, limit: int):
        self._limit = limit
        self._held = dict(zip(body.constvars, consts(body), strict=True))
        self._made: dict[Atom, Eqn] = {}
        self._values: dict[Atom, np.ndarray | None] = {}
        self._sizes: dict[Atom, int] = {}
        for v in self._held:
            self._sizes[v] = prod(v.aval.shape)
        for eqn in body.eqns:
            if self._is_constant(eqn):
                self._made.update(dict.fromkeys(eqn.outvars, eqn))
                total = sum(self._sizes[v] for v in _variables(eqn))
                self._sizes.update(dict.fromkeys(eqn.outvars, total))

    def _is_constant(self, eqn: Eqn) -> bool:
        if eqn.primitive.name not in FOLDED or not is_pure(eqn):
            return False
        if eqn.ctx.compute_type is not None or eqn.ctx.xla_metadata:
            return False
        read = _variables(eqn)
        if not is_sized([eqn]):
            return False
        if not read or not all(v in self._sizes for v in read):
            return False
        return not any(is_placed(v.aval) or v.aval.weak_type for v in eqn.outvars)

    def __contains__(self, atom: Atom) -> bool:
        """Say whether a value is a constant or computed from constants alone."""
        return is_literal(atom) or atom in self._sizes

    def is_computed(self, v: Atom) -> bool:
        """Say whether it is worth holding: computed, and no larger than its sources."""
        eqn = self._made.get(v)
        if eqn is None or eqn.primitive.name in _VIEWS:
            return False
        size = prod(v.aval.shape)
        return v.aval.shape != () and size <= min(self._limit, self._sizes[v])

    def value(self, atom: Atom) -> np.ndarray | None:
        """Return what it is; None where a constant is large or may not be read."""
        if is_literal(atom):
            return literal_value(atom)
        if atom not in self._values:
            self._values[atom] = self._value(atom)
        return self._values[atom]

    def _value(self, v: Atom) -> np.ndarray | None:
        if v in self._held:
            return known_constant(self._held[v], self._limit)
        eqn = self._made[v]
        if any(prod(each.aval.shape) > self._limit for each in eqn.outvars):
            return None
        values = [self.value(each) for each in eqn.invars]
        if any(value is None for value in values):
            return None
        found = compute(eqn, [value for value in values if value is not None])
        for each, value in zip(eqn.outvars, found, strict=True):
            self._values[each] = value
        return self._values[v]


def _variables(eqn: Eqn) -> list[Atom]:
    return [v for v in eqn.invars if not is_literal(v)]
