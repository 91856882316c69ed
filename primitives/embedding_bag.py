"""Sums of looked-up rows, and their gradients.

Three operations stand for one form that is linear in a table `t`, in weights `w` and in
cotangents `c`, each of them its derivative in one of the three:

    sum over bags b and places l of w[b, l] * t[ids[b, l]] * c[b]

`embedding_bag` is the derivative in `c`, `embedding_bag_grad` in `t`,
`embedding_bag_weights_grad` in `w`. So each one's transposes are the other two.
"""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives import embedding_bag_costs as _costs, rows as _rows
from tilejax.primitives.call import Call
from tilejax.primitives.define import define
from tilejax.primitives.sizes import show

ArrayLike = jax.typing.ArrayLike
FLOATS = ("float16", "bfloat16", "float32", "float64")


def embedding_bag(
    table: ArrayLike,
    ids: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    mode: str = "sum",
    out_of_range: str = "fill",
    out_sharding: Any = None,
) -> jax.Array:
    """Look up a bag of rows and add them up.

    `sum(weights[..., None] * table[ids], axis=-2)`, or that divided by the number of
    ids in a bag, summed in f32 (f64 for f64). An empty bag gives zeros.

    **Arguments:**

    - `table`: `[V, *D]`, floating.
    - `ids`: `[..., L]` integers from 0 to V - 1; negative ones do not wrap around.
    - `weights`: `[..., L]`, of the dtype of the table; ones if not given.
    - `mode`: `"sum"`, or `"mean"` to divide by L.
    - `out_of_range`: what other ids give, as for `embedding`; with `"zero"` they add
      nothing, but a mean still counts them.
    - `out_sharding`: of the result, over Explicit mesh axes.

    **Returns:** `[..., *D]` in the dtype of the table.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> table = jnp.arange(6.0).reshape(3, 2)
    >>> embedding_bag(table, jnp.array([[0, 2], [1, 1]])).tolist()
    [[4.0, 6.0], [4.0, 6.0]]
    """
    table, ids = embedding_bag_op.array(0, table), embedding_bag_op.array(1, ids)
    sharding = _p.sharding_over(table, ids, out_sharding)
    params = {"mode": mode, "out_of_range": out_of_range, "out_sharding": sharding}
    return embedding_bag_op(table, ids, weights, **params)


def _over_rows(x, depth: int):
    """Give weights as many dimensions behind as rows have."""
    return jax.lax.expand_dims(x, tuple(range(x.ndim, x.ndim + depth)))


def _share(total, ids, mode: str):
    return total / (ids.shape[-1] or 1) if mode == "mean" else total


def _reference(table, ids, weights=None, *, mode, out_of_range, out_sharding):
    del out_sharding
    found = _rows.take(table, ids, out_of_range).astype(_costs.wide_of(table.dtype))
    if weights is not None:
        found = found * _over_rows(weights.astype(found.dtype), table.ndim - 1)
    total = jnp.sum(found, axis=ids.ndim - 1)
    return _share(total, ids, mode).astype(table.dtype)


def _grad_reference(ids, weights, values, *, rows, mode, out_sharding):
    del out_sharding
    depth = values.ndim - ids.ndim + 1
    wide = _share(values.astype(_costs.wide_of(values.dtype)), ids, mode)
    shape = (*ids.shape, *values.shape[ids.ndim - 1 :])
    kept = tuple(i for i in range(len(shape)) if i != ids.ndim - 1)
    spread = jax.lax.broadcast_in_dim(wide, shape, kept)
    if weights is not None:
        spread = spread * _over_rows(weights.astype(wide.dtype), depth)
    return _rows.add(ids, spread, rows).astype(values.dtype)


def _weights_reference(table, ids, values, *, mode, out_of_range, out_sharding):
    del out_sharding
    found = _rows.take(table, ids, out_of_range).astype(_costs.wide_of(table.dtype))
    wide = _share(values.astype(found.dtype), ids, mode)
    product = found * jax.lax.expand_dims(wide, (ids.ndim - 1,))
    return jnp.sum(product, axis=tuple(range(ids.ndim, product.ndim))).astype(
        table.dtype
    )


def _names(ids, depth: int, mode: str) -> tuple[str, str, str]:
    """Factors of bags, of ids and of rows; a mean's length must be whole."""
    bags = " ".join(f"i{i}" for i in range(ids.ndim - 1))
    dims = " ".join(f"d{i}" for i in range(depth))
    return bags, f"{bags} l{'!' * (mode == 'mean')}", dims


def _rule(avals, params) -> str:
    table, ids, weights = avals
    bags, places, dims = _names(ids, table.ndim - 1, params["mode"])
    more = f", {places}" if weights is not None else ""
    return f"v! {dims}, {places}{more} -> {bags} {dims}"


def _grad_rule(avals, params) -> str:
    ids, weights, values = avals
    bags, places, dims = _names(ids, values.ndim - ids.ndim + 1, params["mode"])
    more = f", {places}" if weights is not None else ""
    return f"{places}{more}, {bags} {dims} -> 1 {dims}"


