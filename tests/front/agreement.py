"""Whether `tilejax.jit` does what `jax.jit` does: values, types, structure, errors.

A case is a function of the `jit` to use. It returns a pytree of all that is to agree:
arrays, texts, types, numbers.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tilejax


def check_agreement(case: Callable[[Callable], Any], rtol: float | None = None) -> None:
    """Check that the case returns the same under both."""
    check_same(case(tilejax.jit), case(jax.jit), rtol=rtol)


def check_same(got: Any, want: Any, rtol: float | None = None) -> None:
    """Check values, dtypes, weak types, shardings and structure."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    paths = jax.tree_util.tree_leaves_with_path(want)
    for x, (path, y) in zip(jax.tree.leaves(got), paths, strict=True):
        where = jax.tree_util.keystr(path)
        assert _kind(x) == _kind(y), where
        if not isinstance(y, jax.Array):
            assert np.all(x == y), (where, x, y)
            continue
        if jnp.issubdtype(y.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        x, y = np.asarray(x), np.asarray(y)
        if not jnp.issubdtype(y.dtype, jnp.inexact):
            np.testing.assert_array_equal(x, y, where)
            continue
        tolerance = rtol or 16 * float(jnp.finfo(y.dtype).eps)
        wide = np.result_type(y.dtype, np.float32)
        scale = np.max(np.abs(y.astype(wide)), initial=0, where=np.isfinite(y))
        np.testing.assert_allclose(
            x.astype(wide),
            y.astype(wide),
            rtol=tolerance,
            atol=tolerance * scale,
            err_msg=where,
        )


def _kind(x: Any) -> Any:
    if isinstance(x, jax.Array):
        return x.dtype, x.shape, getattr(x, "weak_type", None), x.sharding
    return type(x)


def outcome(fn: Callable, *args, **kwargs) -> Any:
    """Return what `fn` returns, or the class of the error that it raises."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error).__name__


def counted(fn: Callable) -> tuple[Callable, list]:
    """Return `fn` and a list that grows by one whenever it runs in Python."""
    calls: list = []

    def counting(*args, **kwargs):
        calls.append(None)
        return fn(*args, **kwargs)

    return counting, calls
