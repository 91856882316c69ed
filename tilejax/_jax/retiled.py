"""Programs whose equations are replaced while they run, and JAX's rules as programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax._src import api_util, core, linear_util as lu, source_info_util as source_info
from jax._src.interpreters import batching, partial_eval as pe

from tilejax._jax.jaxprs import Literal, Program, close, consts

Replace = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any] | None]

ShardingTypeError = core.ShardingTypeError


def traced(fun: Callable, avals: Sequence) -> Program:
    """Trace `fun(*arrays) -> list of arrays` on types, shardings and all.

    **Arguments:**

    - `fun`: a function of arrays alone.
    - `avals`: one type an operand, as `jax.typeof` gives it.
    """
    names = api_util.debug_info("jit", fun, tuple(avals), {})
    flat = lu.wrap_init(lambda *xs: list(fun(*xs)), debug_info=names)
    jaxpr, _, constants = pe.trace_to_jaxpr_dynamic(flat, list(avals))
    return close(jaxpr, constants)


def result_types(program: Program) -> list:
    """Return the types of the results."""
    return [v.aval for v in program.outvars]


def same_types(ones: Sequence, others: Sequence) -> bool:
    """Tell whether types are equal, whatever device a mesh without axes names.

    In a context that names the device to lower for, some of JAX's own rules put it into
    the types and others do not.
    """

    def bare(aval):
        known = isinstance(aval, core.ShapedArray) and aval.sharding.mesh.empty
        if not known:
            return aval
        return core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)

    return list(map(bare, ones)) == list(map(bare, others))


def run(
    program: Program, table: Mapping[Any, Replace], *args, sources: bool = False
) -> list[Any]:
    """Run the equations one by one in the current trace, some by other means.

    **Arguments:**

    - `program`: a closed program.
    - `table`: by primitive, `(operands, params)` to results; None leaves the equation
      as it is.
    - `args`: a value an input.
    - `sources`: whether new equations say that they stem from the old ones' lines and
      scopes; else from wherever this is called.
    """
    values: dict[Any, Any] = dict(zip(program.constvars, consts(program), strict=True))
    values.update(zip(program.invars, args, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else values[atom]

    for eqn in program.eqns:
        operands = [read(v) for v in eqn.invars]
        if sources:
            stack = source_info.current_name_stack() + eqn.source_info.name_stack
            with (
                source_info.user_context(eqn.source_info.traceback, name_stack=stack),
                eqn.ctx.manager,
            ):
                outs = _one(eqn, table, operands)
        else:
            outs = _one(eqn, table, operands)
        values.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in program.outvars]


def _one(eqn, table: Mapping[Any, Replace], operands: list) -> Sequence[Any]:
    replace = table.get(eqn.primitive)
    outs = None if replace is None else replace(operands, eqn.params)
    if outs is not None:
        return outs
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return out if eqn.primitive.multiple_results else [out]


def batched_equation(
    primitive, axis_data, avals: Sequence, axes: Sequence[int | None], params: Mapping
) -> tuple[Program, int | None]:
    """Trace JAX's own `vmap` rule of a primitive with one result.

    **Arguments:**

    - `primitive`, `params`: of the equation.
    - `axis_data`: what JAX hands to rules about the mapped axis.
    - `avals`: the operands' types, mapped axes included.
    - `axes`: for each operand the mapped axis, or None.

    **Returns:** the program, and the mapped axis of its result.
    """
    rule = batching.fancy_primitive_batchers[primitive]
    found: list[int | None] = []

    def apply(*operands):
        out, axis = rule(axis_data, operands, tuple(axes), **params)
        found.append(axis)
        return [out]

    return traced(apply, avals), found[0]


def def_folding(primitive, rule: Callable) -> None:
    """Set the vmap rule: (axis_data, operands, axes, **params) to (outputs, axes)."""
    batching.fancy_primitive_batchers[primitive] = rule