def _weights_rule(avals, params) -> str:
    table, ids, _ = avals
    bags, places, dims = _names(ids, table.ndim - 1, params["mode"])
    return f"v! {dims}, {places}, {bags} {dims} -> {places}"


def _transpose(cotangents, operands, at, aval, call: Call, params):
    """In the table: add to its rows. In the weights: products with its rows."""
    table, ids, *weights = operands
    if at == 0:
        given = weights[0] if weights else None
        return _into_rows(aval, ids, given, cotangents, call, params)
    return _into_weights(aval, table, ids, cotangents, call, params)


def _grad_transpose(cotangents, operands, at, aval, call: Call, params):
    """In the weights: products with the rows. In the values: sums of them."""
    ids, *weights = operands[:-1]
    (table,) = cotangents
    params = {**params, "out_of_range": "zero"}
    if weights and at == 1:
        return _into_weights(aval, table, ids, [operands[-1]], call, params)
    return _into_values(aval, table, ids, weights, call, params)


def _weights_transpose(cotangents, operands, at, aval, call: Call, params):
    """In the table: add to its rows. In the values: sums of them."""
    table, ids, values = operands
    if at == 0:
        return _into_rows(aval, ids, cotangents[0], [values], call, params)
    return _into_values(aval, table, ids, cotangents, call, params)


def _into_rows(aval, ids, weights, values, call: Call, params):
    ids = _rows.gradient_ids(ids, aval.shape[0], params["out_of_range"])
    there = [x for x in (ids, weights, *values) if x is not None]
    return embedding_bag_grad_op.bind(
        there,
        Call((True, weights is not None, True), target=call.target),
        {
            "rows": aval.shape[0],
            "mode": params["mode"],
            "out_sharding": _p.explicit_sharding(aval),
        },
    )[0]


def _into_values(aval, table, ids, weights, call: Call, params):
    return embedding_bag_op.bind(
        [table, ids, *weights],
        Call((True, True, bool(weights)), target=call.target),
        _with_sharding(aval, params),
    )[0]


def _into_weights(aval, table, ids, values, call: Call, params):
    return embedding_bag_weights_grad_op.bind(
        [table, ids, *values],
        Call((True, True, True), target=call.target),
        _with_sharding(aval, params),
    )[0]


def _with_sharding(aval, params) -> dict:
    return {
        "mode": params["mode"],
        "out_of_range": params["out_of_range"],
        "out_sharding": _p.explicit_sharding(aval),
    }


def _fold(operands, axes, axis_data, call: Call, params):
    """More bags, where the table is shared."""
    if params["out_sharding"] is not None or axes[0] is not None:
        return None
    bags = [
        jnp.moveaxis(x, axis, 0)
        if axis is not None
        else jnp.broadcast_to(x, (axis_data.size, *x.shape))
        for x, axis in zip(operands[1:], axes[1:], strict=True)
    ]
    return embedding_bag_op.bind([operands[0], *bags], call, params), [0]


def _check(table, ids, weights=None, *, mode, out_of_range, out_sharding=None) -> None:
    del out_sharding
    _rows.check_rows("embedding_bag", table, ids, out_of_range)
    if not ids.ndim:
        raise ShapeError(
            f"embedding_bag: ids are {show(ids)}; their last dimension is the bag, so "
            "they need one"
        )
    if mode not in ("sum", "mean"):
        raise ParameterError(
            f"embedding_bag: mode={mode!r} is unknown; it takes sum or mean"
        )
    if table.dtype.name not in FLOATS:
        raise DTypeError(
            f"embedding_bag: table is {show(table)}; it must be one of "
            f"{', '.join(FLOATS)} (table.astype)"
        )
    if weights is not None and weights.shape != ids.shape:
        raise ShapeError(
            f"embedding_bag: weights are {show(weights)}, but ids are {show(ids)}; "
            "give one weight an id"
        )
    if weights is not None and weights.dtype != table.dtype:
        raise DTypeError(
            f"embedding_bag: weights are {show(weights)}, but the table is "
            f"{show(table)}; give both one dtype (weights.astype)"
        )


embedding_bag_op = define(
    "embedding_bag",
    reference=_reference,
    sharding=_rule,
    linear=(0, 2),
    transpose=_transpose,
    tangent_params=_rows.zero_outside,
    fold=_fold,
    typed_by_reference=lambda params: params["out_sharding"] is None,
    cost=_costs.bag_cost,
    check=_check,
)

embedding_bag_grad_op = define(
    "embedding_bag_grad",
    reference=_grad_reference,
    sharding=_grad_rule,
    linear=(1, 2),
    transpose=_grad_transpose,
    cost=_costs.rows_cost,
)

embedding_bag_weights_grad_op = define(
    "embedding_bag_weights_grad",
    reference=_weights_reference,
    sharding=_weights_rule,
    linear=(0, 2),
    transpose=_weights_transpose,
    tangent_params=_rows.zero_outside,
    cost=_costs.weights_cost,
)
