"""Tracing a function, running the passes, and evaluating the result in its place."""

import inspect
import weakref
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax

from tilejax import targets
from tilejax._jax import jaxprs, naming
from tilejax.lowering import tpu as tpu  # which registers its kernels
from tilejax.lowering.cpu import kernels as kernels  # and the same for the CPU
from tilejax.lowering.modelled import modelled
from tilejax.options import current as options_in_force
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


@dataclass(frozen=True)
class Plan:
    """How a function is to be tiled; made by `plan_of`."""

    target: str | None = None
    passes: Any = None
    is_array: Callable[[Any], bool] | None = None
    donated: tuple[int | str, ...] = ()


def plan_of(
    target: str | None,
    passes: pipeline.Choice,
    is_array: Callable[[Any], bool] | None = None,
    donated: tuple[int | str, ...] = (),
) -> Plan:
    """Check the choices and make a plan of them.

    **Arguments:**

    - `target`, `passes`: as `tilejax.jit` takes them.
    - `is_array`: which leaves of the result are arrays; the others are returned as they
      are. None: all must be.
    - `donated`: the arguments that the caller gives away, by place or name.

    **Raises:** `TargetError`, `PassError`.
    """
    pipeline.check_choice(passes)
    name = None if target is None else targets.get(target).name
    return Plan(name, _hashable(passes), is_array, donated)


def tiled(fun: Callable, plan: Plan) -> Callable:
    """Return a function that traces `fun`, runs the passes and evaluates the result.

    It may hold `fun` weakly: the caller keeps `fun` alive.
    """
    try:
        known = _KNOWN.setdefault(fun, {})
    except TypeError:  # it has no hash, or cannot be held weakly
        return _tiled(fun, plan, lambda: fun)
    if type(fun).__hash__ is object.__hash__:
        return known.setdefault(plan, _tiled(fun, plan, weakref.ref(fun)))
    # An equal object may be the key, as of methods, and it may go before this one.
    found = known.get(plan, lambda: None)()
    if found is None:
        found = _tiled(fun, plan, lambda: fun)
        known[plan] = weakref.ref(found)
    return found


def _hashable(passes: pipeline.Choice):
    if isinstance(passes, Mapping):
        return frozenset(passes.items())
    return tuple(passes) if isinstance(passes, list) else passes


def _tiled(fun: Callable, plan: Plan, held: Callable) -> Callable:
    def run(*args, **kwargs):
        inner = held()
        assert inner is not None
        if jax.config.jax_disable_jit:  # pyright: ignore
            return inner(*args, **kwargs)
        made, given, rebuild = tile_call(
            inner, args, kwargs, plan, is_dynamic=jaxprs.is_tracer
        )
        return rebuild(jaxprs.evaluate(made.after, *given))

    naming.like(run, fun)
    try:
        run.__signature__ = inspect.signature(fun)  # pyright: ignore
    except (TypeError, ValueError):
        # JAX is to find none either; Equinox needs one.
        anything = inspect.signature(lambda *args, **kwargs: None)
        run.__signature__ = () if plan.is_array is None else anything  # pyright: ignore
    return run


@dataclass(frozen=True)
class _Static:
    """An argument without dynamic leaves; it reaches the function as it is."""

    value: Any


def _hide_static(args: tuple, kwargs: dict, is_dynamic: Callable) -> tuple[tuple, dict]:
    def hidden(arg):
        return arg if any(map(is_dynamic, jax.tree.leaves(arg))) else _Static(arg)

    return tuple(map(hidden, args)), {k: hidden(v) for k, v in kwargs.items()}


def _shown(arg):
    return arg.value if isinstance(arg, _Static) else arg


def tile_call(
    fun: Callable, args: tuple, kwargs: dict, plan: Plan, is_dynamic: Callable
) -> tuple[Tiled, list, Callable]:
    """Trace one call of `fun` and run the passes over it.

    **Arguments:**

    - `is_dynamic`: which leaves of the arguments are traced; the others are static.

    **Returns:**

    What was made, the dynamic leaves, and a function from the program's outputs to
    what `fun` returns.
    """
    args, kwargs = _hide_static(args, kwargs, is_dynamic)
    leaves, tree = jax.tree.flatten((args, kwargs))
    dynamic = [is_dynamic(x) for x in leaves]
    given = [x for x, d in zip(leaves, dynamic, strict=True) if d]
    gone = [g for g, d in zip(_donated(args, kwargs, plan), dynamic, strict=True) if d]
    static_outs: list = []

    def on_dynamic(*values):
        there = iter(values)
        full = [next(there) if d else x for x, d in zip(leaves, dynamic, strict=True)]
        args, kwargs = jax.tree.unflatten(tree, full)
        kwargs = {name: _shown(arg) for name, arg in kwargs.items()}
        out = fun(*map(_shown, args), **kwargs)
        if plan.is_array is None:
            return out
        flat, out_tree = jax.tree.flatten(out)
        arrays = [plan.is_array(x) for x in flat]
        kept = [None if a else x for x, a in zip(flat, arrays, strict=True)]
        static_outs[:] = [arrays, kept, out_tree]
        return [x for x, a in zip(flat, arrays, strict=True) if a]

    naming.name_arguments(on_dynamic, fun, args, kwargs, dynamic)
    before, out_tree = jaxprs.trace(on_dynamic, *given)

    def rebuild(outs):
        if plan.is_array is None:
            return jax.tree.unflatten(out_tree, outs)
        arrays, kept, full_tree = static_outs
        there = iter(outs)
        full = [next(there) if a else x for x, a in zip(kept, arrays, strict=True)]
        return jax.tree.unflatten(full_tree, full)

    donated = frozenset(i for i, g in enumerate(gone) if g)
    return _tile(before, plan, naming.name_of(fun), donated), given, rebuild


def _donated(args: tuple, kwargs: dict, plan: Plan) -> list[bool]:
    """Say of each leaf of the arguments whether the caller gives it away."""

    def marked(arg, *names):
        gone = any(name in plan.donated for name in names)
        return jax.tree.map(lambda _: gone, arg)

    count = len(args)
    of_args = tuple(marked(arg, i, i - count) for i, arg in enumerate(args))
    of_kwargs = {name: marked(arg, name) for name, arg in kwargs.items()}
    return jax.tree.leaves((of_args, of_kwargs))


def _tile(before, plan: Plan, name: str, donated: frozenset[int]) -> Tiled:
    """Run the passes over a program, and record them where somebody collects."""
    passes = dict(plan.passes) if isinstance(plan.passes, frozenset) else plan.passes
    wish = options_in_force()
    if wish.target is not None:
        targets.get(wish.target)  # which raises where there is none
    after, records = pipeline.run(
        before,
        passes,
        fast_math=wish.fast_math,
        seconds=modelled(plan.target or wish.target),
        donated=donated,
    )
    if plan.target is not None:
        after = placing(plan.target)(after)
    made = Tiled(name, before, after, records)
    found = _RECORDS.get()
    if found is not None:
        found.append(made)
    return made
