"""`tilejax.filter_jit`: `equinox.filter_jit` of a function gone through the passes."""

import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tilejax._jax.jaxprs import evaluate, is_tracer
from tilejax.errors import ArgumentError
from tilejax.front.arguments import mistake_of_filter_jit
from tilejax.front.call import Calling, naming_mistakes
from tilejax.front.stages import Lowered
from tilejax.front.tile import Plan, Tiled, plan_of, tile_call, tiled
from tilejax.passes.pipeline import Choice


def filter_jit(
    fun: Callable | None = None,
    *,
    target: str | None = None,
    passes: Choice = None,
    donate: Any = "none",
    **options: Any,
) -> Any:
    """Compile a function of any pytrees; a drop-in for `equinox.filter_jit`.

    All arrays in the arguments (and in `fun`, if it is a module) are traced, everything
    else is static.

    **Arguments:**

    - `fun`: A pure function or an Equinox module. Left out, a decorator is returned.
    - `target`, `passes`: See `tilejax.jit`.
    - `donate`: See `equinox.filter_jit`.
    - `options`: Passed on to `equinox.filter_jit`.

    **Returns:**

    What `equinox.filter_jit` returns, with `lower` and `tile` as `tilejax.jit` gives.

    **Raises:**

    As `tilejax.jit`.

    >>> import equinox as eqx, jax, jax.numpy as jnp, tilejax
    >>> model = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    >>> tilejax.filter_jit(lambda m, x: m(x))(model, jnp.ones(3)).shape
    (2,)
    """
    if fun is None:
        return partial(
            filter_jit, target=target, passes=passes, donate=donate, **options
        )
    if not callable(fun):
        raise ArgumentError(
            f"tilejax.filter_jit takes a function, not {type(fun).__name__} {fun!r}"
        )
    plan = plan_of(target, passes, eqx.is_array)
    inner = _Called(fun, plan) if _holds_arrays(fun) else tiled(fun, plan)
    return FilterJit(fun, plan, eqx.filter_jit(inner, donate=donate, **options))


class _Called(eqx.Module):
    """A module to be tiled, as a module, so that its arrays are traced too."""

    fun: Any
    plan: Plan = eqx.field(static=True)

    def __call__(self, *args, **kwargs):
        made, given, rebuild = tile_call(
            _call, (self.fun, *args), kwargs, self.plan, is_dynamic=is_tracer
        )
        return rebuild(evaluate(made.after, *given))


def _call(fun, *args, **kwargs):
    return fun(*args, **kwargs)


def _holds_arrays(fun) -> bool:
    return any(eqx.is_array(leaf) for leaf in jax.tree.leaves(fun))


class FilterJit(Calling):
    """A function compiled by `filter_jit`: call it, `lower` it or `tile` it."""

    def __init__(self, fun: Callable, plan: Plan, compiled: Callable):
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._plan = plan
        self._compiled = compiled

    def _mistake(self, error: Exception, args: tuple, kwargs: dict):
        return mistake_of_filter_jit(error, self._fun, args, kwargs)

    def __get__(self, instance, owner=None):
        """Bind a method, as a function does."""
        return self if instance is None else functools.partial(self, instance)

    @naming_mistakes
    def lower(self, /, *args, **kwargs) -> Lowered:
        """Lower for arguments such as these; see `tilejax.jit`."""
        stage = self._compiled.lower(*args, **kwargs)
        return Lowered(stage, lambda: self.tile(*args, **kwargs))

    @naming_mistakes
    def tile(self, /, *args, **kwargs) -> Tiled:
        """Trace and run the passes; the arrays may be `jax.ShapeDtypeStruct`s."""
        fun, given = self._fun, args
        if any(map(_is_arraylike, jax.tree.leaves(fun))):  # which are traced too
            fun, given = _call, (fun, *args)
        made, _, _ = tile_call(fun, given, kwargs, self._plan, is_dynamic=_is_arraylike)
        return replace(made, name=getattr(self._fun, "__name__", "fun"))


def _is_arraylike(x) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct | np.ndarray)
