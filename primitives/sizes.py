"""Sizes of operands, as costs count them and as errors spell them."""

import math
from typing import Any


def count(*avals: Any) -> int:
    """Return how many elements there are in all; None has none.

    >>> import jax
    >>> count(jax.ShapeDtypeStruct((2, 3), "float32"), None)
    6
    """
    return sum(math.prod(a.shape) for a in avals if a is not None)


def nbytes(*avals: Any) -> int:
    """Return how many bytes they take in all; None takes none.

    >>> import jax
    >>> nbytes(jax.ShapeDtypeStruct((2, 3), "bfloat16"), None)
    12
    """
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in avals if a is not None)


def show(aval: Any) -> str:
    """Spell a type or an array's.

    >>> import jax
    >>> show(jax.ShapeDtypeStruct((2, 3), "bfloat16"))
    'bfloat16[2,3]'
    """
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"
