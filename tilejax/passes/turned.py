"""Products that read their operands, or give their result, in another order."""

from collections.abc import Sequence

from tilejax._jax.jaxprs import Atom, Eqn, new_var
from tilejax._jax.primitives import ShapedArray
from tilejax._jax.values import is_placed
from tilejax.passes.uses import Uses
from tilejax.primitives.call import Call
from tilejax.primitives.matmul import matmul_op
from tilejax.primitives.matmul_dims import dims_of


def _is_free(eqn: Eqn) -> bool:
    if eqn.primitive is not matmul_op.forward_p:
        return False
    call: Call = eqn.params["call"]
    if call.levels or eqn.params["out_sharding"] is not None:
        return False
    return not any(is_placed(v.aval) for v in (*eqn.invars, *eqn.outvars))


def reading(eqn: Eqn, at: int, x: Atom, order: Sequence[int]) -> Eqn | None:
    """Return the product that reads `x` where operand `at` was its transpose.

    **Arguments:**

    - `eqn`: any equation.
    - `at`: 0 or 1.
    - `x`: so that operand `at` is `transpose(x, order)`.

    **Returns:** None if it is no product, or if the result would be in another order.
    """
    if not _is_free(eqn):
        return None
    contract, batch = eqn.params["dimension_numbers"]
    a, b = eqn.invars[:2]
    dims = dims_of(a.aval.ndim, b.aval.ndim, eqn.params["dimension_numbers"])
    free = [order[d] for d in (dims.a_free, dims.b_free)[at]]
    if free != sorted(free):
        return None
    numbers = tuple(
        tuple(
            tuple(order[d] for d in own) if side == at else own
            for side, own in enumerate(pair)
        )
        for pair in (contract, batch)
    )
    operands = [x if i == at else v for i, v in enumerate(eqn.invars)]
    params = {**eqn.params, "dimension_numbers": numbers}
    return eqn.replace(invars=operands, params=params)


def turned_product(eqn: Eqn, order: Sequence[int], uses: Uses) -> Eqn | None:
    """Return the product whose result is the transpose of another's.

    The result's dimensions are batches, those of one operand and those of the other, so
    operands are swapped or batches taken in another order.

    **Arguments:**

    - `eqn`: any equation, whose result is used once.
    - `order`: the permutation.

    **Returns:** None if it is no product, or no product gives that.
    """
    if not _is_free(eqn):
        return None
    call: Call = eqn.params["call"]
    _, _, bias, scale, residual = call.expand(eqn.invars)
    along = [v for v in (bias, scale) if v is not None and v.aval.ndim]
    if along or residual is not None:
        return None
    a, b = eqn.invars[:2]
    (contract, batch), params = eqn.params["dimension_numbers"], dict(eqn.params)
    dims = dims_of(a.aval.ndim, b.aval.ndim, (contract, batch))
    count, first = len(dims.a_batch), len(dims.a_batch) + len(dims.a_free)
    front, rest = list(order[:count]), list(order[count:])
    one, two = list(range(count, first)), list(range(first, len(order)))
    if sorted(front) != list(range(count)) or rest not in (one + two, two + one):
        return None
    batch = tuple(tuple(own[d] for d in front) for own in batch)
    operands = list(eqn.invars)
    if rest != one + two:
        operands[:2] = operands[1::-1]
        contract, batch = contract[::-1], batch[::-1]
        if isinstance(params["precision"], tuple):
            params["precision"] = params["precision"][::-1]
    params["dimension_numbers"] = (contract, batch)
    old = eqn.outvars[0].aval
    shape = tuple(old.shape[d] for d in order)
    result = new_var(ShapedArray(shape, old.dtype, weak_type=old.weak_type))
    return eqn.replace(invars=operands, outvars=[result], params=params)
