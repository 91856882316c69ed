"""What the shared tests do to each case: `(function, case)` to a function of operands.

The results are dictionaries, so that a failure names the transformation.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case, check_transform, compare, loss_of, widened


def values(fun: Callable, case: Case) -> Callable:
    del case
    return fun


def _directions(case: Case, operands) -> list:
    """A direction an operand that moves, fixed by the operand's place and shape."""
    return [
        np.random.default_rng(7 + i)
        .normal(size=operands[i].shape)
        .astype(operands[i].dtype)
        for i in case.differentiated()
    ]


def of_moving(fun: Callable, case: Case, operands) -> tuple[Callable, list]:
    at = case.differentiated()

    def run(*moving):
        full = list(operands)
        for i, x in zip(at, moving, strict=True):
            full[i] = x
        return fun(*full)

    return run, [jnp.asarray(operands[i]) for i in at]


def first_derivatives(fun: Callable, case: Case) -> Callable:
    """Forward and reverse mode, and each operand's gradient alone."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        loss = loss_of(of)
        every = tuple(range(len(moving)))
        found = {
            "jvp": jax.jvp(of, moving, _directions(case, operands))[1],
            "vjp": jax.grad(loss, every)(*moving),
        }
        if len(moving) > 1:
            found["vjp of one"] = [jax.grad(loss, i)(*moving) for i in every]
        found["jvp"] = [t for t in found["jvp"] if t.dtype != jax.dtypes.float0]
        return found

    return run


def second_derivatives(fun: Callable, case: Case) -> Callable:
    """Products with the Hessian of a loss, by each order of the two modes."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        along = _directions(case, operands)
        loss = loss_of(of)
        every = tuple(range(len(moving)))
        gradient = jax.grad(loss, every)

        def slope(*moving):
            return jax.jvp(loss, moving, tuple(along))[1]

        def projected(*moving):
            found = gradient(*moving)
            return sum(
                jnp.sum((g * v).astype(jnp.promote_types(g.dtype, jnp.float32)))
                for g, v in zip(found, along, strict=True)
            )

        return {
            "forward over reverse": jax.jvp(gradient, tuple(moving), tuple(along))[1],
            "reverse over reverse": jax.grad(projected, every)(*moving),
            "reverse over forward": jax.grad(slope, every)(*moving),
        }

    return run


def remat(fun: Callable, case: Case) -> Callable:
    """The gradient under `jax.checkpoint`, saving nothing and saving dots."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        every = tuple(range(len(moving)))
        policy = jax.checkpoint_policies.dots_saveable
        return {
            "nothing saved": jax.grad(loss_of(jax.checkpoint(of)), every)(*moving),
            "dots saved": jax.grad(loss_of(jax.checkpoint(of, policy=policy)), every)(
                *moving
            ),
        }

    return run


def subsets(case: Case) -> list[tuple[int, ...]]:
    """Sets of operands to map: each alone, all, and all but the last.

    Of a thin case, one alone (which one depends on its name) and all.
    """
    at = case.batched()
    alone = [(i,) for i in at]
    if case.thin:
        alone = [alone[len(case.name) % len(alone)]]
    return list(dict.fromkeys([*alone, at, at[:-1] or at]))[: 2 if case.thin else None]


def spread(operands, which: tuple[int, ...]) -> tuple[list, tuple]:
    """Three members in each operand of `which`, along its first or last axis."""
    full, axes = list(operands), list[Any](None for _ in operands)
    for i in which:
        x = operands[i]
        axis = 0 if i % 2 == 0 else x.ndim
        full[i] = jnp.stack([x, jnp.flip(x), x], axis=axis)
        axes[i] = axis
    return full, tuple(axes)


def vmapped(which: tuple[int, ...]) -> Callable:
    """Values and gradients with `vmap` inside and outside, over some operands."""

    def transform(fun: Callable, case: Case) -> Callable:
        def run(*operands):
            full, axes = spread(operands, which)
            many, at = jax.vmap(fun, in_axes=axes), case.differentiated()
            found = {"vmap": many(*full)}
            if at and len(which) != 1:
                one = jax.vmap(jax.grad(loss_of(fun), at), in_axes=axes)
                found["vmap of gradient"] = one(*full)
            if at:
                found["gradient of vmap"] = jax.grad(loss_of(many), at)(*full)
            return found

        return run

    return transform


def vmapped_twice(fun: Callable, case: Case) -> Callable:
    """Two levels, no operand in both but the last; and a Hessian product under them."""

    def run(*operands):
        at = case.batched()
        full, inner = spread(operands, at[len(at) // 2 :])
        full, outer = spread(full, (*at[: len(at) // 2], at[-1]))
        many = jax.vmap(jax.vmap(fun, in_axes=inner), in_axes=outer)
        of, moving = of_moving(many, case, full)
        found = {"vmap of vmap": many(*full)}
        if moving:
            gradient = jax.grad(loss_of(of), tuple(range(len(moving))))
            along = tuple(jnp.cos(x) for x in moving)
            found["gradient"], found["Hessian product"] = jax.jvp(
                gradient, tuple(moving), along
            )
        return found

    return run


def check_vmap(case: Case, dtype: str) -> None:
    """Assert `vmap` over each operand, over all, and in two levels."""
    for which in subsets(case):
        check_transform(case, vmapped(which), dtype, factor=3)
    if not case.thin:
        check_transform(case, vmapped_twice, dtype, factor=10)


def check_values(case: Case, dtype: str) -> None:
    """Assert values: eager, under `jit`, against NumPy, and with NaN and infinities."""
    check_transform(case, values, dtype, jit=False)
    check_transform(case, values, dtype)
    if case.oracle is not None:
        operands = case.operands(dtype)
        with jax.enable_x64(dtype == "float64"):
            got = case.tested()(*operands)
        want = case.oracle(*widened(operands), **case.params)
        compare(case, got, want if isinstance(want, tuple) else (want,), dtype)


def check_special(case: Case) -> None:
    """Assert that NaN and infinities spread from each operand as in the reference."""
    clean = case.operands("float32")
    tested, expected = jax.jit(case.tested()), jax.jit(case.expected())
    for at in case.differentiated():
        for value in (np.nan, np.inf, -np.inf):
            operands = [np.array(x) for x in clean]
            if operands[at].size == 0:
                continue
            operands[at].reshape(-1)[operands[at].size // 2] = value
            compare(case, tested(*operands), expected(*operands), "float32")


def check_first(case: Case, dtype: str) -> None:
    check_transform(case, first_derivatives, dtype, factor=3)


def check_second(case: Case, dtype: str) -> None:
    check_transform(case, second_derivatives, dtype, factor=10)


def check_remat(case: Case, dtype: str) -> None:
    check_transform(case, remat, dtype, factor=3)
