"""Operations that choose elements by position or by order."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.errors import ParameterError, ShapeError
from tilejax.ops.checks import all_of, axes_of, has_axes, kinds, ranks, typed
from tilejax.ops.registry import Sample, declare as _declare
from tilejax.primitives.sizes import show

declare = partial(_declare, family="indexing")


def _has_most(name: str, given: Mapping[str, Any]) -> None:
    aval, k = typed(given["x"]), given.get("k")
    if not isinstance(k, int) or k < 0:
        raise ParameterError(f"{name}: k={k!r}; it is an integer, and static")
    if aval.shape[-1] < k:
        raise ShapeError(
            f"{name}: k={k}, but x is {show(aval)}; its last axis has "
            f"{aval.shape[-1]} elements"
        )


def _fits_along(name: str, given: Mapping[str, Any]) -> None:
    x, indices = typed(given["x"]), typed(given["indices"])
    if x.ndim != indices.ndim:
        raise ShapeError(
            f"{name}: x is {show(x)}, indices {show(indices)}; give both one rank"
        )
    axes_of(name, "axis", given.get("axis", -1), x)


def _index(x, *, index):
    return jnp.asarray(x)[index]


def _take(x, indices, *, axis=0, mode="fill"):
    return jnp.take(x, indices, axis, mode=mode)


def _take_along(x, indices, *, axis=-1, mode="fill"):
    return jnp.take_along_axis(x, indices, axis, mode=mode)


def _slice(x, *, start, size, axis=0):
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)


def _update(x, values, start, *, axis=0):
    return jax.lax.dynamic_update_slice_in_dim(x, values, start, axis)


def _add_at(x, indices, values):
    return jnp.asarray(x).at[indices].add(values)


def _add_at_oracle(x, indices, values):
    result = x.copy()
    np.add.at(result, indices, values)
    return result


def _segment_sum(values, segments, *, count):
    return jax.ops.segment_sum(values, segments, count)


def _segments_oracle(values, segments, count):
    result = np.zeros((count, *values.shape[1:]), values.dtype)
    np.add.at(result, segments, values)
    return result


def _are_segments(name: str, given: Mapping[str, Any]) -> None:
    values, segments = typed(given["values"]), typed(given["segments"])
    if segments.ndim != 1 or values.ndim < 1 or values.shape[0] != segments.shape[0]:
        raise ShapeError(
            f"{name}: values are {show(values)} and segments {show(segments)}; there "
            "must be one segment for each of the first axis of the values"
        )


def _one_hot(ids, *, classes, dtype=jnp.float32, axis=-1):
    return jax.nn.one_hot(ids, classes, dtype=dtype, axis=axis)


def _top_k(x, *, k):
    return tuple(jax.lax.top_k(x, k))


def _top_k_oracle(x, k):
    order = np.argsort(-x, -1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


index = declare(
    "index",
    _index,
    "Take by NumPy's basic indexing: numbers, slices, None, Ellipsis.",
    oracle=lambda x, index: x[index],
    samples=[
        Sample("f32[4,5]", {"index": (slice(1, 3), -1)}),
        Sample("f32[4,5]", {"index": (Ellipsis, None, slice(None, None, 2))}),
    ],
)
take = declare(
    "take",
    _take,
    "Take elements along an axis by their indices; others than there are give NaN.",
    operands="x, indices",
    check=all_of(ranks("x", 1), has_axes(), kinds("integer", "indices")),
    oracle=lambda x, indices, axis=0: np.take(x, indices, axis),
    samples=["f32[5,3] i32[2,4]<5", Sample("f32[3,5] i32[4]<5", {"axis": 1})],
)
take_along_axis = declare(
    "take_along_axis",
    _take_along,
    "Take one element along an axis for each index.",
    operands="x, indices",
    check=all_of(kinds("integer", "indices"), _fits_along),
    oracle=lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis),
    samples=["f32[3,5] i32[3,2]<5"],
)
slice_along = declare(
    "slice_along",
    _slice,
    "Take `size` elements along an axis from a start, which may be traced.",
    check=all_of(ranks("x", 1), has_axes()),
    oracle=lambda x, start, size, axis=0: np.take(x, range(start, start + size), axis),
    samples=[Sample("f32[5,3]", {"start": 1, "size": 2})],
)
update_along = declare(
    "update_along",
    _update,
    "Put values in along an axis from a start, which may be traced.",
    operands="x, values, start",
    check=all_of(ranks("x", 1), has_axes()),
    samples=[Sample("f32[5,3] f32[2,3]", {"start": 1})],
    oracle=lambda x, values, start: np.concatenate(
        [x[:start], values, x[start + len(values) :]]
    ),
)
add_at = declare(
    "add_at",
    _add_at,
    "Add values to the rows that indices name.",
    operands="x, indices, values",
    check=all_of(ranks("x", 1), kinds("integer", "indices")),
    oracle=_add_at_oracle,
    samples=["f32[5,3] i32[4]<5 f32[4,3]"],
)
segment_sum = declare(
    "segment_sum",
    _segment_sum,
    "Add up the rows of each segment.",
    operands="values, segments",
    check=all_of(kinds("integer", "segments"), _are_segments),
    oracle=_segments_oracle,
    samples=[Sample("f32[6,3] i32[6]<4", {"count": 4})],
)
one_hot = declare(
    "one_hot",
    _one_hot,
    "Give 1 at the class and 0 elsewhere, along a new axis.",
    operands="ids",
    check=kinds("integer", "ids"),
    oracle=lambda ids, classes: np.eye(classes, dtype=np.float32)[ids],
    samples=[Sample("i32[2,3]<4", {"classes": 4})],
)
top_k = declare(
    "top_k",
    _top_k,
    "Give the k largest of the last axis, and where they are.",
    check=all_of(ranks("x", 1), _has_most),
    oracle=_top_k_oracle,
    samples=[Sample("f32[3,5]", {"k": 2})],
)
