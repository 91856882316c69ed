"""`tilejax.explain`: what was done to a function, what runs it, and what it costs."""

import contextlib
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilejax import targets
from tilejax.front.counts import Counted, counted
from tilejax.front.filter_jit import filter_jit
from tilejax.front.tile import Tiled
from tilejax.ir import source, type_text
from tilejax.ir.work import work_of
from tilejax.options import current as options_in_force, options
from tilejax.passes.record import PassRecord


@dataclass(frozen=True)
class KernelRecord:
    """One heavy equation: what runs it, why, and what it costs.

    **Arguments:**

    - `primitive`: the operation; for what was not raised, JAX's primitive.
    - `part`: `"forward"`, `"tangent"` or `"backward"`.
    - `impl`: `"native"` (a kernel) or `"reference"` (StableHLO).
    - `config`: the kernel's config, or None.
    - `reason`: why this one.
    - `shapes`: operands as `f32[8,16]`.
    - `times`: how often it runs; None inside a `while`.
    - `flops`, `bytes`: of all its runs together (of one, inside a `while`).
    - `seconds`: modelled for the work as such, each array moved once: the least for
      whatever runs it; None where a figure of the target is unknown.
    - `at_least`: what the known figures alone make of it.
    - `kernel_seconds`, `reference_seconds`: modelled for one run of the kernel's best
      config and of the reference, with what is loaded again, launches and steps; None
      where no choice was made between them.
    - `assumed`: the figures that these two took for unknown ones of the target.
    - `bound`: what limits it by the model: compute, memory or launch.
    - `source`: the user's line.
    """

    primitive: str
    part: str
    impl: str
    config: Any
    reason: str
    shapes: tuple[str, ...]
    times: int | None
    flops: float
    bytes: float
    seconds: float | None
    at_least: float
    bound: str | None
    source: str | None
    kernel_seconds: float | None = None
    reference_seconds: float | None = None
    assumed: tuple[str, ...] = ()

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; `print` shows it as tables.

    **Arguments:**

    - `name`: the function's.
    - `target`: the target's name.
    - `passes`: a record for each run of a pass that did something.
    - `kernels`: a record for each heavy equation.
    """

    name: str
    target: str
    passes: Sequence[PassRecord]
    kernels: Sequence[KernelRecord]

    @property
    def seconds(self) -> float | None:
        """Sum of the modelled times; None where one is unknown."""
        times = [k.seconds for k in self.kernels]
        return None if None in times else sum(t for t in times if t is not None)

    def to_dict(self) -> dict:
        """Return all of it as plain data for JSON."""
        kernels = [{**asdict(k), "config": _plain(k.config)} for k in self.kernels]
        return {
            "name": self.name,
            "target": self.target,
            "seconds": self.seconds,
            "passes": [asdict(p) for p in self.passes],
            "kernels": kernels,
        }

    def __str__(self) -> str:
        from tilejax.report.explain_table import render

        return render(self)


def explain(
    fun: Callable, *args: Any, target: str | None = None, **kwargs: Any
) -> Explanation:
    """Tell what is done to a function and what runs it, without running it.

    **Arguments:**

    - `fun`: What `tilejax.jit` or `tilejax.filter_jit` made, or any function; then
      arrays in the arguments are traced and everything else is static.
    - `args`, `kwargs`: Its arguments; arrays may be `jax.ShapeDtypeStruct`s.
    - `target`: The target to pick kernels and model times for; None for the one that
      `fun` or `tilejax.options` names, else the device at hand. A CPU's memory
      bandwidth is measured for the times, once a process.

    **Returns:** an `Explanation`.

    **Raises:** `TargetError` for an unknown target, and what tracing `fun` raises.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    >>> why = tilejax.explain(lambda a, b: a @ b, x, x, target="tpu:v5e")
    >>> [(k.primitive, k.flops) for k in why.kernels]
    [('matmul', 268435456.0)]
    """
    wish = target or options_in_force().target
    record = targets.detect() if wish is None else targets.get(wish)
    # the passes ask what pays on this target
    with contextlib.nullcontext() if target is None else options(target=target):
        made: Tiled = _tile_of(fun)(*args, **kwargs)
    return Explanation(
        made.name,
        record.name,
        [p for p in made.passes if p.notes or p.before != p.after],
        kernel_records(made.after, record, overrides=target is not None),
    )


def _tile_of(fun: Callable) -> Callable:
    """The function's own `tile`, if TileJAX compiled it, else one made for it."""
    if isinstance(fun, types.MethodType):  # which has the attributes of its function
        own = getattr(fun.__func__, "tile", None)
        own = None if own is None else functools.partial(own, fun.__self__)
    else:
        own = getattr(fun, "tile", None)
    return own or filter_jit(fun).tile


