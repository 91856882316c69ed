"""Who reads a value."""

from collections.abc import Sequence

from tilejax._jax.jaxprs import Atom, Eqn, Program, is_literal, is_pure


class Uses:
    """The readers of each value of one body: equations, and its outputs."""

    def __init__(self, body: Program):
        self._readers: dict[Atom, set[int]] = {}
        self._eqns: dict[int, Eqn] = {id(eqn): eqn for eqn in body.eqns}
        self._outputs = {v for v in body.outvars if not is_literal(v)}
        # backwards, so that what nothing needs any more is no reader
        for eqn in reversed(body.eqns):
            if is_pure(eqn) and not any(map(self._is_read, eqn.outvars)):
                continue
            for v in eqn.invars:
                if not is_literal(v):
                    self._readers.setdefault(v, set()).add(id(eqn))

    def _is_read(self, v: Atom) -> bool:
        return v in self._readers or v in self._outputs

    def is_output(self, v: Atom) -> bool:
        """Say whether the body returns the value."""
        return v in self._outputs

    def of(self, v: Atom) -> list[Eqn]:
        """Return the equations that read a value and are needed, in no order."""
        return [self._eqns[i] for i in self._readers.get(v, ())]

    def outside(self, matched: Sequence[Eqn]) -> bool:
        """Say whether a result of the equations, but the last's, is read elsewhere."""
        inside = {id(eqn) for eqn in matched}
        return any(
            v in self._outputs or self._readers.get(v, set()) - inside
            for eqn in matched[:-1]
            for v in eqn.outvars
        )
