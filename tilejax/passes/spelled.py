"""Recognising activations in the spellings that give the very same numbers.

Each spelling is traced and brought to the form that the passes before give programs, so
that it is compared equation by equation. Factors may stand in any order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn, Program, context_of, is_literal, trace
from tilejax._jax.nested import nested
from tilejax._jax.retiled import traced
from tilejax._jax.values import literal_value
from tilejax.ir import as_text
from tilejax.passes.cse import merge_common
from tilejax.passes.dce import drop_dead
from tilejax.passes.fold import fold_constants
from tilejax.passes.inline import inline_calls
from tilejax.passes.record import collecting
from tilejax.passes.rules import Definitions
from tilejax.passes.simplify import simplify
from tilejax.passes.uses import Uses
from tilejax.primitives.activations import ACTIVATIONS

_TANH_SCALE = float(np.sqrt(2 / np.pi))


def _gelu_tanh(cube: Callable) -> Callable:
    def gelu(x):
        inner = _TANH_SCALE * (x + 0.044715 * cube(x))
        return 0.5 * x * (1 + jnp.tanh(inner))

    return gelu


# Halves are exact, wherever they are multiplied; cubes are x * (x * x).
_SAME: tuple[tuple[str, Callable], ...] = (
    *ACTIVATIONS.items(),
    ("gelu", lambda x: 0.5 * x * jax.lax.erfc(-x * np.sqrt(0.5).astype(x.dtype))),
    ("gelu_tanh", _gelu_tanh(lambda x: x**3)),
    ("gelu_tanh", _gelu_tanh(lambda x: x * (x * x))),
)
# The same for real numbers, rounded otherwise.
_ALIKE: tuple[tuple[str, Callable], ...] = (
    ("gelu", lambda x: 0.5 * x * (1 + jax.lax.erf(x * np.sqrt(0.5).astype(x.dtype)))),
    ("gelu", lambda x: 0.5 * x * (1 + jax.lax.erf(x / np.sqrt(2.0).astype(x.dtype)))),
    ("gelu", lambda x: x * (0.5 * (1 + jax.lax.erf(x / np.sqrt(2.0).astype(x.dtype))))),
    ("sigmoid", lambda x: 1 / (1 + jnp.exp(-x))),
    ("silu", lambda x: x * (1 / (1 + jnp.exp(-x)))),
    ("silu", lambda x: x / (1 + jnp.exp(-x))),
)
_COMMUTE = ("add", "mul", "max")
# What a number goes through before it is used.
_NUMBERS = ("pvary", "convert_element_type")


@dataclass(frozen=True)
class Activation:
    """An activation in a program: its name, its equations, and its result."""

    name: str
    eqns: tuple[Eqn, ...]
    result: Atom


def activation_of(
    z: Atom, definitions: Definitions, uses: Uses, *, fast_math: bool
) -> Activation | None:
    """Return the activation that is all that a value is used for, if it is one.

    **Arguments:**

    - `z`: floating; the value.
    - `definitions`, `uses`: who makes and who reads what in the body.
    - `fast_math`: also take what is rounded otherwise.
    """
    readers = uses.of(z)
    if uses.is_output(z) or not readers:
        return None
    kinds = {eqn.primitive.name for eqn in readers}
    for name, spelling in _spellings(str(z.aval.dtype), fast_math):
        if kinds <= spelling.first:
            found = _Match(definitions, uses).find(name, spelling.program, z)
            if found is not None:
                return found
    return None


@dataclass(frozen=True)
class _Spelling:
    program: Program
    first: frozenset[str]


@lru_cache(maxsize=32)
def _spellings(dtype: str, fast_math: bool) -> tuple[tuple[str, _Spelling], ...]:
    table = (*_SAME, *(_ALIKE if fast_math else ()))
    return tuple((name, _spelling(fun, dtype, fast_math)) for name, fun in table)


def _spelling(fun: Callable, dtype: str, fast_math: bool) -> _Spelling:
    program, _ = trace(fun, jax.ShapeDtypeStruct((3,), dtype))
    with collecting():  # what is said of it is no news of the user's program
        for _ in range(2):
            program = fold_constants(inline_calls(program))
            program = simplify(program, fast_math=fast_math)
            program = drop_dead(merge_common(program))
    (z,) = program.invars
    first = {eqn.primitive.name for eqn in program.eqns if z in eqn.invars}
    return _Spelling(program, frozenset(first))


class _Match:
    """Find the equations of a spelling, one after the other."""

    def __init__(self, definitions: Definitions, uses: Uses):
        self._definitions, self._uses = definitions, uses
        self._known: dict[Atom, Atom] = {}

    def find(self, name: str, spelling: Program, z: Atom) -> Activation | None:
        """Return the activation that is made of `z` alone."""
        self._known[spelling.invars[0]] = z
        eqns: list[Eqn] = []
        for wanted in spelling.eqns:
            found = next(self._candidates(wanted), None)
            if found is None:
                return None
            eqns.append(found)
            self._known[wanted.outvars[0]] = found.outvars[0]
        inside = {id(eqn) for eqn in eqns}
        result = self._known[spelling.outvars[0]]
        for v in self._known.values():
            readers = [id(eqn) for eqn in self._uses.of(v)]
            if v is not result and (self._uses.is_output(v) or {*readers} - inside):
                return None
        return Activation(name, tuple(eqns), result)

    def _candidates(self, wanted: Eqn) -> Iterator[Eqn]:
        """The equations that do with the values found so far what is wanted."""
        source = next(v for v in wanted.invars if not is_literal(v))
        for eqn in self._uses.of(self._known[source]):
            if eqn.primitive is wanted.primitive and self._same_operands(wanted, eqn):
                yield eqn

    def _same_operands(self, wanted: Eqn, eqn: Eqn) -> bool:
        if wanted.primitive.name == "custom_jvp_call":
            return eqn.invars == [self._known[wanted.invars[0]]] and _is_relu(eqn)
        if {**wanted.params} != {**eqn.params}:
            return False
        orders = [eqn.invars]
        if wanted.primitive.name in _COMMUTE:
            orders.append(eqn.invars[::-1])
        return any(all(map(self._same, wanted.invars, order)) for order in orders)

    def _same(self, wanted: Atom, atom: Atom) -> bool:
        if not is_literal(wanted):
            return self._known[wanted] is atom
        dtype = atom.aval.dtype
        # over manual axes a number varies before it meets what does
        while (made := self._definitions.of(atom, *_NUMBERS)) is not None:
            atom = made.invars[0]
        if not is_literal(atom) or wanted.aval.dtype != dtype:
            return False
        value = literal_value(atom).astype(dtype)
        return literal_value(wanted).tobytes() == value.tobytes()


def _is_relu(eqn: Eqn) -> bool:
    """Whether a call with a derivative of its own is `jax.nn.relu`."""
    aval, params = eqn.invars[0].aval, eqn.primitive.get_bind_params(eqn.params)
    ((_, body),) = nested(eqn)
    names = [each.primitive.name for each in body.eqns]
    # over manual axes its zero is made to vary
    if [n for n in names if n not in ("pvary", "convert_element_type")] != ["max"]:
        return False
    with context_of(eqn):
        wanted = _slope_text(jax.nn.relu, aval)
        try:
            return (
                _slope_text(lambda x: eqn.primitive.bind(x, **params), aval) == wanted
            )
        except Exception:  # of the user's own rule, which nobody asked for
            return False


def _slope_text(fun: Callable, aval) -> str:
    """What a function and its derivative compute, as text."""

    def slope(x, t):
        return jax.tree.leaves(jax.jvp(fun, (x,), (t,)))

    programs = [
        traced(lambda x: jax.tree.leaves(fun(x)), [aval]),
        traced(slope, [aval, aval]),
    ]
    with collecting():
        programs = [drop_dead(inline_calls(p)) for p in programs]
    return "\n".join(map(as_text, programs))
