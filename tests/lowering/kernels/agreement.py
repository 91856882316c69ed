"""Oracles in float64, and what it means to agree with them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.targets import ranked

# Of the largest value: a few roundings of the result's type, or of the sums behind it.
TOLERANCE = {"float64": 1e-13, "float32": 4e-6, "bfloat16": 2e-2, "float16": 3e-3}

DTYPES = ("float32", "bfloat16", "float16")


def widened(x: Any) -> Any:
    """A floating array in float64; anything else as it is."""
    if x is None or not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return np.asarray(x).astype(np.float64)


def exactly(f: Callable, *operands: Any) -> Any:
    """What a plain function gives in float64."""
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        return jax.tree.map(np.asarray, jax.jit(f)(*map(widened, operands)))


def exact_cotangents(f: Callable, cotangents: Any, *operands: Any) -> Sequence[Any]:
    """The cotangents of the floating operands of a plain function, in float64.

    `None` for the others. A cotangent of `None` stands for zeros.
    """
    return exactly_with_cotangents(f, cotangents, *operands)[1]


def exactly_with_cotangents(
    f: Callable, cotangents: Any, *operands: Any
) -> tuple[Any, Sequence[Any]]:
    """What `exactly` and `exact_cotangents` give, by one program."""
    floating = [
        i
        for i, x in enumerate(operands)
        if x is not None and jnp.issubdtype(x.dtype, jnp.floating)
    ]

    def pull(wide, wide_cotangents):
        def of_floating(*some):
            every = list(wide)
            for i, x in zip(floating, some, strict=True):
                every[i] = x
            return f(*every)

        out, vjp = jax.vjp(of_floating, *(wide[i] for i in floating))
        given = jax.tree.map(
            lambda o, c: jnp.zeros_like(o) if c is None else c,
            out,
            wide_cotangents,
            is_leaf=lambda x: x is None,
        )
        return out, vjp(given)

    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        out, found = jax.jit(pull)(
            list(map(widened, operands)), jax.tree.map(widened, cotangents)
        )
    every: list[Any] = [None] * len(operands)
    for i, x in zip(floating, found, strict=True):
        every[i] = np.asarray(x)
    return jax.tree.map(np.asarray, out), every


def assert_agree(got: Any, want: Any, dtype: Any, what: str = "") -> None:
    """Compare an array with its oracle: shape, NaN and infinities alike, values close.

    `dtype` is the least precise of the operands, which decides how close.
    """
    assert got.shape == want.shape, f"{what}: {got.shape} for {want.shape}"
    got = np.asarray(got).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), what)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], what)
    scale = np.max(np.abs(want[finite]), initial=1e-3)
    off = np.max(np.abs(got[finite] - want[finite]), initial=0.0)
    assert off <= TOLERANCE[jnp.dtype(dtype).name] * scale, (
        f"{what}: off by {off}, largest value {scale}"
    )


def tiles_of(target, tilings, most: int) -> list:
    """The configs of some tilings: the fastest, and an even choice of the others."""
    configs = [tiling.config for _, tiling in ranked(target, tilings)]
    assert configs
    return configs[:: -(-len(configs) // most)]
