"""Looking up rows of a table, and the gradient of that: adding to rows."""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax.errors import ShapeError
from tilejax.primitives import retile, rows as _rows
from tilejax.primitives.call import Call
from tilejax.primitives.define import define
from tilejax.primitives.sizes import count, nbytes, show
from tilejax.targets.cost import Cost

ArrayLike = jax.typing.ArrayLike


def embedding(
    table: ArrayLike,
    ids: ArrayLike,
    *,
    out_of_range: str = "fill",
    out_sharding: Any = None,
) -> jax.Array:
    """Look up a row for each index.

    `table.at[ids].get(mode=out_of_range, wrap_negative_indices=False)`, to the bit.

    **Arguments:**

    - `table`: `[V, *D]`, any dtype.
    - `ids`: integers of any shape, from 0 to V - 1; negative ones do not wrap around.
    - `out_of_range`: what other ids give: `"fill"` NaN (for integers the lowest or, if
      unsigned, the highest), `"zero"` zeros, `"clip"` the nearest row, `"promise"`
      anything, since there are none. Their gradient is dropped, but with `"clip"`
      goes to the nearest row.
    - `out_sharding`: of the result, over Explicit mesh axes.

    **Returns:** `[*ids, *D]` in the dtype of the table.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> embedding(jnp.arange(6.0).reshape(3, 2), jnp.array([2, 9])).tolist()
    [[4.0, 5.0], [nan, nan]]
    """
    table, ids = embedding_op.array(0, table), embedding_op.array(1, ids)
    sharding = _p.sharding_over(table, ids, out_sharding)
    return embedding_op(table, ids, out_of_range=out_of_range, out_sharding=sharding)


def _reference(table, ids, *, out_of_range, out_sharding):
    del out_sharding
    return _rows.take(table, ids, out_of_range)


def _rule(avals, params) -> str:
    del params
    table, ids = avals
    d = " ".join(f"d{i}" for i in range(1, table.ndim))
    i = " ".join(f"i{i}" for i in range(ids.ndim))
    return f"v! {d}, {i} -> {i} {d}"


def _check(table, ids, *, out_of_range, out_sharding=None) -> None:
    del out_sharding
    _rows.check_rows("embedding", table, ids, out_of_range)


def _cost(table, ids, **params) -> Cost:
    """A row read and written for each index."""
    del params
    moved = float(count(ids) * nbytes(table)) / max(1, table.shape[0])
    return Cost(bytes_read=moved + nbytes(ids), bytes_written=moved)


def _transpose(cotangents, operands, at, aval, call: Call, params):
    """Only the table moves."""
    del at
    ids = _rows.gradient_ids(operands[1], aval.shape[0], params["out_of_range"])
    return embedding_grad_op.bind(
        [ids, *cotangents],
        Call((True, True), target=call.target),
        {"rows": aval.shape[0], "out_sharding": _p.explicit_sharding(aval)},
    )[0]


def _fold(operands, axes, axis_data, call: Call, params):
    """More ids, or longer rows; a table a member is left to the general way."""
    del axis_data
    (table, ids), (along, at) = operands, axes
    if params["out_sharding"] is not None or (along is not None and at is not None):
        return None
    if along is not None:
        table = jnp.moveaxis(table, along, -1)
        at = ids.ndim + table.ndim - 2
    return embedding_op.bind([table, ids], call, params), [at]


def _grad_reference(ids, values, *, rows, out_sharding):
    del out_sharding
    return _rows.add(ids, values, rows)


def _grad_rule(avals, params) -> str:
    del params
    ids, values = avals
    d = " ".join(f"d{i}" for i in range(values.ndim - ids.ndim))
    i = " ".join(f"i{i}" for i in range(ids.ndim))
    return f"{i}, {i} {d} -> 1 {d}"


def _grad_check(ids, values, *, rows, out_sharding=None) -> None:
    del rows, out_sharding
    _rows.check_ids("embedding_grad", ids)
    if values.shape[: ids.ndim] != ids.shape:
        raise ShapeError(
            f"embedding_grad: ids are {show(ids)}, but values are {show(values)}; the "
            "first dimensions of the values must be those of the ids"
        )


