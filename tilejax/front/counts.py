"""What runs each tiled equation of a program, and how much work it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from tilejax import targets
from tilejax._jax import primitives as _p
from tilejax._jax.jaxprs import trace
from tilejax.ir import Visit, walk
from tilejax.ir.work import work_inside
from tilejax.lowering import rules
from tilejax.primitives import parts
from tilejax.primitives.call import Call
from tilejax.primitives.define import operation_of
from tilejax.primitives.op import Op


@dataclass(frozen=True)
class Counted:
    """A tiled equation.

    **Arguments:**

    - `visit`: the equation, where it stands and how often it runs.
    - `op`, `part`: the operation, and which part of it.
    - `choice`: what runs it, on `target`.
    - `cost`: the work of one run, all members of a `vmap` together.
    """

    visit: Visit
    op: Op
    part: str
    choice: rules.Choice
    target: targets.Target
    cost: targets.Cost


def counted(
    program: Any, target: targets.Target, *, overrides: bool = False
) -> Iterator[Counted | Visit]:
    """Go through a program; an equation that is not tiled is given as its visit.

    **Arguments:**

    - `target`: for which kernels are chosen, unless an equation names another.
    - `overrides`: whether it is for those, too.
    """
    for visit in walk(program):
        known = operation_of(visit.eqn.primitive)
        if known is None:
            yield visit
            continue
        named = None if overrides else visit.eqn.params["call"].target
        yield _counted(visit, *known, target if named is None else targets.get(named))


def _counted(visit: Visit, op: Op, part: str, target) -> Counted:
    params = dict(visit.eqn.params)
    call: Call = params.pop("call")
    avals = [v.aval for v in visit.eqn.invars]
    plain = [
        _p.ShapedArray(a.shape[sum(level.ins[i] for level in call.levels) :], a.dtype)
        for i, a in enumerate(avals)
    ]
    choice = rules.choose(op, part, target, plain, call, params)
    cost = _cost(op, part, plain, call, params) * _members(avals, call)
    if "HIGH" not in str(params.get("precision")):
        cost = at_default_precision(cost, target)
    return Counted(visit, op, part, choice, target, cost)


def at_default_precision(cost: targets.Cost, target: targets.Target) -> targets.Cost:
    """Count products of float32 as what the target's default precision makes of them.

    >>> v5e = targets.get("tpu:v5e")
    >>> dict(at_default_precision(targets.Cost(8, dtype="float32"), v5e).flops)
    {'bfloat16': 8}
    """
    as_run = target.details.get("float32_product")
    if as_run is None or "float32" not in cost.flops:
        return cost
    flops = dict(cost.flops)
    flops[as_run] = flops.get(as_run, 0) + flops.pop("float32")
    return replace(cost, flops=flops)


def _members(avals: Sequence, call: Call) -> int:
    """How many members the `vmap`s around a call have together."""
    members = 1
    for depth, level in enumerate(call.levels):
        at = level.ins.index(True)
        members *= avals[at].shape[sum(x.ins[at] for x in call.levels[:depth])]
    return members


def _cost(op: Op, part: str, plain: Sequence, call: Call, params) -> targets.Cost:
    there = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in plain]
    if part == "forward" and op.cost is not None:
        return op.cost(*call.expand(there), **op.params(params))
    bare = replace(call, levels=())
    with _p.neutral_mesh():
        program, _ = trace(parts.function(op, part, bare, params), *there)
    return work_inside(program)


def native_work(program: Any) -> targets.Cost:
    """Sum the work of the equations that kernels run, which XLA does not see into."""
    here, total = targets.detect(), targets.Cost()
    for each in counted(program, here):
        if isinstance(each, Counted) and each.choice.impl == "native":
            total = total + each.cost * (each.visit.trips or 1)
    return total
