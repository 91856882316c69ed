"""Which dimensions of a convolution's operands are which, and what follows from it."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.sizes import nbytes, show
from tilejax.targets.cost import Cost


def rule(avals, params) -> str:
    """Spell the factor rule.

    Spatial dimensions are halos, unless the window is a single element that steps by
    one. The window, and features or batches that go in groups, must be whole.
    """
    x, w = avals
    lhs, rhs, out = params["dimension_numbers"]
    names: tuple[dict[int, str], ...] = ({}, {}, {})
    grouped = params["feature_group_count"] > 1 or params["batch_group_count"] > 1
    depthwise = _is_depthwise(x, w, params)
    names[0][lhs[0]] = "n!" if params["batch_group_count"] > 1 else "n"
    names[2][out[0]] = "1" if params["batch_group_count"] > 1 else "n"
    names[0][lhs[1]] = "o" if depthwise else "c!" if grouped else "c"
    names[1][rhs[1]] = "1" if depthwise else "g!" if grouped else "c"
    names[1][rhs[0]] = names[2][out[1]] = "o!" if grouped and not depthwise else "o"
    for i, (a, b, c) in enumerate(zip(lhs[2:], rhs[2:], out[2:], strict=True)):
        mark = "" if _is_pointwise(w.shape[b], i, params) else "~"
        names[0][a] = names[2][c] = f"s{i}{mark}"
        names[1][b] = f"k{i}!"
    values = [" ".join(side[d] for d in sorted(side)) for side in names]
    return f"{values[0]}, {values[1]} -> {values[2]}"


def _is_depthwise(x: Any, w: Any, params) -> bool:
    """A filter a feature: groups can be split over devices."""
    lhs, rhs, _ = params["dimension_numbers"]
    groups = params["feature_group_count"]
    return groups > 1 and x.shape[lhs[1]] == w.shape[rhs[0]] == groups


def _is_pointwise(window: int, at: int, params) -> bool:
    return (
        window == 1
        and tuple(params["padding"][at]) == (0, 0)
        and params["window_strides"][at] == 1
        and params["lhs_dilation"][at] == 1
    )


def result_spatial(x: Any, w: Any, params) -> list[int]:
    """Return the result's spatial sizes, in the order of the dimension numbers."""
    lhs, rhs, _ = params["dimension_numbers"]
    found = []
    for i, (a, b) in enumerate(zip(lhs[2:], rhs[2:], strict=True)):
        size = _dilated(x.shape[a], params["lhs_dilation"][i])
        window = _dilated(w.shape[b], params["rhs_dilation"][i])
        room = size + sum(params["padding"][i]) - window
        found.append(max(0, room // params["window_strides"][i] + 1))
    return found


def _dilated(size: int, dilation: int) -> int:
    return 0 if size == 0 else 1 + (size - 1) * dilation


def taps(x: Any, w: Any, params) -> int:
    """Count pairs of a result's element and an element of `x` that it reads, in space.

    Padding and the holes of a dilated `x` are not counted: no operation is needed
    there.
    """
    lhs, rhs, _ = params["dimension_numbers"]
    outs = result_spatial(x, w, params)
    total = 1
    for i, (a, b) in enumerate(zip(lhs[2:], rhs[2:], strict=True)):
        hole, low = params["lhs_dilation"][i], params["padding"][i][0]
        total *= sum(
            _hits(
                k * params["rhs_dilation"][i] - low,
                params["window_strides"][i],
                outs[i],
                hole,
                _dilated(x.shape[a], hole),
            )
            for k in range(w.shape[b])
        )
    return total


def _hits(start: int, stride: int, outs: int, hole: int, size: int) -> int:
    """Count multiples of `hole` in `[0, size)` among `outs` positions from `start`."""
    first = max(0, -(start // stride))
    last = min(outs - 1, (size - 1 - start) // stride)
    every = hole // math.gcd(stride, hole)
    for o in range(first, min(last, first + every - 1) + 1):
        if (start + o * stride) % hole == 0:
            return (last - o) // every + 1
    return 0


def cost(x: Any, w: Any, **params) -> Cost:
    """Two operations a multiply-add that reads an element, not padding or a hole."""
    lhs, rhs, _ = params["dimension_numbers"]
    batch = x.shape[lhs[0]] // params["batch_group_count"]
    features, depth = w.shape[rhs[0]], w.shape[rhs[1]]
    size = batch * features * math.prod(result_spatial(x, w, params))
    dtype = jnp.promote_types(x.dtype, w.dtype)
    out = jax.ShapeDtypeStruct((size,), params["preferred_element_type"] or dtype)
    return Cost(
        {dtype.name: 2.0 * batch * features * depth * taps(x, w, params)},
        bytes_read=nbytes(x, w),
        bytes_written=nbytes(out),
    )


def check(x: Any, w: Any, **params) -> None:
    """Raise what a user should read where the operands do not fit together."""
    if x.ndim != w.ndim or x.ndim < 2:
        raise ShapeError(
            f"conv: x is {show(x)} and w is {show(w)}; both need a batch or output "
            "feature dimension, a feature dimension and as many spatial ones"
        )
    if x.dtype != w.dtype:
        raise DTypeError(
            f"conv: x is {show(x)} and w is {show(w)}; give both one dtype (x.astype)"
        )
    lhs, rhs, _ = params["dimension_numbers"]
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
        raise ParameterError(
            f"conv: groups={groups} and batch groups={batches}; both must be positive, "
            "and one of them 1"
        )
    features, depth = x.shape[lhs[1]], w.shape[rhs[1]]
    if features != depth * groups:
        raise ShapeError(
            f"conv: x, {show(x)}, has {features} features in dimension {lhs[1]}, but "
            f"w, {show(w)}, takes {depth} in dimension {rhs[1]}, in {groups} groups; "
            f"it must take {features} / {groups}"
        )
    for name, size, count in (
        ("output features of w", w.shape[rhs[0]], groups * batches),
        ("batch of x", x.shape[lhs[0]], batches),
    ):
        if size % count:
            raise ShapeError(
                f"conv: the {name} is {size} (x {show(x)}, w {show(w)}), which "
                f"{count} groups do not divide"
            )
