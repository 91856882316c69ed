"""Laws of arithmetic, by primitive; a rule's docstring is its name in reports.

A rule takes an equation and the definitions before it, and returns the operand that
the result equals, or an equation with the same result, or `None`.
"""

import numpy as np
from jax import lax

from tilejax._jax.jaxprs import is_literal
from tilejax._jax.values import literal, literal_value
from tilejax.passes.rules import (
    Definitions,
    filled,
    is_free,
    is_integer,
    is_splat,
)


def _neutral(value: float, *, sides: tuple[int, ...] = (0, 1), name: str):
    """Make the rule that `value`, on one of the sides, changes nothing."""

    def rule(eqn, definitions: Definitions):
        for side in sides:
            if is_splat(definitions, eqn.invars[side], value):
                return eqn.invars[1 - side]
        return None

    rule.__doc__ = name
    return rule


def _undone(eqn, definitions: Definitions):
    """the inverse of itself."""
    inner = definitions.of(eqn.invars[0], eqn.primitive.name)
    return inner.invars[0] if inner is not None else None


def _integer_zero(eqn, definitions: Definitions):
    """integers plus or minus zero."""
    a, b = eqn.invars
    if not is_integer(eqn.outvars[0].aval):
        return None
    if is_splat(definitions, b, 0):
        return a
    is_sum = eqn.primitive.name == "add"
    return b if is_sum and is_splat(definitions, a, 0) else None


def _first_power(eqn, definitions: Definitions):
    """power of one."""
    return eqn.invars[0] if eqn.params["y"] == 1 else None


def _same_dtype(eqn, definitions: Definitions):
    """to the same type."""
    return eqn.invars[0]


def _there_and_back(eqn, definitions: Definitions):
    """to a wider type and back."""
    inner = definitions.of(eqn.invars[0], "convert_element_type")
    if inner is None or inner.params.get("sharding") is not None:
        return None
    x = inner.invars[0]
    return x if _is_wider(inner.outvars[0].aval.dtype, x.aval.dtype) else None


def _is_wider(wide, narrow) -> bool:
    """Say whether the wider float type has all values of the narrower one."""
    pairs = {
        "float16": ("float32", "float64"),
        "bfloat16": ("float32", "float64"),
        "float32": ("float64",),
        "int8": ("int16", "int32", "int64"),
        "int16": ("int32", "int64"),
        "int32": ("int64",),
    }
    return str(wide) in pairs.get(str(narrow), ())


def _select_known(eqn, definitions: Definitions):
    """by a known predicate."""
    which = definitions.splat(eqn.invars[0])
    return None if which is None else eqn.invars[1 + int(which)]


def _select_equal(eqn, definitions: Definitions):
    """between equals."""
    first, *rest = eqn.invars[1:]
    return first if all(other is first for other in rest) else None


# `-0.0` and not `0.0`: x + 0.0 is 0.0 where x is -0.0, and so is 0.0 - x at x = 0.0.
EXACT = {
    "mul": [_neutral(1.0, name="times one")],
    "div": [_neutral(1.0, sides=(1,), name="by one")],
    "add": [_neutral(-0.0, name="plus minus zero"), _integer_zero],
    "sub": [_neutral(0.0, sides=(1,), name="minus zero"), _integer_zero],
    "pow": [_neutral(1.0, sides=(1,), name="power of one")],
    "integer_pow": [_first_power],
    "neg": [_undone],
    "not": [_undone],
    "convert_element_type": [_same_dtype, _there_and_back],
    "select_n": [_select_known, _select_equal],
}


def _times_zero(eqn, definitions: Definitions):
    """times zero."""
    for atom in eqn.invars:
        value = definitions.splat(atom)
        if value is not None and value == 0 and is_free(eqn.outvars[0].aval):
            return filled(eqn, 0, lax.broadcast_in_dim_p)
    return None


def _plus_zero(eqn, definitions: Definitions):
    """plus or minus zero."""
    a, b = eqn.invars
    if (value := definitions.splat(b)) is not None and value == 0:
        return a
    is_sum = eqn.primitive.name == "add"
    value = definitions.splat(a) if is_sum else None
    return b if value is not None and value == 0 else None


def _minus_itself(eqn, definitions: Definitions):
    """minus itself."""
    a, b = eqn.invars
    if a is not b or not is_free(eqn.outvars[0].aval):
        return None
    return filled(eqn, 0, lax.broadcast_in_dim_p)


def _factors(eqn):
    """Return the operand that is not a scalar literal, and the literal, if any."""
    for x, a in (eqn.invars, eqn.invars[::-1]):
        if not is_literal(x) and is_literal(a) and a.aval.shape == ():
            return x, a
    return None


def _gathered_factors(eqn, definitions: Definitions):
    """factors gathered."""
    outer = _factors(eqn)
    made = None if outer is None else definitions.of(outer[0], "mul")
    inner = None if made is None else _factors(made)
    if outer is None or inner is None or inner[1].aval != outer[1].aval:
        return None
    (x, a), (_, b) = inner, outer
    kind = np.float64 if np.dtype(a.aval.dtype).kind not in "iuc" else a.aval.dtype
    product = literal_value(a).astype(kind) * literal_value(b).astype(kind)
    return eqn.replace(invars=[x, literal(product, a.aval)])


def _log_of_exp(eqn, definitions: Definitions):
    """of exp."""
    inner = definitions.of(eqn.invars[0], "exp")
    return inner.invars[0] if inner is not None else None


FAST_MATH = {
    "mul": [_times_zero, _gathered_factors],
    "add": [_plus_zero],
    "sub": [_plus_zero, _minus_itself],
    "log": [_log_of_exp],
}
