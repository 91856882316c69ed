"""A program as text that stays the same from run to run and from JAX to JAX."""

import itertools
import re
import string
from collections.abc import Iterator
from enum import Enum

import numpy as np

from tilejax._jax.jaxprs import Eqn, Program, is_dropped, is_literal
from tilejax._jax.nested import is_body, nested, scan_parts
from tilejax._jax.values import literal_value

# What scan calls these differs between versions, so `scan_parts` tells them.
_HIDDEN = {"scan": ("num_consts", "num_carry", "ft_in", "ft_out")}
# Types of parameters that were not given, or that are functions of JAX's own kind.
_UNSAID = ("UnspecifiedValue", "WrappedFun")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]{6,}|id=\d+")


def as_text(program: Program) -> str:
    """Print a program, one equation a line, bodies indented below theirs.

    Parameters at their usual empty value (`None`, `False`, `()`) are left out.

    >>> from tilejax._jax.jaxprs import trace
    >>> print(as_text(trace(lambda x: x * 2.0 + 1.0, 3.0)[0]))
    (a:f32[]*) {
      b:f32[]* = mul a 2.0:f32[]*
      c:f32[]* = add b 1.0:f32[]*
      return c
    }
    """
    return "\n".join(_body_lines(program, _Names(), ""))


class _Names:
    """Short names in the order of first appearance, in one sequence for all bodies."""

    def __init__(self):
        self._names: dict = {}
        self._fresh = _letters()

    def of(self, atom, *, typed: bool = False) -> str:
        if is_literal(atom):
            return f"{_number(literal_value(atom))}:{type_text(atom.aval)}"
        if is_dropped(atom):
            return "_"
        if atom not in self._names:
            self._names[atom] = next(self._fresh)
        name = self._names[atom]
        return f"{name}:{type_text(atom.aval)}" if typed else name


def _letters() -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(letters)


def _body_lines(program: Program, names: _Names, indent: str) -> Iterator[str]:
    inputs = " ".join(names.of(v, typed=True) for v in program.invars)
    fixed = " ".join(names.of(v, typed=True) for v in program.constvars)
    yield f"({inputs}{'; ' if fixed else ''}{fixed}) {{"
    for eqn in program.eqns:
        yield from _eqn_lines(eqn, names, indent + "  ")
    outs = " ".join(names.of(v) for v in program.outvars)
    yield f"{indent}  return {outs}".rstrip()
    yield f"{indent}}}"


def _eqn_lines(eqn: Eqn, names: _Names, indent: str) -> Iterator[str]:
    operands = "".join(f" {names.of(v)}" for v in eqn.invars)
    results = " ".join(names.of(v, typed=True) for v in eqn.outvars)
    params = ", ".join(_params(eqn))
    call = eqn.primitive.name + (f"[{params}]" if params else "")
    yield (
        f"{indent}{results} = {call}{operands}"
        if results
        else (f"{indent}{call}{operands}")
    )
    for name, body in nested(eqn):
        first, *rest = _body_lines(body, names, indent + "  ")
        yield f"{indent}  {name} {first}"
        yield from rest


def _params(eqn: Eqn) -> Iterator[str]:
    if eqn.primitive.name == "scan":
        constants, carried = scan_parts(eqn)
        yield f"consts={constants}, carry={carried}"
    hidden = _HIDDEN.get(eqn.primitive.name, ())
    for name in sorted(eqn.params):
        value = eqn.params[name]
        if name not in hidden and not _is_usual(value) and not _is_opaque(value):
            yield f"{name}={_value(value)}"


def _is_usual(value) -> bool:
    """Say whether a parameter is at the value that says nothing."""
    if isinstance(value, tuple | list):
        return all(map(_is_usual, value))
    if isinstance(value, Enum):
        return value.name in ("AUTO", "JAX_LATE")
    if type(value).__name__ in ("AbstractMesh", "Mesh"):
        return value.empty
    return value is None or value is False or type(value).__name__ in _UNSAID


def _is_opaque(value) -> bool:
    """Say whether a parameter is a body, printed below, or a function, without text."""
    if isinstance(value, tuple | list):
        return any(map(_is_opaque, value))
    if isinstance(value, type):
        return False
    return is_body(value) or callable(value) or type(value).__repr__ is object.__repr__


def _value(value) -> str:
    if isinstance(value, tuple | list):
        return f"({','.join(map(_value, value))})"
    if isinstance(value, Enum):
        return value.name
    is_scalar_type = isinstance(value, type) and issubclass(value, np.generic)
    if is_scalar_type or isinstance(value, np.dtype):
        return _short_dtype(np.dtype(value))
    return _ADDRESS.sub("", " ".join(str(value).split()))


def type_text(aval) -> str:
    """Spell a type: dtype, shape, `*` if weak, shardings and varying axes if any."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None or not hasattr(aval, "weak_type"):
        return _ADDRESS.sub("", str(aval))
    name = _short_dtype(dtype)
    text = f"{name}[{','.join(map(str, aval.shape))}]{'*' if aval.weak_type else ''}"
    spec = aval.sharding.spec
    placed = [str(s) for s in spec if s is not None]
    varying = sorted(aval.manual_axis_type.varying)
    if placed:
        text += f"@({','.join(str(s or '') for s in spec)})"
    return text + (f"{{{','.join(varying)}}}" if varying else "")


def _short_dtype(dtype) -> str:
    name = str(dtype)
    name = name.replace("bfloat", "bf").replace("float", "f").replace("uint", "u")
    return name.replace("int", "i").replace("complex", "c")


def _number(value: np.ndarray) -> str:
    # By the scalar's own text: the shortest digits that its precision needs.
    return "[...]" if value.ndim else str(value[()])
