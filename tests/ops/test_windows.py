"""Convolutions and pooling against loops over windows."""

import itertools

import jax
import numpy as np
import pytest

from tests.ops.samples import arrays
from tilejax import ops

pytestmark = pytest.mark.usefixtures("quick_to_compile")

STRIDES = [1, 2, 3]


def _pads(size, window, stride, padding):
    if padding == "VALID":
        return (0, 0)
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return (total // 2, total - total // 2)


def _windows(x, window, stride, padding, fill):
    """Yield an index of the result and the window there; features are last."""
    space = x.shape[1:-1]
    pads = [_pads(s, w, stride, padding) for s, w in zip(space, window, strict=True)]
    x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    counts = [(s - w) // stride + 1 for s, w in zip(x.shape[1:-1], window, strict=True)]
    for at in itertools.product(*map(range, counts)):
        cut = tuple(
            slice(i * stride, i * stride + w) for i, w in zip(at, window, strict=True)
        )
        yield counts, at, x[(slice(None), *cut, slice(None))]


def _collected(windows, of, batch, features):
    found = None
    for counts, at, window in windows:
        if found is None:
            found = np.zeros((batch, *counts, features), np.float32)
        found[(slice(None), *at)] = of(window)
    assert found is not None
    return found


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_sum_over_windows(rank, stride, padding, rng):
    sizes, window = (7, 6, 5)[:rank], (3, 2, 3)[:rank]
    x = rng.standard_normal((2, *sizes, 3)).astype(np.float32)
    kernel = rng.standard_normal((*window, 3, 4)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    axes = list(range(1, rank + 2)), list(range(rank + 1))
    wanted = bias + _collected(
        _windows(x, window, stride, padding, 0.0),
        lambda w: np.tensordot(w, kernel, axes),
        2,
        4,
    )
    op = getattr(ops, f"conv{rank}d")
    found = op(x, kernel, bias, stride=stride, padding=padding)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    layout = "N" + "C" + "DHW"[3 - rank :]
    found = op(
        np.moveaxis(x, -1, 1),
        np.moveaxis(kernel, (-1, -2), (0, 1)),
        bias,
        stride=stride,
        padding=padding,
        layout=layout if rank > 1 else "NCW",
    )
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", STRIDES)
def test_pooling_chooses_and_averages_over_windows(stride, padding, rng):
    (x,) = arrays("f32[2,7,6,3]", rng)

    def pooled(of, fill):
        windows = _windows(x, (3, 2), stride, padding, fill)
        return _collected(windows, of, 2, 3)

    params = {"window": (3, 2), "stride": stride, "padding": padding}
    largest = pooled(lambda w: np.nanmax(w, (1, 2)), np.nan)
    np.testing.assert_array_equal(ops.max_pool(x, **params), largest)
    average = pooled(lambda w: np.nanmean(w, (1, 2)), np.nan)
    np.testing.assert_allclose(ops.average_pool(x, **params), average, rtol=1e-5)
    first = ops.average_pool(np.moveaxis(x, -1, 1), channels_last=False, **params)
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), average, rtol=1e-5)
    counted = pooled(lambda w: np.mean(w, (1, 2)), 0.0)
    np.testing.assert_allclose(
        ops.average_pool(x, count_padding=True, **params), counted, rtol=1e-5, atol=1e-6
    )


def test_a_transposed_convolution_undoes_the_stride(rng):
    x, kernel = arrays("f32[1,3,1] f32[2,1,1]", rng)
    wanted = np.zeros((1, 6, 1), np.float32)
    for i in range(3):
        wanted[0, 2 * i : 2 * i + 2, 0] = x[0, i, 0] * kernel[::-1, 0, 0]
    found = ops.conv1d_transpose(x, kernel, np.ones(1, np.float32), stride=2)
    np.testing.assert_allclose(found, wanted + 1, rtol=1e-5)


def test_group_norm_normalises_groups(rng):
    (x,) = arrays("f32[2,5,6]", rng)
    parts = x.reshape(2, 5, 3, 2)
    centred = parts - parts.mean((1, 3), keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + 1e-5)
    found = ops.group_norm(x, groups=3)
    np.testing.assert_allclose(found, wanted.reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_dropout_drops_the_share_and_keeps_the_mean():

    x = np.ones((100, 100), np.float32)
    y = np.asarray(ops.dropout(x, jax.random.key(0), rate=0.25))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert ops.dropout(x, rate=0.25) is x
