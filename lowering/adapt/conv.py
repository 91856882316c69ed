"""Any `conv_general_dilated` as a convolution with features last, or as a gradient."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp

from tilejax.lowering.adapt.record import (
    Adapted,
    dtype_reason,
    precision_reason,
    struct,
)
from tilejax.lowering.kernels import conv as kernel
from tilejax.lowering.kernels.conv_backward import conv_filter_grad
from tilejax.lowering.kernels.conv_configs import (
    conv_configs,
    conv_filter_grad_configs,
)
from tilejax.lowering.kernels.conv_plan import ConvConfig
from tilejax.lowering.kernels.conv_windows import dilated
from tilejax.primitives.conv import conv_op
from tilejax.primitives.conv_dims import result_spatial
from tilejax.targets import Tiling

# The kernels spell out, tap by tap, the last axis of what they walk.
_MOST_TAPS = 64


@dataclass(frozen=True)
class ConvForm:
    """Which kernel computes a convolution, and its tile.

    **Arguments:**

    - `kernel`: `"conv"` walks the window and tiles the result's positions;
      `"filter_grad"` does it the other way round, with batch and features of `x` in
      each other's place, as suits the gradient of a filter, whose window is an image.
    - `tile`: of that kernel.
    """

    kernel: Literal["conv", "filter_grad"]
    tile: ConvConfig


def _forward(x, w, *, config: ConvForm, interpret=False, **params):
    run, (one, two), options = _prepared(config.kernel, x, w, params)
    out = run(
        x.transpose(one),
        w.transpose(two),
        **options,
        config=config.tile,
        interpret=interpret,
    )
    if config.kernel == "filter_grad":
        out = jnp.moveaxis(out, -2, 0)
    batch, feature, *spatial = params["dimension_numbers"].out_spec
    order = (batch, *spatial, feature)
    return out.transpose([order.index(i) for i in range(out.ndim)])


def _prepared(form: str, x, w, params) -> tuple[Any, tuple, dict]:
    """The kernel, the orders in which it takes the dimensions, and its parameters."""
    batch, feature, *space = params["dimension_numbers"].lhs_spec
    to, of, *window = params["dimension_numbers"].rhs_spec
    options = {
        "lhs_dilation": params["lhs_dilation"],
        "precision": params["precision"],
        "out_dtype": params["preferred_element_type"] or x.dtype,
    }
    if form == "conv":
        options |= {
            "strides": params["window_strides"],
            "rhs_dilation": params["rhs_dilation"],
            "padding": params["padding"],
            "groups": _groups(x, w, params),
        }
        return kernel.conv, ((batch, *space, feature), (*window, of, to)), options
    options |= {
        "sizes": tuple(result_spatial(x, w, params)),
        "strides": params["rhs_dilation"],
        "rhs_dilation": params["window_strides"],
        "padding": _filter_padding(x, w, params),
        "groups": params["batch_group_count"],
    }
    return conv_filter_grad, ((feature, *space, batch), (of, *window, to)), options


def _groups(x, w, params) -> int:
    """As many as the parameters say, or fewer on a device's share of the features."""
    lhs, rhs, _ = params["dimension_numbers"]
    return x.shape[lhs[1]] // w.shape[rhs[1]]


def _filter_padding(x, w, params) -> tuple[tuple[int, int], ...]:
    """The padding without what no position of the result reaches."""
    lhs, rhs, _ = params["dimension_numbers"]
    found = []
    for i, out in enumerate(result_spatial(x, w, params)):
        low = params["padding"][i][0]
        read = dilated(out, params["window_strides"][i])
        read += dilated(w.shape[rhs[2 + i]], params["rhs_dilation"][i]) - 1
        size = dilated(x.shape[lhs[2 + i]], params["lhs_dilation"][i])
        found.append((low, read - size - low))
    return tuple(found)


def _configs(target, x, w, **params):
    reason = _why_not(target, x, w, params)
    if reason is not None:
        return reason
    found: list[Tiling] = []
    reasons: list[str] = []
    for form in _forms(x, w, params):
        walked = _walked(form, x, w, params)
        if walked > _MOST_TAPS:
            reasons.append(f"a window of {walked} is longer than {_MOST_TAPS}")
            continue
        _, (one, two), options = _prepared(form, x, w, params)
        propose = conv_configs if form == "conv" else conv_filter_grad_configs
        tilings = propose(target, _ordered(x, one), _ordered(w, two), **options)
        moved, calls = _copied(form, (x, one), (w, two), params)
        found += [
            replace(t, config=ConvForm(form, t.config)).after_copies(moved, calls)
            for t in tilings
        ]
    return found or "; ".join(reasons)


def _forms(x, w, params) -> list[Literal["conv", "filter_grad"]]:
    """The kernels that can, first the one that walks less and tiles more."""
    if _groups(x, w, params) > 1:
        return ["conv"]
    if params["batch_group_count"] > 1:
        return ["filter_grad"]
    taps = math.prod(w.shape[i] for i in params["dimension_numbers"].rhs_spec[2:])
    if taps > math.prod(result_spatial(x, w, params)):
        return ["filter_grad", "conv"]
    return ["conv", "filter_grad"]


def _walked(form: str, x, w, params) -> int:
    if form == "conv":
        return w.shape[params["dimension_numbers"].rhs_spec[-1]]
    return result_spatial(x, w, params)[-1]


def _copied(form: str, x, w, params) -> tuple[float, int]:
    """The bytes and the number of arrays that the kernel wants in another layout."""
    moved = [
        math.prod(each.shape) * jnp.dtype(each.dtype).itemsize
        for each, order in (x, w)
        if tuple(order) != tuple(range(len(order)))
    ]
    out = params["dimension_numbers"].out_spec
    if form == "filter_grad" or out[1] != len(out) - 1:
        dtype = jnp.dtype(params["preferred_element_type"] or x[0].dtype)
        features = w[0].shape[params["dimension_numbers"].rhs_spec[0]]
        batch = x[0].shape[params["dimension_numbers"].lhs_spec[0]]
        batch //= params["batch_group_count"]
        spatial = math.prod(result_spatial(x[0], w[0], params))
        moved.append(batch * features * spatial * dtype.itemsize)
    return float(sum(moved)), len(moved)


def _ordered(x, order):
    return struct([x.shape[i] for i in order], x.dtype)


def _why_not(target, x, w, params) -> str | None:
    if not 3 <= len(x.shape) <= 5:
        return f"no kernel for {len(x.shape) - 2} spatial dimensions"
    dtype = jnp.dtype(x.dtype)
    out = jnp.dtype(params["preferred_element_type"] or dtype)
    if dtype.name not in _DTYPES:
        return f"no kernel for {dtype.name}"
    if dtype == jnp.int8 and out != jnp.int32:
        return f"no kernel that sums int8 in {out.name}"
    if 0 in result_spatial(x, w, params):
        return "the result is empty"
    operands = (x, w, struct((), out))
    return dtype_reason(target, *operands) or precision_reason(params["precision"])


_DTYPES = {"float64", "float32", "bfloat16", "float16", "int8"}

KERNELS = (Adapted(conv_op, "forward", _forward, _configs),)
