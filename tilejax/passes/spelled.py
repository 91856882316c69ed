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
from tilejax._jax.primitives import neutral_mesh
from tilejax._jax.values import literal_value
from tilejax.ir import as_text
from tilejax.passes.cse import merge_common
from tilejax.passes.dce import drop_dead
from tilejax.passes.fold import fold_constants
from tilejax.passes.inline import inline_calls
from tilejax.passes.record import collecting
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


@dataclass(frozen=True)
class Activation:
    """An activation in a program: its name, its equations, and its result."""

    name: str
    eqns: tuple[Eqn, ...]
    result: Atom


def activation_of(z: Atom, uses: Uses, *, fast_math: bool) -> Activation | None:
    """Return the activation that is all that a value is used for, if it is one.

    **Arguments:**

    - `z`: floating; the value.
    - `uses`: who reads what in the body.
    - `fast_math`: also take what is rounded otherwise.
    """
    readers = uses.of(z)
    if uses.is_output(z) or not readers:
        return None
    kinds = {eqn.primitive.name for eqn in readers}
    for name, spelling in _spellings(str(z.aval.dtype), fast_math):
        if kinds <= spelling.first:
            found = _matched(name, spelling, z, uses)
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


def _matched(name: str, spelling: _Spelling, z: Atom, uses: Uses) -> Activation | None:
    program = spelling.program
    known: dict[Atom, Atom] = {program.invars[0]: z}
    eqns: list[Eqn] = []
    for wanted in program.eqns:
        found = next(_candidates(wanted, known, uses), None)
        if found is None:
            return None
        eqns.append(found)
        known[wanted.outvars[0]] = found.outvars[0]
    inside = {id(eqn) for eqn in eqns}
    result = known[program.outvars[0]]
    for v in known.values():
        escapes = uses.is_output(v) or any(id(e) not in inside for e in uses.of(v))
        if v is not result and escapes:
            return None
    return Activation(name, tuple(eqns), result)


def _candidates(wanted: Eqn, known: dict, uses: Uses) -> Iterator[Eqn]:
    """The equations that do with the values found so far what is wanted."""
    source = next(v for v in wanted.invars if not is_literal(v))
    for eqn in uses.of(known[source]):
        if eqn.primitive is wanted.primitive and _same_operands(wanted, eqn, known):
            yield eqn


def _same_operands(wanted: Eqn, eqn: Eqn, known: dict) -> bool:
    if wanted.primitive.name == "custom_jvp_call":
        return eqn.invars == [known[wanted.invars[0]]] and _is_relu(eqn)
    if {**wanted.params} != {**eqn.params}:
        return False
    orders = [eqn.invars]
    if wanted.primitive.name in _COMMUTE:
        orders.append(eqn.invars[::-1])
    return any(
        all(_same(w, v, known) for w, v in zip(wanted.invars, order, strict=True))
        for order in orders
    )


def _same(wanted: Atom, atom: Atom, known: dict) -> bool:
    if is_literal(wanted) or is_literal(atom):
        both = is_literal(wanted) and is_literal(atom)
        return both and literal_value(wanted).tobytes() == literal_value(atom).tobytes()
    return known[wanted] is atom


def _is_relu(eqn: Eqn) -> bool:
    """Whether a call with a derivative of its own is `jax.nn.relu`."""
    aval = eqn.invars[0].aval
    params = eqn.primitive.get_bind_params(eqn.params)
    with context_of(eqn):
        return _slope_text(
            lambda x: eqn.primitive.bind(x, **params), aval.shape, aval.dtype
        ) == _relu_text(aval.shape, aval.dtype)


@lru_cache(maxsize=256)
def _relu_text(shape: tuple[int, ...], dtype) -> str:
    return _slope_text(jax.nn.relu, shape, dtype)


def _slope_text(fun: Callable, shape: tuple[int, ...], dtype) -> str:
    """What a function and its derivative compute, as text."""
    aval = jax.ShapeDtypeStruct(shape, dtype)
    with neutral_mesh():
        value, _ = trace(fun, aval)
        slope, _ = trace(lambda x, t: jax.jvp(fun, (x,), (t,)), aval, aval)
    with collecting():
        programs = [drop_dead(inline_calls(p)) for p in (value, slope)]
    return "\n".join(map(as_text, programs))