def kernel_records(
    program, target: targets.Target, *, overrides: bool = False
) -> list[KernelRecord]:
    """Return a record for each heavy equation of a program, loops and all.

    **Arguments:** those of `tilejax.front.counts.counted`.
    """
    found = []
    for each in counted(program, target, overrides=overrides):
        if isinstance(each, Counted):
            found.append(_tiled_record(each))
        elif each.eqn.primitive.name in _HEAVY:
            found.append(_plain_record(each, target))
    return found


_HEAVY: Mapping[str, str] = {
    "dot_general": "not raised",
    "conv_general_dilated": "not raised",
    "ragged_dot": "no tiled primitive yet",
    "ragged_dot_general": "no tiled primitive yet",
    "gather": "no embedding lookup",
    "scatter": "no tiled primitive yet",
    "scatter-add": "no tiled primitive yet",
    "scatter_add": "no tiled primitive yet",
    "sort": "no tiled primitive yet",
    "top_k": "no tiled primitive yet",
    "fft": "no tiled primitive yet",
    "cumsum": "no tiled primitive yet",
    "reduce_window_sum": "no tiled primitive yet",
    "reduce_window_max": "no tiled primitive yet",
    "select_and_scatter_add": "no tiled primitive yet",
    "cholesky": "no tiled primitive yet",
    "lu": "no tiled primitive yet",
    "householder_product": "no tiled primitive yet",
    "triangular_solve": "no tiled primitive yet",
    "eigh": "no tiled primitive yet",
    "svd": "no tiled primitive yet",
    "pallas_call": "the user's own kernel",
    "ffi_call": "a foreign call",
    "custom_partitioning": "a foreign call",
}


def _tiled_record(each: Counted) -> KernelRecord:
    choice = each.choice
    record = _record(
        each.visit,
        each.op.name,
        each.part,
        choice.impl,
        choice.config,
        choice.reason,
        each.cost,
        each.target,
    )
    return replace(
        record,
        kernel_seconds=choice.seconds,
        reference_seconds=choice.reference_seconds,
        assumed=choice.assumed,
    )


def _plain_record(visit, target) -> KernelRecord:
    name = visit.eqn.primitive.name
    return _record(
        visit,
        name,
        "forward",
        "reference",
        None,
        _HEAVY[name],
        work_of(visit.eqn),
        target,
    )


def _record(visit, name, part, impl, config, reason, cost, target) -> KernelRecord:
    times = visit.trips or 1
    # Measured for the times here alone: no choice may hang on a measurement.
    estimate = targets.seconds(cost, targets.with_bandwidth(target))
    where = source(visit.eqn)
    return KernelRecord(
        name,
        part,
        impl,
        config,
        reason,
        tuple(type_text(v.aval) for v in visit.eqn.invars),
        visit.trips,
        cost.operations * times,
        cost.bytes * times,
        None if estimate.seconds is None else estimate.seconds * times,
        estimate.at_least * times,
        estimate.bound,
        None if where is None else str(where),
    )


def settings(config: Any) -> dict[str, Any]:
    """Return a config as names and plain values; one without names has the name "".

    >>> settings({"rows": 8}), settings(256)
    ({'rows': 8}, {'': 256})
    """
    if isinstance(config, Mapping):
        named = {str(key): value for key, value in config.items()}
    elif hasattr(config, "__dict__"):
        named = vars(config)
    else:
        named = {"": config}
    keep = int | float | str | None
    return {k: v if isinstance(v, keep) else str(v) for k, v in named.items()}


def _plain(config: Any) -> Any:
    if config is None:
        return None
    found = settings(config)
    return found[""] if list(found) == [""] else found
