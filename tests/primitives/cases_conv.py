"""Cases of convolution in one, two and three dimensions."""

import jax
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.conv import conv, conv_general_dilated
from tilejax.primitives.conv_transpose import conv_transpose


def _normal(*shapes):
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def _general(name, shapes, **params):
    more = {k: params.pop(k) for k in ("layouts", "local", "thin") if k in params}
    return Case(
        f"conv {name}",
        conv_general_dilated,
        jax.lax.conv_general_dilated,
        _normal(*shapes),
        params=params,
        tolerance={"float16": 1e-2},
        **more,
    )


def _loops(x, w, **params):
    """Every product by itself, features last."""
    del params
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), w.shape[:2], (1, 2)
    )
    return np.einsum("nxycij,ijco->nxyo", windows, w)


def _same(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _transposed(x, w):
    return jax.lax.conv_transpose(x, w, (2,), "SAME")


CASES = [
    Case(
        "conv of images",
        conv,
        _same,
        _normal((8, 5, 4, 2), (3, 3, 2, 4)),
        oracle=_loops,
        layouts=(
            (("x", None, None, None), (None, None, None, None)),
            ((None, None, None, None), (None, None, None, "y")),
            (("x", None, None, "y"), (None, None, "y", None)),
        ),
        local=(0, 1),
    ),
    _general(
        "in groups",
        ((4, 7, 6, 2), (3, 2, 1, 4)),
        window_strides=(2, 1),
        padding=((1, 2), (-1, 1)),
        lhs_dilation=(1, 2),
        rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
        layouts=((("x", None, None, None), (None,) * 4),),
    ),
    _general(
        "of batches in groups",
        ((4, 3, 5), (4, 3, 2)),
        window_strides=(1,),
        padding="VALID",
        batch_group_count=2,
    ),
    _general(
        "with features in front",
        ((4, 4, 4, 3, 2), (4, 1, 2, 2, 1)),
        window_strides=(1, 1, 1),
        padding="SAME",
        feature_group_count=4,
        layouts=((("x", None, None, None, None), (None,) * 5),),
    ),
    Case(
        "conv transposed",
        lambda x, w: conv_transpose(x, w, strides=2),
        _transposed,
        _normal((2, 5, 3), (3, 3, 2)),
        tolerance={"float16": 1e-2},
    ),
    _general(
        "without space", ((3, 2), (4, 2)), window_strides=(), padding="VALID", thin=True
    ),
    _general(
        "of ones",
        ((1, 1, 1), (1, 1, 1)),
        window_strides=(1,),
        padding="SAME",
        thin=True,
    ),
    _general(
        "of no images",
        ((0, 2, 5), (3, 2, 2)),
        window_strides=(1,),
        padding="SAME",
        thin=True,
    ),
    _general(
        "of a window that does not fit",
        ((2, 1, 2), (3, 1, 5)),
        window_strides=(1,),
        padding="VALID",
        thin=True,
    ),
]
