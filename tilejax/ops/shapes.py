"""Operations that move elements and compute none."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from tilejax.errors import ParameterError, ShapeError
from tilejax.ops.checks import (
    all_of,
    axes_of,
    described,
    equal_but,
    has_axes,
    ranks,
    typed,
)
from tilejax.ops.registry import Sample, declare as _declare
from tilejax.primitives.sizes import show

declare = partial(_declare, family="shapes")


def _is_permutation(name: str, given: Mapping[str, Any]) -> None:
    axes, aval = given.get("axes"), typed(given["x"])
    if axes is not None and len(axes_of(name, "axes", axes, aval)) != aval.ndim:
        raise ParameterError(
            f"{name}: axes={axes!r}, but x is {show(aval)}; name each axis once"
        )


def _is_one(name: str, given: Mapping[str, Any]) -> None:
    aval, axis = typed(given["x"]), given.get("axis")
    axes = () if axis is None else axes_of(name, "axis", axis, aval)
    wrong = [d for d in axes if aval.shape[d] != 1]
    if wrong:
        raise ShapeError(
            f"{name}: x is {show(aval)}; axis {wrong[0]} has size "
            f"{aval.shape[wrong[0]]}, and only axes of size 1 can go"
        )


def _divides(name: str, given: Mapping[str, Any]) -> None:
    aval, parts = typed(given["x"]), given.get("parts")
    (axis,) = axes_of(name, "axis", given.get("axis", 0), aval)
    if isinstance(parts, int) and (parts < 1 or aval.shape[axis] % parts != 0):
        raise ShapeError(
            described(name, given, f"axis {axis} is {aval.shape[axis]}, which does not")
            + f" split into {parts} equal parts; give the places to cut at"
        )


def _split(x, *, parts, axis=0):
    return jnp.split(x, parts, axis)


def _pad(x, *, widths, value=0):
    return jnp.pad(x, widths, constant_values=value)


def _flatten(x, *, start=0, end=-1):
    ndim = jnp.ndim(x)
    start, end = start % ndim, end % ndim
    shape = jnp.shape(x)
    size = 1
    for each in shape[start : end + 1]:
        size = size * each
    return jnp.reshape(x, (*shape[:start], size, *shape[end + 1 :]))


def _flip(x, *, axis=None):
    return jnp.flip(x, axis)


def _roll(x, *, shift, axis=None):
    return jnp.roll(x, shift, axis)


def _repeat(x, *, times, axis=None):
    return jnp.repeat(x, times, axis)


def _concatenate(arrays, *, axis=0):
    return jnp.concatenate(arrays, axis)


def _stack(arrays, *, axis=0):
    return jnp.stack(arrays, axis)


reshape = declare(
    "reshape",
    lambda x, shape: jnp.reshape(x, shape),
    "Give another shape with as many elements; one size may be -1.",
    operands="x, shape=",
    oracle=np.reshape,
    samples=[Sample("f32[2,6]", {"shape": (3, -1)})],
)
flatten = declare(
    "flatten",
    _flatten,
    "Make one axis of the axes from start to end, both included.",
    check=all_of(ranks("x", 1), has_axes(param="start"), has_axes(param="end")),
    oracle=lambda x, start: x.reshape(*x.shape[:start], -1),
    samples=[Sample("f32[2,3,4]", {"start": 1})],
)
transpose = declare(
    "transpose",
    lambda x, axes=None: jnp.transpose(x, axes),
    "Put the axes in another order; all reversed by default.",
    operands="x, axes=",
    check=_is_permutation,
    oracle=np.transpose,
    samples=["f32[2,3]", Sample("f32[2,3,4]", {"axes": (1, 2, 0)})],
)
swapaxes = declare(
    "swapaxes",
    lambda x, first, second: jnp.swapaxes(x, first, second),
    "Swap two axes.",
    operands="x, first=, second=",
    check=all_of(has_axes(param="first"), has_axes(param="second")),
    oracle=lambda x, first, second: np.swapaxes(x, first, second),
    samples=[Sample("f32[2,3,4]", {"first": 0, "second": -1})],
)
moveaxis = declare(
    "moveaxis",
    lambda x, source, destination: jnp.moveaxis(x, source, destination),
    "Move an axis to another place.",
    operands="x, source=, destination=",
    check=all_of(has_axes(param="source"), has_axes(param="destination")),
    oracle=np.moveaxis,
    samples=[Sample("f32[2,3,4]", {"source": 0, "destination": -1})],
)
squeeze = declare(
    "squeeze",
    lambda x, *, axis=None: jnp.squeeze(x, axis),
    "Drop axes of size 1.",
    check=_is_one,
    oracle=np.squeeze,
    samples=["f32[2,1,3]", Sample("f32[2,1,1]", {"axis": 1})],
)
expand_dims = declare(
    "expand_dims",
    lambda x, *, axis: jnp.expand_dims(x, axis),
    "Add axes of size 1.",
    oracle=np.expand_dims,
    samples=[Sample("f32[2,3]", {"axis": (0, -1)})],
)
broadcast_to = declare(
    "broadcast_to",
    lambda x, shape: jnp.broadcast_to(x, shape),
    "Repeat along axes of size 1, or new ones in front.",
    operands="x, shape=",
    oracle=np.broadcast_to,
    samples=[Sample("f32[3,1]", {"shape": (2, 3, 4)})],
)
concatenate = declare(
    "concatenate",
    _concatenate,
    "Put arrays after one another along an axis.",
    operands="arrays",
    check=equal_but("arrays"),
    oracle=np.concatenate,
    samples=[Sample("(f32[2,3] f32[2,1])", {"axis": 1})],
)
stack = declare(
    "stack",
    _stack,
    "Put arrays of one shape beside one another along a new axis.",
    operands="arrays",
    oracle=np.stack,
    samples=[Sample("(f32[2,3] f32[2,3])", {"axis": 1})],
)
split = declare(
    "split",
    _split,
    "Cut an axis into equal parts, or at the places given.",
    check=all_of(has_axes(), _divides),
    oracle=lambda x, parts, axis=0: np.split(x, parts, axis),
    samples=[
        Sample("f32[2,6]", {"parts": 3, "axis": 1}),
        Sample("f32[5]", {"parts": (1, 4)}),
    ],
)
pad = declare(
    "pad",
    _pad,
    "Put a value around: a pair (before, after) an axis.",
    oracle=lambda x, widths, value=0: np.pad(x, widths, constant_values=value),
    samples=[Sample("f32[2,3]", {"widths": ((1, 0), (0, 2)), "value": 7})],
)
flip = declare(
    "flip",
    _flip,
    "Reverse axes; all by default.",
    check=has_axes(),
    oracle=lambda x, axis=None: np.flip(x, axis),
    samples=["f32[2,3]", Sample("f32[2,3]", {"axis": 1})],
)
roll = declare(
    "roll",
    _roll,
    "Shift along axes, what leaves coming in again.",
    check=has_axes(),
    oracle=lambda x, shift, axis=None: np.roll(x, shift, axis),
    samples=[Sample("f32[2,5]", {"shift": 2, "axis": 1})],
)
tile = declare(
    "tile",
    lambda x, *, times: jnp.tile(x, times),
    "Repeat the whole array along each axis.",
    oracle=lambda x, times: np.tile(x, times),
    samples=[Sample("f32[2,3]", {"times": (2, 1)})],
)
repeat = declare(
    "repeat",
    _repeat,
    "Repeat each element along an axis.",
    check=has_axes(),
    oracle=lambda x, times, axis=None: np.repeat(x, times, axis),
    samples=[Sample("f32[2,3]", {"times": 2, "axis": 1})],
)
