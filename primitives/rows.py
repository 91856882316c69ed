"""Reading rows of a table and adding to them, and what a row that is not there means.

`out_of_range` says it, as JAX's gather modes do; the gradient follows from each:

| | a row that is not there | its gradient |
| --- | --- | --- |
| `"fill"` | NaN (the lowest signed, the highest unsigned integer) | dropped |
| `"zero"` | zeros | dropped |
| `"clip"` | the nearest row | goes to that row |
| `"promise"` | unspecified; the nearest row on CPUs | dropped |

No index wraps around: -1 is out of range.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.sizes import show

MODES = {
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "zero": lax.GatherScatterMode.FILL_OR_DROP,
    "clip": lax.GatherScatterMode.CLIP,
    "promise": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
}


def take(table: jax.Array, ids: jax.Array, out_of_range: str) -> jax.Array:
    """Read rows: `[V, *D]` and ids of any shape to `[*ids, *D]`.

    >>> take(jnp.arange(3.0), jnp.array([1, 5]), "zero").tolist()
    [1.0, 0.0]
    """
    if not table.shape[0]:
        return jnp.zeros((*ids.shape, *table.shape[1:]), table.dtype)
    depth = table.ndim - 1
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(ids.ndim, ids.ndim + depth)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    return lax.gather(
        table,
        _indices(ids),
        numbers,
        (1, *table.shape[1:]),
        mode=MODES[out_of_range],
        fill_value=0 if out_of_range == "zero" else None,
    )


def add(ids: jax.Array, values: jax.Array, rows: int) -> jax.Array:
    """Sum rows that have one index: `[*ids, *D]` to `[rows, *D]`, others dropped.

    >>> add(jnp.array([1, 1, 7]), jnp.array([1.0, 2.0, 4.0]), 2).tolist()
    [0.0, 3.0]
    """
    zeros = jnp.zeros((rows, *values.shape[ids.ndim :]), values.dtype)
    if not rows:
        return zeros
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(ids.ndim, values.ndim)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    return lax.scatter_add(
        zeros,
        _indices(ids),
        values,
        numbers,
        mode=lax.GatherScatterMode.FILL_OR_DROP,
    )


def _indices(ids: jax.Array) -> jax.Array:
    """Ids as gathers take them, in a dtype that can name every row.

    XLA compares an index with the number of rows in the dtype of the index, and drops
    all of an int8 where there are more than 127 rows.
    """
    if ids.dtype.itemsize < 4:
        ids = ids.astype(jnp.int32)
    return lax.expand_dims(ids, (ids.ndim,))


def clipped(ids: jax.Array, rows: int) -> jax.Array:
    """Return ids moved to the nearest row that is there.

    >>> clipped(jnp.array([-1, 9]), 3).tolist()
    [0, 2]
    """
    highest = min(rows - 1, jnp.iinfo(ids.dtype).max)
    return lax.clamp(
        jnp.zeros((), ids.dtype), ids, jnp.asarray(max(highest, 0), ids.dtype)
    )


def gradient_ids(ids: jax.Array, rows: int, out_of_range: str) -> jax.Array:
    """Return the rows that gradients go to; those out of range are dropped."""
    return clipped(ids, rows) if out_of_range == "clip" else ids


def check_rows(name: str, table: Any, ids: Any, out_of_range: str) -> None:
    """Raise what a user should read where ids cannot index the table."""
    if table.ndim < 1:
        raise ShapeError(
            f"{name}: table is {show(table)}; it needs a dimension of rows"
        )
    check_ids(name, ids)
    if out_of_range not in MODES:
        raise ParameterError(
            f"{name}: out_of_range={out_of_range!r} is unknown; it takes "
            f"{', '.join(MODES)}"
        )
    if not table.shape[0] and 0 not in ids.shape:
        raise ShapeError(
            f"{name}: table {show(table)} has no rows for the ids {show(ids)}"
        )


def check_ids(name: str, ids: Any) -> None:
    """Raise unless ids are integers."""
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise DTypeError(
            f"{name}: ids are {show(ids)}; they must be integers (ids.astype(int))"
        )


def zero_outside(params, at: int) -> dict:
    """Return the parameters of tangents: what is filled in a table does not move."""
    params = dict(params)
    if at == 0 and params["out_of_range"] == "fill":
        params["out_of_range"] = "zero"
    return params