def _grad_cost(ids, values, *, rows, out_sharding=None) -> Cost:
    """Each value read once and added; the rows written once."""
    del out_sharding
    row = nbytes(values) / max(1, count(ids))
    return Cost(
        bytes_read=nbytes(ids, values),
        bytes_written=rows * row,
        elementwise={values.dtype.name: float(count(values))},
    )


def _grad_transpose(cotangents, operands, at, aval, call: Call, params):
    """Reading the rows again; what was dropped gets nothing."""
    del at, params
    return embedding_op.bind(
        [*cotangents, operands[0]],
        Call((True, True), target=call.target),
        {"out_of_range": "zero", "out_sharding": _p.explicit_sharding(aval)},
    )[0]


def _grad_fold(operands, axes, axis_data, call: Call, params):
    """Longer rows, where the ids are shared."""
    del axis_data
    ids, values = operands
    if params["out_sharding"] is not None or axes[0] is not None:
        return None
    values = jnp.moveaxis(values, axes[1], -1)
    out = embedding_grad_op.bind([ids, values], call, params)
    return out, [values.ndim - ids.ndim]


def from_gather(params, avals) -> tuple | None:
    """Return the operation and parameters that are a `gather`, or None.

    A gather is an embedding if it reads whole rows along the first dimension, in the
    order of the indices. The operation takes the gather's indices without their last
    dimension, which is one.

    **Arguments:**

    - `params`: of the equation.
    - `avals`: its operands' types.
    """
    table, indices = avals
    numbers, mode = params["dimension_numbers"], params["mode"]
    ids = indices.ndim - 1
    rows = (
        table.ndim >= 1
        and table.shape[0] >= 1
        and indices.shape[-1] == 1
        and jnp.issubdtype(indices.dtype, jnp.integer)
        and tuple(numbers.offset_dims) == tuple(range(ids, ids + table.ndim - 1))
        and tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(params["slice_sizes"]) == (1, *table.shape[1:])
    )
    found = _mode_of(mode, params["fill_value"], table.dtype) if rows else None
    if found is None:
        return None
    return embedding_op, {"out_of_range": found, "out_sharding": None}


def _mode_of(mode, fill, dtype) -> str | None:
    """The name of a gather's mode, unless it fills with a value of its own."""
    if mode != _rows.MODES["fill"]:
        return next((name for name, m in _rows.MODES.items() if m == mode), None)
    if fill is not None and not fill:
        return "zero"
    return "fill" if fill is None or _is_default(fill, dtype) else None


def _is_default(fill, dtype) -> bool:
    if jnp.issubdtype(dtype, jnp.inexact):
        return bool(fill != fill)
    if not jnp.issubdtype(dtype, jnp.integer):
        return False
    limits = jnp.iinfo(dtype)
    return fill == (limits.max if limits.min == 0 else limits.min)


def _retiled(operands, params, target):
    table, indices = operands
    found = from_gather(params, [jax.typeof(x) for x in operands])
    if found is None:
        return None
    op, own = found
    ids = jax.lax.squeeze(indices, (indices.ndim - 1,))
    return op.bind([table, ids], Call((True, True), target=target), own)


embedding_op = define(
    "embedding",
    reference=_reference,
    sharding=_rule,
    linear=(0,),
    transpose=_transpose,
    tangent_params=_rows.zero_outside,
    fold=_fold,
    typed_by_reference=lambda params: params["out_sharding"] is None,
    cost=_cost,
    check=_check,
)

embedding_grad_op = define(
    "embedding_grad",
    reference=_grad_reference,
    sharding=_grad_rule,
    linear=(1,),
    transpose=_grad_transpose,
    fold=_grad_fold,
    cost=_grad_cost,
    check=_grad_check,
)
retile.retile(jax.lax.gather_p, _retiled)
