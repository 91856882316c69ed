"""What `vmap` makes of each case: what one member after the other gives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import (
    Case,
    check_transform,
    exactly,
    loss_of,
    moving_types,
    pulled,
    types_of,
    weights_of,
    widened,
)
from tests.primitives.transforms import of_moving


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
        new = jnp if isinstance(x, jax.Array) else np
        full[i] = new.stack([x, new.flip(x), x], axis=axis)
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


def vmap_by_members(case: Case, which: tuple[int, ...], dtype: str) -> dict:
    """What `vmapped` should give: the reference of one member after the other."""
    full, axes = spread(widened(case.operands(dtype)), which)
    at, outs = case.differentiated(), types_of(case, "float64")
    members = [
        [x if a is None else np.take(x, m, a) for x, a in zip(full, axes, strict=True)]
        for m in range(3)
    ]
    weights = [weights_of((3, *x.shape), i) for i, x in enumerate(outs)]
    values, summed = zip(
        *(pulled(case, x, [w[m] for w in weights]) for m, x in enumerate(members)),
        strict=True,
    )
    found = {"vmap": _stacked(values)}
    if at and len(which) != 1:
        found["vmap of gradient"] = _stacked([pulled(case, x)[1] for x in members])
    if at:
        found["gradient of vmap"] = tuple(
            sum(grads) if axes[i] is None else np.stack(grads, axes[i])
            for i, grads in zip(at, zip(*summed, strict=True), strict=True)
        )
    return found


def _stacked(members) -> tuple:
    return tuple(np.stack(parts) for parts in zip(*members, strict=True))


def vmap_types(case: Case, which: tuple[int, ...], dtype: str) -> dict:
    """The types of what `vmapped` should give."""
    at = case.differentiated()
    found = {"vmap": _in_front((3,), types_of(case, dtype))}
    if at and len(which) != 1:
        found["vmap of gradient"] = moving_types(case, dtype, (3,))
    if at:
        full, _ = spread(case.operands(dtype), which)
        found["gradient of vmap"] = tuple(full[i] for i in at)
    return found


def _in_front(shape: tuple[int, ...], types) -> tuple:
    return tuple(jax.ShapeDtypeStruct((*shape, *x.shape), x.dtype) for x in types)


def _types_of_twice(case: Case, dtype: str) -> dict:
    at = case.batched()
    full, _ = spread(case.operands(dtype), at[len(at) // 2 :])
    full, _ = spread(full, (*at[: len(at) // 2], at[-1]))
    moving = tuple(full[i] for i in case.differentiated())
    found = {"vmap of vmap": _in_front((3, 3), types_of(case, dtype))}
    return {**found, "gradient": moving, "Hessian product": moving}


def check_vmap(case: Case, dtype: str) -> None:
    """Assert `vmap` over each operand, over all, and in two levels."""
    for which in subsets(case):
        want = vmap_by_members(case, which, dtype)
        types = vmap_types(case, which, dtype)
        check_transform(case, vmapped(which), dtype, want, types, factor=3)
    if not case.thin:
        want = exactly(case, vmapped_twice, dtype)
        types = _types_of_twice(case, dtype)
        check_transform(case, vmapped_twice, dtype, want, types, factor=10)
