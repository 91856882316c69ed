"""How much work bags of rows are, and in which dtype they are summed."""

import jax.numpy as jnp

from tilejax.primitives.sizes import count, nbytes
from tilejax.targets.cost import Cost


def wide_of(dtype):
    """Return the dtype that values of a dtype are summed in.

    >>> wide_of(jnp.float16)
    dtype('float32')
    """
    return jnp.promote_types(dtype, jnp.float32)


def bag_cost(table, ids, weights=None, **params) -> Cost:
    """A row read and added for each id, multiplied first where it has a weight."""
    row = float(nbytes(table)) / max(1, table.shape[0])
    width = count(table) / max(1, table.shape[0])
    each = 1 + (weights is not None)
    bags = count(ids) / max(1, ids.shape[-1])
    means = bags * width * (params["mode"] == "mean")
    return Cost(
        bytes_read=count(ids) * row + nbytes(ids, weights),
        bytes_written=bags * row,
        elementwise={wide_of(table.dtype).name: each * count(ids) * width + means},
    )


def rows_cost(ids, weights, values, *, rows, mode, out_sharding=None) -> Cost:
    """A bag's values read once, and added to a row for each id."""
    del out_sharding
    bags = max(1, count(ids) // max(1, ids.shape[-1]))
    width = count(values) / bags
    each = 1 + (weights is not None)
    means = count(values) * (mode == "mean")
    return Cost(
        bytes_read=nbytes(ids, weights, values),
        bytes_written=rows * width * values.dtype.itemsize,
        elementwise={wide_of(values.dtype).name: each * count(ids) * width + means},
    )


def weights_cost(table, ids, values, **params) -> Cost:
    """A row read, multiplied and added up for each id."""
    row = float(nbytes(table)) / max(1, table.shape[0])
    width = count(table) / max(1, table.shape[0])
    means = count(values) * (params["mode"] == "mean")
    return Cost(
        bytes_read=count(ids) * row + nbytes(ids, values),
        bytes_written=count(ids) * table.dtype.itemsize,
        elementwise={wide_of(table.dtype).name: 2 * count(ids) * width + means},
    )
