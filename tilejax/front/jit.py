"""`tilejax.jit`: `jax.jit` of a function that the passes have gone through."""

import functools
import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from tilejax._jax import naming
from tilejax.errors import ArgumentError
from tilejax.front.arguments import mistake_of_jit
from tilejax.front.bucketed import Bucketed
from tilejax.front.call import Calling, naming_mistakes
from tilejax.front.stages import Lowered, Traced, last_of
from tilejax.front.tile import Plan, Tiled, plan_of, tiled
from tilejax.passes.pipeline import Choice


def jit(
    fun: Callable | None = None,
    *,
    target: str | None = None,
    passes: Choice = None,
    bucket: Any = None,
    axes: Any = None,
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
    - `bucket`: For sizes that calls may choose, by name, what they are padded to:
      `"pow2"`, multiples of a number, the sizes of a sequence, or what a function
      makes of a size. A program is then compiled for each bucket and not for each
      size; results are those of the real sizes, and `BucketError` is raised for an
      operation of which that cannot be known.
    - `axes`: The axes with those names, by argument: `{"x": ("batch", None, 3)}` or
      `{"x": "batch ..."}`, for all arrays in the argument.
    - `options`: All that `jax.jit` takes: `static_argnums`, `static_argnames`,
      `donate_argnums`, `donate_argnames`, `in_shardings`, `out_shardings`,
      `keep_unused`, `inline`, `compiler_options`, and so on.

    **Returns:**

    A `Jit`, to be used as what `jax.jit` returns; its `lower` and `trace` also know
    what the passes did (`f.lower(x).as_text("tiled")`), and `f.tile(x)` gives the
    programs before and after them.

    **Raises:**

    `TargetError` for an unknown target, `PassError` for an unknown pass,
    `ArgumentError` if `fun` cannot be called. A call raises `ArgumentError` (a
    `TypeError`) for what cannot be traced, and `StaticArgumentError` (a `ValueError`)
    for a static argument that cannot be hashed.

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
        return partial(
            jit, target=target, passes=passes, bucket=bucket, axes=axes, **options
        )
    if not callable(fun):
        raise ArgumentError(
            f"tilejax.jit: Expected a callable value, got {type(fun).__name__} "
            f"{fun!r}; options are given by keyword"
        )
    naming.check_callable(fun)
    if bucket is not None or axes is not None:
        inner = partial(jit, target=target, passes=passes)
        return Bucketed(fun, bucket, axes, inner, options)
    plan = plan_of(target, passes, donated=_donated(fun, options))
    return Jit(fun, plan, jax.jit(tiled(fun, plan), **options), options)


def _donated(fun: Callable, options: dict) -> tuple[int | str, ...]:
    """The arguments that callers give away, by place and by name."""
    places = _several(options.get("donate_argnums"))
    names = _several(options.get("donate_argnames"))
    parameters = _parameters(fun)
    named = [parameters.index(name) for name in names if name in parameters]
    placed = [parameters[i] for i in places if -len(parameters) <= i < len(parameters)]
    return tuple(dict.fromkeys((*places, *names, *named, *placed)))


def _parameters(fun: Callable) -> list[str]:
    try:
        return list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        return []


def _several(x) -> tuple:
    return () if x is None else (x,) if isinstance(x, int | str) else tuple(x)


class Jit(Calling):
    """A function compiled by `jit`: call it, `trace`, `lower` or `tile` it.

    An object of its own, since `functools.wraps` would copy what is set on JAX's into
    whatever wraps it, `jax.grad(f)` for one.
    """

    def __init__(self, fun: Callable, plan: Plan, jitted: Any, options: dict):
        functools.update_wrapper(self, fun, updated=())  # pyright: ignore
        own = getattr(fun, "__dict__", {})
        self.__dict__ |= {k: v for k, v in own.items() if not hasattr(self, k)}
        self._compiled = jitted
        self._fun, self._options = fun, options
        self._again = partial(_again, fun, plan, options)

    def _mistake(self, error: Exception, args: tuple, kwargs: dict):
        return mistake_of_jit(error, self._fun, self._options, args, kwargs)

    def __get__(self, instance, owner=None):
        """Bind a method, as a function does."""
        return self if instance is None else types.MethodType(self, instance)  # pyright: ignore

    def __repr__(self) -> str:
        return f"<tilejax.jit of {self.__wrapped__!r}>"  # pyright: ignore

    @naming_mistakes
    def trace(self, /, *args, **kwargs) -> Traced:
        """Trace for arguments such as these, as `jax.jit(f).trace`."""
        stage = self._compiled.trace(*args, **kwargs)
        return Traced(stage, lambda: self._again(args, kwargs))

    @naming_mistakes
    def lower(self, /, *args, **kwargs) -> Lowered:
        """Lower for arguments such as these, as `jax.jit(f).lower`."""
        stage = self._compiled.lower(*args, **kwargs)
        return Lowered(stage, lambda: self._again(args, kwargs))

    @naming_mistakes
    def eval_shape(self, /, *args, **kwargs):
        """Return the types of the results, as `jax.jit(f).eval_shape`."""
        return self._compiled.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget what was compiled, as `jax.jit(f).clear_cache`."""
        self._compiled.clear_cache()

    @naming_mistakes
    def tile(self, /, *args, **kwargs) -> Tiled:
        """Return the programs before and after the passes, and what each pass did."""
        return self._again(args, kwargs)


def _again(fun: Callable, plan: Plan, options: dict, args, kwargs) -> Tiled:
    """Trace anew, past JAX's caches, to see what the passes do."""

    def fresh(*args, **kwargs):
        return fun(*args, **kwargs)

    fresh.__wrapped__ = fun  # pyright: ignore
    fresh.__name__ = naming.name_of(fun)
    return last_of(
        lambda: jax.jit(tiled(fresh, plan), **options).trace(*args, **kwargs)
    )
