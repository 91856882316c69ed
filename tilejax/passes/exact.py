"""Operations for which NumPy gives the very bits that XLA gives.

They are those that IEEE 754 rounds correctly and those on integers, so that there is
nothing left to choose. It saves the compilation that JAX needs for each new one. What
is not sure to agree is answered with `None`: XLA takes subnormal numbers for zero,
and converts numbers out of range in its own way.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tilejax._jax.jaxprs import Eqn

_FLOATS = ("float32", "float64")


def _same(function: Callable) -> Callable:
    return lambda eqn, *operands: function(*operands)


def _divide(eqn: Eqn, a, b):
    # Integer division rounds towards zero, and by zero as XLA pleases.
    return np.divide(a, b) if str(a.dtype) in _FLOATS else None


def _convert(eqn: Eqn, a):
    new = np.dtype(eqn.params["new_dtype"])
    is_exact = a.dtype.kind in "biu" and str(new) in (*_FLOATS, "int32", "int64")
    return a.astype(new) if is_exact or a.dtype == new else None


def _select(eqn: Eqn, which, *cases):
    return cases[int(which)] if which.ndim == 0 else None


_RULES: dict[str, Callable] = {
    "add": _same(np.add),
    "sub": _same(np.subtract),
    "mul": _same(np.multiply),
    "div": _divide,
    "neg": _same(np.negative),
    "sqrt": _same(np.sqrt),
    "convert_element_type": _convert,
    "select_n": _select,
    "eq": _same(np.equal),
    "ne": _same(np.not_equal),
    "lt": _same(np.less),
    "le": _same(np.less_equal),
    "gt": _same(np.greater),
    "ge": _same(np.greater_equal),
    "and": _same(np.bitwise_and),
    "or": _same(np.bitwise_or),
    "xor": _same(np.bitwise_xor),
    "not": _same(np.invert),
    "reshape": lambda eqn, a: a.reshape(eqn.params["new_sizes"]),
    "squeeze": lambda eqn, a: a.squeeze(eqn.params["dimensions"]),
}


def exactly(eqn: Eqn, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """Compute an equation of one result with NumPy, where that is sure to be exact.

    **Arguments:**

    - `eqn`: The equation.
    - `values`: Its operands, each of its own dtype.

    **Returns:**

    The result, or `None` where JAX should be asked.
    """
    rule = _RULES.get(eqn.primitive.name)
    if rule is None or not all(map(_is_plain, values)):
        return None
    with np.errstate(all="ignore"):
        result = rule(eqn, *values)
    if result is None:
        return None
    result = np.asarray(result)
    aval = eqn.outvars[0].aval
    fits = result.dtype == aval.dtype and result.shape == aval.shape
    return result if fits and _is_plain(result) else None


def _is_plain(value: np.ndarray) -> bool:
    """Say whether the dtype is one that NumPy computes in, and no number subnormal."""
    if value.dtype.kind in "biu":
        return True
    if str(value.dtype) not in _FLOATS:
        return False
    size = np.abs(value)
    return not ((size > 0) & (size < np.finfo(value.dtype).tiny)).any()
