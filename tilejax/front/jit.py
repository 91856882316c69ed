"""`tilejax.jit`: `jax.jit` of a function that the passes have gone through."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from tilejax._jax import naming
from tilejax.errors import ArgumentError
from tilejax.front.stages import Lowered, Traced, last_of
from tilejax.front.tile import Plan, plan_of, tiled
from tilejax.passes.pipeline import Choice


def jit(
    fun: Callable | None = None,
    *,
    target: str | None = None,
    passes: Choice = None,
    **options: Any,
) -> Any:
    """Compile a function of arrays; a drop-in for `jax.jit`.

    The function is traced to a jaxpr, the passes rewrite it and raise its heavy parts
    to tiled primitives, and what results is compiled by `jax.jit`.

    **Arguments:**

    - `fun`: A pure function of pytrees of arrays. Left out, a decorator is returned.
    - `target`: The name of the target to pick kernels for; None for the device that
      the program runs on.
    - `passes`: See `tilejax.passes.pipeline.run`; None for all of them.
    - `options`: All that `jax.jit` takes: `static_argnums`, `static_argnames`,
      `donate_argnums`, `donate_argnames`, `in_shardings`, `out_shardings`,
      `keep_unused`, `inline`, `compiler_options`, and so on.

    **Returns:**

    What `jax.jit` returns, whose `lower` and `trace` also know what the passes did:
    `f.lower(x).as_text("tiled")`; `f.tile(x)` gives the programs before and after.

    **Raises:**

    `TargetError` for an unknown target, `PassError` for an unknown pass,
    `ArgumentError` if `fun` cannot be called.

    >>> import jax.numpy as jnp, tilejax
    >>> @tilejax.jit
    ... def f(x, y):
    ...     return jnp.tanh(x @ y)
    >>> f(jnp.ones((2, 3)), jnp.ones((3, 4))).shape
    (2, 4)
    >>> "tiled_matmul" in f.lower(jnp.ones((2, 3)), jnp.ones((3, 4))).as_text("tiled")
    True
    """
    if fun is None:
        return partial(jit, target=target, passes=passes, **options)
    if not callable(fun):
        raise ArgumentError(
            f"tilejax.jit: Expected a callable value, got {type(fun).__name__} "
            f"{fun!r}; options are given by keyword"
        )
    naming.check_callable(fun)
    plan = plan_of(target, passes)
    jitted = jax.jit(tiled(fun, plan), **options)
    again = partial(_again, fun, plan, options)
    jitted.__wrapped__ = fun
    jitted.tile = lambda *args, **kwargs: again(args, kwargs)
    jitted.trace = _staged(jitted.trace, Traced, again)
    jitted.lower = _staged(jitted.lower, Lowered, again)
    return jitted


def _again(fun: Callable, plan: Plan, options: dict, args, kwargs):
    """Trace anew, past JAX's caches, to see what the passes do."""

    def fresh(*args, **kwargs):
        return fun(*args, **kwargs)

    fresh.__wrapped__ = fun  # pyright: ignore
    fresh.__name__ = naming.name_of(fun)
    return last_of(
        lambda: jax.jit(tiled(fresh, plan), **options).trace(*args, **kwargs)
    )


def _staged(stage: Callable, made: type, again: Callable) -> Callable:
    def run(*args, **kwargs):
        return made(stage(*args, **kwargs), lambda: again(args, kwargs))

    run.__doc__ = stage.__doc__
    run.__name__ = getattr(stage, "__name__", made.__name__)
    return run
