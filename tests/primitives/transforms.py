"""What the shared tests do to each case: `(function, case)` to a function of operands.

The results are dictionaries, so that a failure names the transformation. Where several
ways must give one result, the reference takes one of them only: what `pulled` gives
serves first derivatives, `jax.checkpoint` and, member by member, `vmap`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import (
    Case,
    check_transform,
    compare,
    exactly,
    loss_of,
    moving_types,
    pulled,
    types_of,
    widened,
)


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


def forward(fun: Callable, case: Case) -> Callable:
    """The derivative along a direction."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        slopes = jax.jvp(of, moving, _directions(case, operands))[1]
        return [t for t in slopes if t.dtype != jax.dtypes.float0]

    return run


def first_derivatives(fun: Callable, case: Case) -> Callable:
    """Forward and reverse mode, and each operand's gradient alone."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        loss = loss_of(of)
        every = tuple(range(len(moving)))
        found = {
            "jvp": forward(fun, case)(*operands),
            "vjp": jax.grad(loss, every)(*moving),
        }
        if len(moving) > 1:
            found["vjp of one"] = [jax.grad(loss, i)(*moving) for i in every]
        return found

    return run


def forward_over_reverse(fun: Callable, case: Case) -> Callable:
    """The product with the Hessian of a loss."""

    def run(*operands):
        of, moving = of_moving(fun, case, operands)
        gradient = jax.grad(loss_of(of), tuple(range(len(moving))))
        return jax.jvp(gradient, tuple(moving), tuple(_directions(case, operands)))[1]

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
            "forward over reverse": forward_over_reverse(fun, case)(*operands),
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


def check_values(case: Case, dtype: str) -> None:
    """Assert values, eager and under `jit`, against the reference and NumPy."""
    operands = case.operands(dtype)
    want = pulled(case, operands)[0]
    check_transform(case, values, dtype, want, types_of(case, dtype))
    with jax.enable_x64(dtype == "float64"):
        eager = case.tested()(*operands)
    assert [x.dtype for x in eager] == [x.dtype for x in types_of(case, dtype)]
    compare(case, eager, want, dtype)
    if case.oracle is not None:
        want = case.oracle(*widened(operands), **case.params)
        compare(case, eager, want if isinstance(want, tuple) else (want,), dtype)


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
    floats = [x for x in types_of(case, dtype) if jnp.issubdtype(x.dtype, jnp.floating)]
    grads, of_grads = pulled(case, case.operands(dtype))[1], moving_types(case, dtype)
    want = {"jvp": exactly(case, forward, dtype), "vjp": grads}
    types = {"jvp": floats, "vjp": of_grads}
    if len(grads) > 1:
        want["vjp of one"], types["vjp of one"] = list(grads), list(of_grads)
    check_transform(case, first_derivatives, dtype, want, types, factor=3)


def check_second(case: Case, dtype: str) -> None:
    ways = ("forward over reverse", "reverse over reverse", "reverse over forward")
    want = dict.fromkeys(ways, exactly(case, forward_over_reverse, dtype))
    types = dict.fromkeys(ways, moving_types(case, dtype))
    check_transform(case, second_derivatives, dtype, want, types, factor=10)


def check_remat(case: Case, dtype: str) -> None:
    ways = ("nothing saved", "dots saved")
    want = dict.fromkeys(ways, pulled(case, case.operands(dtype))[1])
    types = dict.fromkeys(ways, moving_types(case, dtype))
    check_transform(case, remat, dtype, want, types, factor=3)
