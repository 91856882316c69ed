"""Layer and RMS norm of any leading dimensions as those of rows; group norm."""

from tilejax.lowering.adapt.record import Adapted, dtype_reason, flat, rows
from tilejax.lowering.kernels import group_norm as group_kernel, norms as kernel
from tilejax.lowering.kernels.group_norm_backward import group_norm_backward
from tilejax.lowering.kernels.norms_backward import (
    layer_norm_backward,
    rms_norm_backward,
)
from tilejax.lowering.kernels.row_configs import (
    group_norm_backward_configs,
    group_norm_configs,
    norm_backward_configs,
    norm_configs,
)
from tilejax.primitives.group_norm import group_norm_op
from tilejax.primitives.norms import layer_norm_op, rms_norm_op


def _layer_norm(x, scale, bias, **options):
    y, mean, rstd = kernel.layer_norm(rows(x), scale, bias, **options)
    return y.reshape(x.shape), mean.reshape(x.shape[:-1]), rstd.reshape(x.shape[:-1])


def _layer_norm_backward(operands, saved, cotangents, *, eps, **options):
    del eps  # it is in the saved statistics
    x, scale, bias = operands
    (mean, rstd), (dy, dmean, drstd) = saved, cotangents
    dx, dscale, dbias = layer_norm_backward(
        rows(x), scale, bias, flat(mean), flat(rstd), rows(dy), flat(dmean),
        flat(drstd), **options,
    )  # fmt: skip
    return dx.reshape(x.shape), dscale, dbias


def _rms_norm(x, scale, **options):
    y, rstd = kernel.rms_norm(rows(x), scale, **options)
    return y.reshape(x.shape), rstd.reshape(x.shape[:-1])


def _rms_norm_backward(operands, saved, cotangents, *, eps, **options):
    del eps  # it is in the saved statistics
    x, scale = operands
    (rstd,), (dy, drstd) = saved, cotangents
    dx, dscale = rms_norm_backward(
        rows(x), scale, flat(rstd), rows(dy), flat(drstd), **options
    )
    return dx.reshape(x.shape), dscale


def _group_norm_backward(operands, saved, cotangents, *, groups, eps, **options):
    del eps  # it is in the saved statistics
    return group_norm_backward(*operands, *saved, *cotangents, groups=groups, **options)


def _configs(target, x, *others, eps):
    del eps
    return dtype_reason(target, x, *others) or norm_configs(target, rows(x))


def _backward_configs(target, x, *others, eps):
    del eps
    return dtype_reason(target, x, *others) or norm_backward_configs(target, rows(x))


def _group_configs(target, x, *others, groups, eps):
    del eps
    reason = dtype_reason(target, x, *others)
    return reason or group_norm_configs(target, x, groups=groups)


def _group_backward_configs(target, x, *others, groups, eps):
    del eps
    reason = dtype_reason(target, x, *others)
    return reason or group_norm_backward_configs(target, x, groups=groups)


KERNELS = (
    Adapted(layer_norm_op, "forward", _layer_norm, _configs),
    Adapted(layer_norm_op, "backward", _layer_norm_backward, _backward_configs),
    Adapted(rms_norm_op, "forward", _rms_norm, _configs),
    Adapted(rms_norm_op, "backward", _rms_norm_backward, _backward_configs),
    Adapted(group_norm_op, "forward", group_kernel.group_norm, _group_configs),
    Adapted(group_norm_op, "backward", _group_norm_backward, _group_backward_configs),
)
