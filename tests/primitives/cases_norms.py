"""Cases of layer, RMS and group norm."""

import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.group_norm import group_norm
from tilejax.primitives.norms import layer_norm, rms_norm


def _make(*shape, rows, channels=-1):
    def make(rng):
        size = shape[channels]
        found = [rng.uniform(0.5, 1.5, size) for _ in range(rows)]
        return [rng.normal(size=shape) * 2 + 1, *found]

    return make


def _wide(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _finish(normal, x, scale, bias):
    if scale is not None:
        normal = normal * _wide(scale)
    if bias is not None:
        normal = normal + _wide(bias)
    return normal.astype(x.dtype)


def _layer(x, scale=None, bias=None, eps=1e-5):
    wide = _wide(x)
    centred = wide - jnp.mean(wide, -1, keepdims=True)
    spread = jnp.mean(jnp.square(centred), -1, keepdims=True) + eps
    return _finish(centred / jnp.sqrt(spread), x, scale, bias)


def _rms(x, scale=None, eps=1e-6):
    wide = _wide(x)
    size = jnp.sqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + eps)
    return _finish(wide / size, x, scale, None)


def _group(x, scale=None, bias=None, *, groups, eps=1e-5, channel_axis=-1):
    if channel_axis != -1:
        moved = jnp.moveaxis(x, channel_axis, -1)
        out = _group(moved, scale, bias, groups=groups, eps=eps)
        return jnp.moveaxis(out, -1, channel_axis)
    wide = _wide(x).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    spread = jnp.var(wide, axes, keepdims=True) + eps
    normal = (wide - jnp.mean(wide, axes, keepdims=True)) / jnp.sqrt(spread)
    return _finish(normal.reshape(x.shape), x, scale, bias)


def _layer_oracle(x, scale, bias, eps=1e-5):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * scale + bias


def _rms_oracle(x, scale, eps=1e-6):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


_WHOLE = (None,)

CASES = [
    Case(
        "norms layer",
        layer_norm,
        _layer,
        _make(8, 6, rows=2),
        oracle=_layer_oracle,
        layouts=(
            (("x", None), _WHOLE, _WHOLE),
            ((("x", "y"), None), _WHOLE, _WHOLE),
            ((None, "y"), ("y",), ("y",)),
        ),
        local=(0, 1),
        # the mean and the spread of the cotangent are not summed one after the other
        fewer={
            (2, kind, "gradient"): ({"all-reduce": 3}, {"all-reduce": 4})
            for kind in ("auto", "explicit")
        },
    ),
    Case("norms layer of scale", layer_norm, _layer, _make(3, 5, rows=1)),
    Case(
        "norms layer alone",
        layer_norm,
        _layer,
        _make(4, 2, 5, rows=0),
        params={"eps": 1e-2},
        layouts=((("x", "y", None),),),
    ),
    Case(
        "norms rms",
        rms_norm,
        _rms,
        _make(8, 6, rows=1),
        oracle=_rms_oracle,
        layouts=((("x", None), _WHOLE), ((None, "y"), ("y",))),
        local=(0,),
    ),
    Case("norms rms alone", rms_norm, _rms, _make(2, 3, 5, rows=0), thin=True),
    Case(
        "norms group",
        group_norm,
        _group,
        _make(4, 3, 2, 6, rows=2),
        params={"groups": 2},
        layouts=((("x", None, None, None), _WHOLE, _WHOLE),),
    ),
    Case(
        "norms group channels first",
        group_norm,
        _group,
        _make(2, 6, 5, rows=2, channels=1),
        params={"groups": 3, "channel_axis": 1},
        thin=True,
    ),
    Case("norms layer of a vector", layer_norm, _layer, _make(7, rows=2), thin=True),
    Case("norms layer of no rows", layer_norm, _layer, _make(0, 5, rows=2), thin=True),
    Case("norms layer of one", layer_norm, _layer, _make(3, 1, rows=2), thin=True),
    Case(
        "norms group of no positions",
        group_norm,
        _group,
        _make(2, 0, 4, rows=2),
        params={"groups": 2},
        thin=True,
    ),
]
