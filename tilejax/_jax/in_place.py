"""Pallas calls that are allowed to write their results where an operand lies."""

from collections.abc import Sequence

from tilejax._jax.jaxprs import Eqn
from tilejax._jax.pallas import pallas_call_p


class _Allowed(tuple):
    """Aliases that nobody asked for: for derivatives, as good as none.

    It is false, so that JAX, which refuses to differentiate a call that was declared to
    work in place, differentiates this one as the call that the user wrote.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


def is_compiled(eqn: Eqn) -> bool:
    """Tell whether an equation is a Pallas call that is not interpreted."""
    return eqn.primitive is pallas_call_p and not eqn.params["interpret"]


def working_in_place(eqn: Eqn, pairs: Sequence[tuple[int, int]]) -> Eqn:
    """Return a call whose results may take the memory of operands.

    **Arguments:**

    - `eqn`: a compiled call without aliases of its own.
    - `pairs`: the number of an operand and that of the result.
    """
    allowed = _Allowed(tuple(pair) for pair in pairs)
    return eqn.replace(params={**eqn.params, "input_output_aliases": allowed})
