"""How large the elements of a value can be at most."""

import math

import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn, is_literal
from tilejax._jax.values import known_constant, literal_value
from tilejax.passes.rules import Definitions

# The most elements of a constant that are looked at.
_MOST = 1 << 16


def magnitude(atom: Atom, definitions: Definitions, known: dict) -> float:
    """Return a number that no element exceeds in size; inf if none is known.

    **Arguments:**

    - `definitions`: the equations that may have made it.
    - `known`: the constants, by variable.
    """
    if is_literal(atom):
        return _largest(literal_value(atom))
    if atom in known:
        return _largest(known_constant(known[atom], _MOST))
    eqn = definitions.of(atom, *_RULES)
    if eqn is None:
        return math.inf
    sizes = [magnitude(v, definitions, known) for v in eqn.invars]
    return _held(_RULES[eqn.primitive.name](eqn, sizes), np.dtype(atom.aval.dtype))


def _largest(value: np.ndarray | None) -> float:
    if value is None:
        return math.inf
    largest = float(np.max(np.abs(value.astype(np.float64)), initial=0.0))
    return math.inf if math.isnan(largest) else largest


def _held(size: float, dtype: np.dtype) -> float:
    """Integers wrap around inside their range; floats leave it for infinity."""
    if dtype.kind == "b":
        return min(size, 1.0)
    if dtype.kind in "iu":
        return min(size, -float(np.iinfo(dtype).min) or float(np.iinfo(dtype).max))
    # bfloat16 is no float to NumPy; its range is float32's
    largest = float(np.finfo(np.float32 if dtype.kind == "V" else dtype).max)
    return size if size <= largest else math.inf


def _first(eqn: Eqn, sizes: list[float]) -> float:
    del eqn
    return sizes[0]


def _sum(eqn: Eqn, sizes: list[float]) -> float:
    del eqn
    return sum(sizes)


def _product(eqn: Eqn, sizes: list[float]) -> float:
    del eqn
    return math.inf if math.inf in sizes else math.prod(sizes)


def _greatest(eqn: Eqn, sizes: list[float]) -> float:
    del eqn
    return max(sizes)


def _selected(eqn: Eqn, sizes: list[float]) -> float:
    del eqn
    return max(sizes[1:])


def _counted(eqn: Eqn, sizes: list[float]) -> float:
    del sizes
    return float(eqn.outvars[0].aval.shape[eqn.params["dimension"]])


_RULES = {
    **dict.fromkeys(
        "abs broadcast_in_dim convert_element_type expand_dims neg pvary reshape slice "
        "squeeze stop_gradient transpose".split(),
        _first,
    ),
    **dict.fromkeys("add sub".split(), _sum),
    **dict.fromkeys("max min concatenate".split(), _greatest),
    "mul": _product,
    "select_n": _selected,
    "iota": _counted,
}
