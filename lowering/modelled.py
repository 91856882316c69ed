"""How long a part of a program takes, tiled equations among it, by the model."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax

from tilejax import targets
from tilejax._jax import primitives as _p
from tilejax._jax.jaxprs import is_literal, trace
from tilejax.errors import TargetError
from tilejax.ir.work import nbytes
from tilejax.lowering import rules
from tilejax.lowering.fusion import Model
from tilejax.lowering.loops import Value
from tilejax.options import current as options_in_force
from tilejax.primitives import parts
from tilejax.primitives.call import Call
from tilejax.primitives.define import operation_of
from tilejax.targets import Target, assumed

Seconds = Callable[[Sequence[Any], Sequence[Any]], float]


def modelled(name: str | None) -> Seconds | None:
    """Return a function that models the seconds of equations that follow one another.

    It takes the equations and those of their results that are needed afterwards, which
    end up in memory, as what they read is. A kernel runs what the kernel is chosen
    for, as when the program is lowered, and XLA the rest.

    **Arguments:**

    - `name`: the target's; None for the device at hand.

    **Returns:** the function; None on a device that no target's record describes.
    """
    try:
        target = targets.detect() if name is None else targets.get(name)
    except TargetError:
        return None
    return _modelled(target, options_in_force().kernels)


@cache
def _modelled(target: Target, wish: str) -> Seconds:
    del wish  # what was chosen under another wish does not count
    full = assumed(target).target
    chosen: dict = {}
    known: dict = {}

    def run(eqns: Sequence[Any], outs: Sequence[Any]) -> float:
        # layers are alike
        key = _key(eqns, outs)
        found = None if key is None else known.get(key)
        if found is None:
            found = _Mixed(full, target, chosen).part(eqns, outs)
            if key is not None:
                known[key] = found
        return found

    return run


def _key(eqns: Sequence[Any], outs: Sequence[Any]) -> tuple | None:
    """What equations that take equally long agree in; None for what has no hash."""
    numbers: dict[Any, int] = {}

    def number(v: Any) -> Any:
        if is_literal(v):
            return None
        return numbers.setdefault(v, len(numbers)), v.aval.shape, v.aval.dtype

    parts: list = []
    for eqn in eqns:
        ins = tuple(map(number, eqn.invars))
        params = tuple(sorted(eqn.params.items(), key=lambda pair: pair[0]))
        parts.append((eqn.primitive, ins, params, tuple(map(number, eqn.outvars))))
    key = (*parts, tuple(map(number, outs)))
    try:
        hash(key)
    except TypeError:
        return None
    return key


class _Mixed(Model):
    """A model of XLA's loops in which kernels take what the choice says."""

    def __init__(self, full: Target, target: Target, chosen: dict) -> None:
        super().__init__(full)
        self._chosen_for, self._known = target, chosen

    def part(self, eqns: Sequence[Any], outs: Sequence[Any]) -> float:
        env: dict = {}

        def read(atom: Any) -> Value:
            if is_literal(atom):
                return Value(0.0)
            return env.setdefault(atom, Value(float(nbytes(atom.aval))))

        for eqn in eqns:
            found = self.equation(eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, found, strict=True))
        return self.seconds([read(v) for v in outs])

    def equation(self, eqn: Any, ins: list[Value]) -> list[Value]:
        """Add an equation, and return its results."""
        known = operation_of(eqn.primitive)
        if known is None:
            return super().equation(eqn, ins)
        native, program = self._way(eqn, *known)
        if native is None:
            return self.body(program, ins)
        self.others += native
        return self.results(eqn, [self.store(v) for v in ins])

    def _way(self, eqn: Any, op: Any, part: str) -> tuple[float | None, Any]:
        """The seconds of a kernel, or the plain program that runs instead."""
        params = dict(eqn.params)
        call: Call = params.pop("call")
        avals = tuple(_p.plain(v.aval) for v in eqn.invars)
        key = (op, part, avals, call, tuple(params.items()))
        if key not in self._known:
            self._known[key] = self._chosen(op, part, avals, call, params)
        return self._known[key]

    def _chosen(self, op, part: str, avals: tuple, call: Call, params):
        members = parts.members(avals, call) if part == "forward" else ()
        if members and not call.levels:
            target = self._chosen_for
            choice = rules.choose(op, part, target, members, call, params)
            if choice.impl == "native" and choice.seconds is not None:
                return choice.seconds, None
        types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        with _p.neutral_mesh():
            program, _ = trace(parts.function(op, part, call, params), *types)
        return None, program
