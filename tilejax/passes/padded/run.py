"""Going through a symbolic program with padded arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilejax._jax.jaxprs import Eqn, Program, consts, is_literal
from tilejax._jax.rebind import at_line_of, rebind, value_of
from tilejax._jax.symbolic import is_symbolic
from tilejax.errors import BucketError
from tilejax.ir import source
from tilejax.passes.padded.axes import (
    UNIFORM,
    Frame,
    Padded,
    gate,
    layouts_of,
    mask,
)

# (frame, equation, operands) to results.
Rule = Callable[[Frame, Eqn, list[Padded]], list[Padded]]


@dataclass(frozen=True)
class _Known:
    """A rule, and what it asks of a program that is differentiated; see `rule`."""

    run: Rule
    takes_uniform: bool
    crosses: bool


_RULES: dict[str, _Known] = {}


def rule(
    *names: str, takes_uniform: bool = False, crosses: bool = False
) -> Callable[[Rule], Rule]:
    """State how equations of these primitives are run.

    **Arguments:**

    - `takes_uniform`: whether an operand may be UNIFORM where the program is
      differentiated. For others it is gated before, since then the gradients of what
      is not real must not come back to what all elements are copies of.
    - `crosses`: whether what is not real of a result may depend on what is real. Then
      the result is gated, since gradients would go the other way.
    """

    def add(function: Rule) -> Rule:
        for name in names:
            assert name not in _RULES, name
            _RULES[name] = _Known(function, takes_uniform, crosses)
        return function

    return add


def run(program: Program, frame: Frame, operands: Sequence[Padded]) -> list[Padded]:
    """Run a program that was traced for symbolic sizes.

    **Arguments:**

    - `operands`: one for each input, padded.

    **Returns:** one for each output.

    **Raises:** `BucketError` for an equation that cannot be padded.
    """
    known: dict[Any, Padded] = dict(zip(program.invars, operands, strict=True))
    for variable, value in zip(program.constvars, consts(program), strict=True):
        known[variable] = Padded(value, (None,) * len(variable.aval.shape))

    def read(atom) -> Padded:
        found = value_of(atom, known)
        return found if isinstance(found, Padded) else Padded(found, ())

    for eqn in program.eqns:
        try:
            outs = _equation(frame, eqn, [read(v) for v in eqn.invars])
        except BucketError as error:
            raise _located(error, eqn) from error.__cause__
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in program.outvars]


def _equation(frame: Frame, eqn: Eqn, operands: list[Padded]) -> list[Padded]:
    found = _RULES.get(eqn.primitive.name)
    if found is None and eqn.primitive.name.startswith("tiled_"):
        found = _RULES["tiled"]
    if found is not None:
        with at_line_of(eqn):
            if frame.gated and not found.takes_uniform:
                operands = [
                    _settled(frame, each, v)
                    for each, v in zip(operands, eqn.invars, strict=True)
                ]
            outs = found.run(frame, eqn, operands)
            if frame.gated and found.crosses:
                pairs = zip(outs, eqn.outvars, strict=True)
                outs = [gate(frame, out, shape_of(v)) for out, v in pairs]
            return outs
    atoms = [*eqn.invars, *eqn.outvars]
    if any(map(is_symbolic, (s for v in atoms for s in getattr(v.aval, "shape", ())))):
        raise refusal(eqn, "it has no rule for padded arrays")
    return plain(frame, eqn, [each.x for each in operands])


def _located(error: BucketError, eqn: Eqn) -> BucketError:
    """Say where the outermost equation is that is known to stand in a user's line."""
    where = source(eqn)
    if where is None or " at " in str(error):
        return error
    return BucketError(f"{error} (called at {where})")


def _settled(frame: Frame, value: Padded, atom: Any) -> Padded:
    """Zero what is not real of an operand whose elements are all equal."""
    uniform = [d for d, layout in enumerate(value.layouts) if layout == UNIFORM]
    if not uniform:
        return value
    x = value.x
    if is_moving(atom):
        x = mask(frame, value, shape_of(atom), 0, uniform)
    firsts = layouts_of(shape_of(atom))
    layouts = [
        first if layout == UNIFORM else layout
        for first, layout in zip(firsts, value.layouts, strict=True)
    ]
    return Padded(x, tuple(layouts))


def plain(
    frame: Frame, eqn: Eqn, arrays: Sequence, layouts: Sequence | None = None
) -> list[Padded]:
    """Use the equation's own primitive, with padded sizes in its parameters.

    **Arguments:**

    - `layouts`: of the first result, if not those of real elements that come first.
    """
    params = {name: frame.static(value) for name, value in eqn.params.items()}
    outs = rebind(eqn, arrays, params)
    found = [
        Padded(x, layouts_of(getattr(v.aval, "shape", ())))
        for x, v in zip(outs, eqn.outvars, strict=True)
    ]
    if layouts is not None:
        found[0] = Padded(found[0].x, tuple(layouts))
    return found


def shape_of(atom: Any) -> tuple:
    """Return the symbolic shape of an operand or a result."""
    return tuple(atom.aval.shape)


def is_moving(atom: Any) -> bool:
    """Say whether an operand may have a gradient."""
    return not is_literal(atom) and atom.aval.dtype.kind not in "biu"


def refusal(eqn: Eqn, why: str) -> BucketError:
    """Return the error for an equation that cannot be padded, with the user's line."""
    where = source(eqn)
    shapes = ", ".join(str(getattr(v.aval, "shape", v.aval)) for v in eqn.invars)
    return BucketError(
        f"{eqn.primitive.name} of shapes {shapes}"
        + (f" at {where}" if where else "")
        + f": {why}. Leave this name out of bucket=, to compile for each size of it"
    )
