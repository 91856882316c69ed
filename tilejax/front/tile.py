"""Tracing a function, running the passes, and evaluating the result in its place."""

import inspect
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax

from tilejax import options as _options, targets
from tilejax._jax import jaxprs
from tilejax.passes import pipeline
from tilejax.passes.place import placing
from tilejax.passes.record import PassRecord


@dataclass(frozen=True)
class Tiled:
    """What the passes made of one traced function.

    **Arguments:**

    - `name`: the function's.
    - `before`, `after`: the program as traced and as it runs.
    - `passes`: what each pass did.
    """

    name: str
    before: Any
    after: Any
    passes: list[PassRecord]


_RECORDS: ContextVar[list[Tiled] | None] = ContextVar("records", default=None)


@contextmanager
def recording():
    """Collect a `Tiled` for each function that is traced inside, the outermost last."""
    records: list[Tiled] = []
    token = _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.reset(token)


# JAX's caches are keyed by the function, so that `jit(f)` anew is a cache hit.
_KNOWN: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def tiled(fun: Callable, *, target: str | None, passes: pipeline.Choice) -> Callable:
    """Return a function that traces `fun`, runs the passes and evaluates the result.

    It holds `fun` weakly: the caller keeps `fun` alive.
    """
    if target is not None:
        target = targets.get(target).name
    pipeline.check_choice(passes)
    choice = tuple(passes.items()) if isinstance(passes, dict) else passes
    choice = tuple(choice) if isinstance(choice, list) else choice
    try:
        known = _KNOWN.setdefault(fun, {})
        return known.setdefault((target, choice), _tiled(fun, target, passes))
    except TypeError:  # a callable that has no hash, or cannot be held weakly
        return _tiled(fun, target, passes, keep=fun)


def _tiled(fun: Callable, target, passes, keep: Callable | None = None) -> Callable:
    held = (lambda: keep) if keep is not None else weakref.ref(fun)

    def run(*args, **kwargs):
        inner = held()
        assert inner is not None
        if jax.config.jax_disable_jit:
            return inner(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        traced = [jaxprs.is_tracer(x) for x in leaves]
        given = [x for x, t in zip(leaves, traced, strict=True) if t]

        def on_traced(*values):
            there = iter(values)
            full = [
                next(there) if t else x for x, t in zip(leaves, traced, strict=True)
            ]
            args, kwargs = jax.tree.unflatten(tree, full)
            return inner(*args, **kwargs)

        _like(on_traced, inner)
        before, out_tree = jaxprs.trace(on_traced, *given)
        after = tile_program(before, target, passes, getattr(inner, "__name__", "?"))
        return jax.tree.unflatten(out_tree, jaxprs.evaluate(after, *given))

    _like(run, fun)
    try:
        run.__signature__ = inspect.signature(fun)  # pyright: ignore
    except (TypeError, ValueError):
        pass  # a builtin without a signature: JAX asks for none either
    return run


def _like(made: Callable, fun: Callable) -> None:
    """Give `made` the names of `fun`, but no reference to it."""
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        if hasattr(fun, name):
            setattr(made, name, getattr(fun, name))


def tile_program(before, target: str | None, passes: pipeline.Choice, name: str):
    """Run the passes over a program, and record them where somebody collects."""
    fast = _options.current().fast_math
    after, records = pipeline.run(before, passes, fast_math=fast)
    if target is not None:
        after = placing(target)(after)
    found = _RECORDS.get()
    if found is not None:
        found.append(Tiled(name, before, after, records))
    return after
