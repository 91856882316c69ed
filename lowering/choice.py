"""Picking a config of a kernel, or the reference, by modelled seconds.

Nothing is measured and nothing is random: the same types on the same target give the
same choice in every process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax._jax.jaxprs import trace
from tilejax.lowering.fusion import seconds_of
from tilejax.primitives import parts
from tilejax.primitives.call import Call
from tilejax.primitives.op import Op
from tilejax.targets import Target, Tiling, assumed, call_seconds, dtype_key, ranked

# Sums of the same terms in another order.
_SAME = 1 + 1e-9


@dataclass(frozen=True)
class Choice:
    """What runs an equation, and why.

    **Arguments:**

    - `impl`: `"native"` (a kernel) or `"reference"`.
    - `reason`: the why, with the modelled times where there are any.
    - `kernel`, `config`: None for the reference.
    - `seconds`, `reference_seconds`: modelled for the best config of the kernel and for
      the reference, one member of a `vmap`; None where no kernel is legal or it states
      no work.
    - `assumed`: the figures that the model took for unknown ones of the target.
    """

    impl: str
    reason: str
    kernel: Any = None
    config: Any = None
    seconds: float | None = None
    reference_seconds: float | None = None
    assumed: tuple[str, ...] = ()


def pick(
    kernel: Any,
    target: Target,
    avals: Sequence,
    call: Call,
    params: Mapping,
    *,
    always: bool = False,
) -> Choice:
    """Pick between a kernel's configs and the reference.

    **Arguments:**

    - `kernel`: a `lowering.rules.Kernel`.
    - `target`, `avals`, `call`, `params`: as `lowering.rules.choose` takes them.
    - `always`: take the kernel wherever it is legal.
    """
    types = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals)
    bare = replace(call, levels=(), target=None)
    named = tuple(params.items())
    return _pick(kernel, target, types, bare, named, always, _p.settings())


@lru_cache(maxsize=4096)
def _pick(kernel, target, types, call, params, always, settings) -> Choice:
    del settings  # part of the key
    op: Op = kernel.op
    operands = call.expand(types[: sum(call.given)])
    floor = call_seconds(target)
    if floor and kernel.modelled and not always:
        reference = _reference_seconds(op, kernel.part, types, call, params, target)
        if reference <= floor:
            why = f"reference: {_time(reference)} modelled, less than a kernel's call"
            return Choice("reference", why, reference_seconds=reference)
    found = kernel.configs(target, *operands, **op.params(dict(params)))
    if isinstance(found, str):
        return Choice("reference", found)
    found = list(found)
    if not found:
        return Choice("reference", "no config fits the target's memory")
    if not all(isinstance(each, Tiling) for each in found):
        return Choice(
            "native", f"first of {len(found)} legal configs", kernel, found[0]
        )
    if target.code:
        does = f"{kernel.part}.{dtype_key(_dtype(types))[0]}"
        found = [replace(t, code=f"{t.code or op.name}.{does}") for t in found]
    best_seconds, best = ranked(target, found)[0]
    reference = _reference_seconds(op, kernel.part, types, call, params, target)
    native = always or best_seconds <= reference * _SAME
    return Choice(
        "native" if native else "reference",
        _reason(native, always, best_seconds, reference, len(found)),
        kernel if native else None,
        best.config if native else None,
        best_seconds,
        reference,
        _assumptions(target, best),
    )


def _reference_seconds(op, part, types, call, params, target) -> float:
    with _p.neutral_mesh():
        program, _ = trace(parts.function(op, part, call, dict(params)), *types)
    return seconds_of(program, target)


def _dtype(types: Sequence) -> Any:
    """What is computed with: that of the first floating operand, if there is one."""
    floats = [t.dtype for t in types if jnp.issubdtype(t.dtype, jnp.floating)]
    return (floats or [t.dtype for t in types])[0]


def _reason(native, always, best: float, reference: float, count: int) -> str:
    one, two = f"native: {_time(best)}", f"reference {_time(reference)}"
    if not native:
        one, two = f"reference: {_time(reference)}", f"native {_time(best)}"
    configs = f"best of {count} configs" if count > 1 else "one legal config"
    asked = "; options(kernels='native')" if always else ""
    return f"{one} modelled, {two}; {configs}{asked}"


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if float(f"{seconds:.3g}") >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _assumptions(target: Target, tiling: Tiling) -> tuple[str, ...]:
    found = tiling.estimate(target)
    full = assumed(target)
    paths = dict.fromkeys((*found.missing, *found.omitted))
    return tuple(full.told(path) for path in paths if path in full.values)
