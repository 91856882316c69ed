"""Laws of shapes, by primitive, in the form that `rules_arithmetic` describes."""

from jax import lax

from tilejax.passes.rules import Definitions, is_free


def _unchanged(eqn, definitions: Definitions):
    """to the same shape."""
    if eqn.params.get("sharding") is not None:
        return None
    return eqn.invars[0]


def _identity_order(eqn, definitions: Definitions):
    """in the same order."""
    order = eqn.params["permutation"]
    return eqn.invars[0] if tuple(order) == tuple(range(len(order))) else None


def _transposed_twice(eqn, definitions: Definitions):
    """twice."""
    inner = definitions.of(eqn.invars[0], "transpose")
    if inner is None or not is_free(inner.outvars[0].aval, eqn.outvars[0].aval):
        return None
    first = inner.params["permutation"]
    order = tuple(first[i] for i in eqn.params["permutation"])
    return eqn.replace(invars=inner.invars, params={"permutation": order})


def _reshaped_twice(eqn, definitions: Definitions):
    """twice."""
    inner = definitions.of(eqn.invars[0], "reshape")
    if inner is None or not is_free(inner.outvars[0].aval, eqn.outvars[0].aval):
        return None
    if any(e.params["dimensions"] is not None for e in (inner, eqn)):
        return None
    return eqn.replace(invars=inner.invars)


def _broadcast_twice(eqn, definitions: Definitions):
    """twice."""
    inner = definitions.of(eqn.invars[0], "broadcast_in_dim")
    if inner is None or not is_free(inner.outvars[0].aval, eqn.outvars[0].aval):
        return None
    outer = eqn.params["broadcast_dimensions"]
    dims = tuple(outer[i] for i in inner.params["broadcast_dimensions"])
    params = {**eqn.params, "broadcast_dimensions": dims}
    return eqn.replace(invars=inner.invars, params=params)


def _sum_of_one(eqn, definitions: Definitions):
    """over axes of size one."""
    x, out = eqn.invars[0].aval, eqn.outvars[0].aval
    if any(x.shape[axis] != 1 for axis in eqn.params["axes"]):
        return None
    if x.dtype != out.dtype or not is_free(x, out):
        return None
    params = {"new_sizes": out.shape, "dimensions": None, "sharding": None}
    return eqn.replace(primitive=lax.reshape_p, params=params)


_REDUCTIONS = ("sum", "max", "min", "prod", "and", "or", "xor")

EXACT = {
    "transpose": [_identity_order, _transposed_twice],
    "reshape": [_unchanged, _reshaped_twice],
    "broadcast_in_dim": [_unchanged, _broadcast_twice],
    "squeeze": [_unchanged],
    **{f"reduce_{kind}": [_sum_of_one] for kind in _REDUCTIONS},
}
