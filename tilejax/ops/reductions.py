"""Operations that sum up, choose or accumulate along axes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.errors import ShapeError
from tilejax.ops.checks import all_of, has_axes, kinds, ranks, typed
from tilejax.ops.registry import Check, Operation, Sample, declare as _declare
from tilejax.primitives.sizes import show

declare = partial(_declare, family="reductions")


def _reduction(
    name: str,
    function: Callable,
    doc: str,
    oracle: Callable,
    kind: str = "number",
    check: Check | None = None,
    sample: str = "f32[2,3,4]",
) -> Operation:
    checks = [kinds(kind, "x"), has_axes(), *([check] if check else [])]
    return declare(
        name,
        function,
        f"{doc} Over all axes, or those of `axis`.",
        check=all_of(*checks),
        oracle=oracle,
        samples=[
            sample,
            Sample(sample, {"axis": -1}),
            Sample(sample, {"axis": (0, 2), "keepdims": True}),
        ],
    )


def _along(name: str, function: Callable, doc: str, oracle: Callable) -> Operation:
    """Declare what takes one axis, and gives as many elements or one less axis."""
    return declare(
        name,
        function,
        doc,
        check=all_of(ranks("x", 1), has_axes()),
        oracle=oracle,
        samples=[Sample("f32[2,3]", {"axis": 0}), Sample("f32[2,3]", {"axis": -1})],
    )


def _not_empty(name: str, given) -> None:
    aval, axis = typed(given["x"]), given.get("axis")
    axes = (
        range(aval.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    )
    if 0 in [aval.shape[d] for d in axes]:
        raise ShapeError(
            f"{name}: x is {show(aval)}, with no elements along axis={axis}; there is "
            "none to choose"
        )


def _sum(x, *, axis=None, keepdims=False, dtype=None):
    return jnp.sum(x, axis, dtype, keepdims=keepdims)


def _prod(x, *, axis=None, keepdims=False, dtype=None):
    return jnp.prod(x, axis, dtype, keepdims=keepdims)


def _mean(x, *, axis=None, keepdims=False, dtype=None):
    return jnp.mean(x, axis, dtype, keepdims=keepdims)


def _variance(x, *, axis=None, keepdims=False, ddof=0):
    return jnp.var(x, axis, ddof=ddof, keepdims=keepdims)


def _deviation(x, *, axis=None, keepdims=False, ddof=0):
    return jnp.std(x, axis, ddof=ddof, keepdims=keepdims)


def _plain(function: Callable) -> Callable:
    def run(x, *, axis: Any = None, keepdims: bool = False):
        return function(x, axis=axis, keepdims=keepdims)

    return run


def _one_axis(function: Callable) -> Callable:
    def run(x, *, axis: int = -1):
        return function(x, axis=axis)

    return run


def _logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis, keepdims=keepdims))


sum = _reduction("sum", _sum, "Add up.", np.sum)
prod = _reduction("prod", _prod, "Multiply together.", np.prod)
mean = _reduction("mean", _mean, "Average.", np.mean)
variance = _reduction("variance", _variance, "Average the squared deviation.", np.var)
deviation = _reduction("deviation", _deviation, "Take the standard deviation.", np.std)
max = _reduction("max", _plain(jnp.max), "Take the largest.", np.max, check=_not_empty)
min = _reduction("min", _plain(jnp.min), "Take the smallest.", np.min, check=_not_empty)
all = _reduction(
    "all", _plain(jnp.all), "Say whether all are true.", np.all, sample="bool[2,3,4]"
)
any = _reduction(
    "any", _plain(jnp.any), "Say whether one is true.", np.any, sample="bool[2,3,4]"
)
logsumexp = _reduction(
    "logsumexp",
    _plain(jax.nn.logsumexp),
    "Take the logarithm of the sum of exponentials.",
    _logsumexp,
)
argmax = _along("argmax", _one_axis(jnp.argmax), "Find the largest.", np.argmax)
argmin = _along("argmin", _one_axis(jnp.argmin), "Find the smallest.", np.argmin)
cumsum = _along("cumsum", _one_axis(jnp.cumsum), "Add up so far.", np.cumsum)
cumprod = _along("cumprod", _one_axis(jnp.cumprod), "Multiply so far.", np.cumprod)
cummax = _along(
    "cummax",
    _one_axis(lambda x, axis: jax.lax.cummax(x, axis % jnp.ndim(x))),
    "Take the largest so far.",
    np.maximum.accumulate,
)
sort = _along("sort", _one_axis(jnp.sort), "Put in ascending order.", np.sort)
argsort = _along(
    "argsort", _one_axis(jnp.argsort), "Find the ascending order.", np.argsort
)
