"""Lookups in a table of any rows by ids of any shape as those in a matrix; bags."""

import math
from typing import Any

import jax.numpy as jnp

from tilejax.lowering.adapt.record import Adapted, dtype_reason, flat, struct
from tilejax.lowering.kernels import embedding as kernel
from tilejax.lowering.kernels.embedding_backward import (
    embedding_bag_table_grad,
    embedding_bag_weights_grad,
    embedding_grad,
)
from tilejax.lowering.kernels.embedding_bag import embedding_bag
from tilejax.lowering.kernels.embedding_configs import (
    embedding_bag_configs,
    embedding_bag_table_grad_configs,
    embedding_configs,
    embedding_grad_configs,
)
from tilejax.lowering.kernels.tiles import float_like
from tilejax.primitives.embedding import embedding_grad_op, embedding_op
from tilejax.primitives.embedding_bag import (
    embedding_bag_grad_op,
    embedding_bag_op,
    embedding_bag_weights_grad_op,
)

# What the kernels call an operation's `out_of_range`. Nobody minds what "promise" does
# with ids that it says there are none of; a lookup of zeros is one that clips at first.
_LOOKUP = {"fill": "fill", "clip": "clip", "promise": "clip", "zero": "clip"}
_BAG = {**_LOOKUP, "zero": "drop"}


def _matrix(x: Any, leading: int = 1) -> Any:
    """The first dimensions as one, and all others as one."""
    shape = (math.prod(x.shape[:leading]), math.prod(x.shape[leading:]))
    if hasattr(x, "reshape"):
        return x.reshape(shape)
    return struct(shape, x.dtype)


def _embedding(table, ids, *, out_of_range, out_sharding, **options):
    del out_sharding
    mode = _LOOKUP[out_of_range]
    found = kernel.embedding(_matrix(table), flat(ids), out_of_range=mode, **options)
    if out_of_range == "zero":
        last = min(table.shape[0] - 1, jnp.iinfo(ids.dtype).max)
        there = (flat(ids) >= 0) & (flat(ids) <= last)
        found = jnp.where(there[:, None], found, jnp.zeros_like(found))
    return found.reshape(*ids.shape, *table.shape[1:])


def _embedding_grad(ids, values, *, rows, out_sharding, **options):
    del out_sharding
    shape = (rows, *values.shape[ids.ndim :])
    values = _matrix(values, ids.ndim)
    return embedding_grad(flat(ids), values, rows=rows, **options).reshape(shape)


def _bag(table, ids, weights, *, mode, out_of_range, out_sharding, **options):
    del out_sharding
    found = embedding_bag(
        _matrix(table),
        _bags(ids),
        _shares(ids, weights, mode, table.dtype),
        out_of_range=_BAG[out_of_range],
        **options,
    )
    return found.reshape(*ids.shape[:-1], *table.shape[1:])


def _bag_grad(ids, weights, values, *, rows, mode, out_sharding, **options):
    del out_sharding
    leading = ids.ndim - 1
    found = embedding_bag_table_grad(
        _bags(ids),
        _shares(ids, weights, mode, values.dtype),
        _matrix(values, leading),
        rows=rows,
        **options,
    )
    return found.reshape(rows, *values.shape[leading:])


def _bag_weights_grad(
    table, ids, values, *, mode, out_of_range, out_sharding, **options
):
    del out_sharding
    wide = jnp.promote_types(table.dtype, jnp.float32)
    found = embedding_bag_weights_grad(
        _matrix(table),
        _bags(ids),
        jnp.zeros(_bags(ids).shape, wide),  # only its dtype counts for a sum
        _matrix(values, ids.ndim - 1),
        out_of_range=_BAG[out_of_range],
        **options,
    )
    found = found / ids.shape[-1] if mode == "mean" else found
    return found.reshape(ids.shape).astype(table.dtype)


def _bags(ids):
    return _matrix(ids, len(ids.shape) - 1)


def _shares(ids, weights, mode: str, dtype) -> Any:
    """Weights that make a mean over the ids, as the operation has it, of a sum.

    The kernels' own mean is over the sum of the weights.
    """
    if mode == "sum":
        return None if weights is None else _bags(weights)
    wide = jnp.promote_types(dtype, jnp.float32)
    if weights is None:
        return jnp.full(_bags(ids).shape, 1 / ids.shape[-1], wide)
    return _bags(weights).astype(wide) / ids.shape[-1]


def _configs(target, table, ids, **params):
    reason = _why_not(target, table, floats=False)
    return reason or embedding_configs(target, _matrix(table), flat(ids), **params)


def _grad_configs(target, ids, values, *, rows, out_sharding):
    del out_sharding
    reason = _why_not(target, values)
    values = _matrix(values, len(ids.shape))
    return reason or embedding_grad_configs(target, flat(ids), values, rows=rows)


def _bag_configs(target, table, ids, *others, **params):
    reason = _why_not(target, table)
    return reason or embedding_bag_configs(target, _matrix(table), _bags(ids))


def _bag_grad_configs(target, ids, weights, values, *, rows, mode, out_sharding):
    reason = _why_not(target, values)
    values = _matrix(values, len(ids.shape) - 1)
    return reason or embedding_bag_table_grad_configs(
        target, _bags(ids), weights, values, rows=rows
    )


def _why_not(target, x, floats: bool = True) -> str | None:
    dtype = jnp.dtype(x.dtype)
    if not float_like(dtype) and (floats or dtype.name not in _INTEGERS):
        return f"no kernel for {dtype.name}"
    return dtype_reason(target, x)


_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)}

KERNELS = (
    Adapted(embedding_op, "forward", _embedding, _configs),
    Adapted(embedding_grad_op, "forward", _embedding_grad, _grad_configs),
    Adapted(embedding_bag_op, "forward", _bag, _bag_configs),
    Adapted(embedding_bag_grad_op, "forward", _bag_grad, _bag_grad_configs),
    Adapted(embedding_bag_weights_grad_op, "forward", _bag_weights_grad, _bag_configs),
)
