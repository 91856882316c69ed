"""Layers of convolutions and of norms."""

from collections.abc import Callable, Sequence
from typing import Any

from tilejax.errors import ParameterError, ShapeError
from tilejax.ops import convolution, elementwise, normalisation
from tilejax.ops.initialisers import Initialiser, named
from tilejax.ops.layers import Builder, add_activation, fixed, layer, positive
from tilejax.ops.registry import Operation
from tilejax.primitives.conv_arguments import LAYOUTS, each_dimension
from tilejax.primitives.sizes import show

_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def _convolution(op: Operation, rank: int, doc: str, grouped: bool) -> Callable:
    def convolve(
        build: Builder,
        x,
        filters: int,
        kernel_size: int | Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        padding: Any = "SAME",
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        layout: str = _LAST[rank],
        use_bias: bool = True,
        activation: Any = None,
        kernel_init: Initialiser = "he_normal",
        bias_init: Initialiser = "zeros",
    ):
        window, features = _sizes(op.name, x, rank, layout, kernel_size)
        filters = positive(op.name, "filters", filters)
        if features % positive(op.name, "groups", groups) or filters % groups:
            raise ParameterError(
                f"{op.name}: groups={groups} must divide the {features} features of "
                f"x, {show(x)}, and filters={filters}"
            )
        shape = _kernel_shape(layout, window, features // groups, filters)
        init = named(kernel_init, outputs_first=LAYOUTS[layout][0] == "O")
        operands = [x, build.parameter("kernel", shape, init=init, dtype=x.dtype)]
        if use_bias:
            operands.append(
                build.parameter("bias", (filters,), init=bias_init, dtype=x.dtype)
            )
        params = {"stride": stride, "padding": padding, "dilation": dilation}
        if grouped:
            params["groups"] = groups
        y = build.apply(op, *operands, **params, layout=layout)
        return add_activation(build, activation, y)

    convolve.__name__ = op.name
    convolve.__doc__ = (
        f"{doc} by a kernel of so many filters, and add a bias a filter.\n\n"
        f"The kernel is {LAYOUTS[_LAST[rank]]}, or OI and the window where the layout "
        "has the features of x before space."
    )
    return convolve


def _sizes(name: str, x, rank: int, layout: str, kernel_size) -> tuple:
    if layout not in LAYOUTS or len(layout) != rank + 2:
        known = ", ".join(each for each in LAYOUTS if len(each) == rank + 2)
        raise ParameterError(f"{name}: layout={layout!r}; it takes {known}")
    if len(x.shape) != rank + 2:
        raise ShapeError(
            f"{name}: x is {show(x)}; with layout={layout} it must have {rank + 2} axes"
        )
    window = each_dimension(name, "kernel_size", kernel_size, rank)
    return window, fixed(name, x, layout.index("C"), "features")


def _kernel_shape(layout: str, window, features: int, filters: int) -> tuple:
    if LAYOUTS[layout][0] == "O":
        return (filters, features, *window)
    return (*window, features, filters)


_CONVOLUTIONS = (
    (convolution.conv1d, 1, "Convolve over one axis", True),
    (convolution.conv2d, 2, "Convolve over two axes", True),
    (convolution.conv3d, 3, "Convolve over three axes", True),
    (convolution.conv1d_transpose, 1, "Enlarge one axis", False),
    (convolution.conv2d_transpose, 2, "Enlarge two axes", False),
    (convolution.conv3d_transpose, 3, "Enlarge three axes", False),
)
for _op, _rank, _doc, _grouped in _CONVOLUTIONS:
    _space = "8,7,6"[: 2 * _rank - 1]
    _options = {"filters": 6, "kernel_size": 3, "stride": 2}
    layer((f"f32[2,{_space},4]", _options))(_convolution(_op, _rank, _doc, _grouped))


@layer(("f32[2,8,7,4]", {"kernel_size": 3, "multiplier": 2}))
def depthwise_conv2d(
    build: Builder,
    x,
    kernel_size: int | Sequence[int],
    *,
    multiplier: int = 1,
    stride: int | Sequence[int] = 1,
    padding: Any = "SAME",
    dilation: int | Sequence[int] = 1,
    layout: str = "NHWC",
    use_bias: bool = True,
    activation: Any = None,
    kernel_init: Initialiser = "he_normal",
    bias_init: Initialiser = "zeros",
):
    """Convolve each feature by itself, with as many filters as the multiplier says."""
    name = "depthwise_conv2d"
    window, features = _sizes(name, x, 2, layout, kernel_size)
    filters = features * positive(name, "multiplier", multiplier)
    init = named(kernel_init, outputs_first=LAYOUTS[layout][0] == "O")
    shape = _kernel_shape(layout, window, 1, filters)
    operands = [x, build.parameter("kernel", shape, init=init, dtype=x.dtype)]
    if use_bias:
        operands.append(
            build.parameter("bias", (filters,), init=bias_init, dtype=x.dtype)
        )
    y = build.apply(
        convolution.conv2d,
        *operands,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=features,
        layout=layout,
    )
    return add_activation(build, activation, y)


def _rows(build: Builder, x, features: int, scale: bool, bias: bool) -> list:
    dtype, rows = x.dtype, []
    if scale or bias:
        rows.append(build.parameter("scale", (features,), init="ones", dtype=dtype))
    if bias:
        rows.append(build.parameter("bias", (features,), init="zeros", dtype=dtype))
    return rows


@layer(("f32[2,5,8]", {}))
def layer_norm(build: Builder, x, *, eps: float = 1e-5, use_bias: bool = True):
    """Normalise the last axis; a scale and a bias a feature."""
    rows = _rows(build, x, fixed("layer_norm", x, -1, "last axis"), True, use_bias)
    return build.apply(normalisation.layer_norm, x, *rows, eps=eps)


@layer(("f32[2,5,8]", {}))
def rms_norm(build: Builder, x, *, eps: float = 1e-6):
    """Divide the last axis by its root mean square; a scale a feature."""
    rows = _rows(build, x, fixed("rms_norm", x, -1, "last axis"), True, False)
    return build.apply(normalisation.rms_norm, x, *rows, eps=eps)


@layer(("f32[2,5,8]", {"groups": 4}))
def group_norm(
    build: Builder, x, groups: int, *, eps: float = 1e-5, channel_axis: int = -1
):
    """Normalise groups of channels; a scale and a bias a channel."""
    channels = fixed("group_norm", x, channel_axis, "channels")
    rows = _rows(build, x, channels, True, True)
    params = {"groups": groups, "eps": eps, "channel_axis": channel_axis}
    return build.apply(normalisation.group_norm, x, *rows, **params)


@layer(
    ("f32[2,5,8]", {}),
    ("f32[2,5,8]", {"training": True}),
    ("f32[2,8,5]", {"axis": 1, "training": True}),
)
def batch_norm(
    build: Builder,
    x,
    *,
    training: bool = False,
    momentum: float = 0.9,
    eps: float = 1e-5,
    axis: int = -1,
):
    """Normalise each channel; a scale and a bias a channel.

    With `training` by the batch's own mean and variance, and the kept ones, which are
    not trained, move towards those by 1 - momentum; else by the kept ones.
    """
    channels = fixed("batch_norm", x, axis, "channels")
    rows = _rows(build, x, channels, True, True)
    kept = [
        build.parameter(name, (channels,), init=init, dtype="float32", trainable=False)
        for name, init in (("mean", "zeros"), ("variance", "ones"))
    ]
    used = kept
    if training:
        used = build.apply(normalisation.batch_statistics, x, axis=axis)
        for old, new in zip(kept, used, strict=True):
            moved = build.apply(_moved, old, new, momentum=momentum)
            build.update(old, moved)
    params = {"eps": eps, "axis": axis}
    return build.apply(normalisation.batch_norm, x, *used, *rows, **params)


def _moved(old, new, *, momentum: float):
    return elementwise.stop_gradient(momentum * old + (1 - momentum) * new)
