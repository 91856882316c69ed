"""One view of programs for both forms that JAX gives them.

JAX 0.10 has `Jaxpr` and `ClosedJaxpr`, which pairs one with its constants; from 0.11
a `Jaxpr` carries its constants itself. Here a *program* is either, read through the
attributes that all of them have: `constvars`, `invars`, `outvars`, `eqns`, `effects`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import is_not
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
from jax._src import api_util, config, core, linear_util as lu
from jax._src.interpreters import partial_eval as pe

Program: TypeAlias = Any
Atom: TypeAlias = Any

if TYPE_CHECKING:  # JAX's annotations do not say which type an operand has
    Eqn: TypeAlias = Any
    Var: TypeAlias = Any
    DropVar: TypeAlias = Any
    Literal: TypeAlias = Any
else:
    Eqn, Var, DropVar, Literal = core.JaxprEqn, core.Var, core.DropVar, core.Literal
JaxprTypeError = core.JaxprTypeError

_PAIR: Any = getattr(core, "ClosedJaxpr", core.Jaxpr)
_PAIRED = core.Jaxpr is not _PAIR
_INPUT_EFFECT = core.effects.JaxprInputEffect


def trace(fn: Callable, *args, **kwargs) -> tuple[Program, Any]:
    """Trace `fn` to a closed program.

    **Arguments:**

    - `fn`: A function of pytrees.
    - `args`, `kwargs`: Pytrees of arrays, tracers, refs, PRNG keys, Python scalars or
      `jax.ShapeDtypeStruct`s. Only their types are read: weak types, shardings and
      varying axes stay as they are. Values of an outer trace that `fn` closes over
      become constants of the program.

    **Returns:**

    The program, whose inputs are the leaves of `(args, kwargs)`, and the pytree
    structure of what `fn` returns.

    **Raises:**

    `TypeError` if a leaf is not something that JAX can trace.

    >>> program, _ = trace(lambda x: x + 1, 2.0)
    >>> [eqn.primitive.name for eqn in program.eqns]
    ['add']
    """
    leaves, tree = jax.tree.flatten((args, kwargs))
    avals = [core.shaped_abstractify(leaf) for leaf in leaves]
    names = api_util.debug_info("jit", fn, args, kwargs)
    flat, out_tree = api_util.flatten_fun(lu.wrap_init(fn, debug_info=names), tree)

    def paths():  # for errors about results; known only once `fn` has returned
        out = jax.tree.unflatten(out_tree(), range(out_tree().num_leaves))
        return names.set_result_paths(out).result_paths

    flat.debug_info = names._replace(result_paths=paths)
    jaxpr, _, constants = pe.trace_to_jaxpr_dynamic(flat, avals)
    return close(jaxpr, constants), out_tree()


def evaluate(program: Program, *args) -> list[Any]:
    """Run the equations one by one in the current trace.

    Each equation keeps its traceback, its name stack and its context.

    **Arguments:**

    - `program`: A closed program.
    - `args`: One value for each of its inputs: arrays, or tracers of any trace.

    **Returns:**

    One value for each output.
    """
    jaxpr = program.jaxpr if _PAIRED else program
    return list(core.eval_jaxpr(jaxpr, consts(program), *args))


def close(jaxpr: Program, constants: Sequence[Any]) -> Program:
    """Attach a value to each of the constant variables of a bare jaxpr."""
    if _PAIRED:
        return _PAIR(jaxpr, list(constants))
    return jaxpr.with_consts(constants)


def consts(program: Program) -> list[Any]:
    """Return the values of `program.constvars`; none for an open body."""
    return list(getattr(program, "consts", ()))


def with_(
    program: Program,
    *,
    eqns: Sequence[Eqn] | None = None,
    invars: Sequence[Var] | None = None,
    outvars: Sequence[Atom] | None = None,
    constants: Sequence[tuple[Var, Any]] | None = None,
) -> Program:
    """Return a program with some parts replaced and its effects worked out anew.

    **Arguments:**

    - `program`: A program, open or closed. It is not changed.
    - `eqns`, `invars`, `outvars`: The new parts; `None` keeps the old ones.
    - `constants`: Pairs of a constant variable and its value. An open body of JAX
      0.10 cannot hold any.

    **Returns:**

    A program of the same form.
    """
    if constants is None:
        constvars, values = list(program.constvars), consts(program)
    else:
        constvars, values = [v for v, _ in constants], [c for _, c in constants]
    ins = list(program.invars if invars is None else invars)
    outs = list(program.outvars if outvars is None else outvars)
    body = list(program.eqns if eqns is None else eqns)
    inner = program.jaxpr if _is_closed(program) and _PAIRED else program
    names = inner.debug_info
    if len(ins) != len(program.invars) or len(outs) != len(program.outvars):
        names = names.with_unknown_names()
    jaxpr = core.Jaxpr(
        constvars,
        ins,
        outs,
        body,
        pe.make_jaxpr_effects(constvars, ins, outs, body),
        names,
        inner.is_high,
        **({} if _PAIRED else {"consts": values}),
    )
    return _PAIR(jaxpr, values) if inner is not program else jaxpr


def _is_closed(program: Program) -> bool:
    return hasattr(program, "consts")


def is_literal(atom: Atom) -> bool:
    """Say whether the operand is a literal, with its value in `val`."""
    return type(atom) is Literal


def is_dropped(variable: Var) -> bool:
    """Say whether the result is one that nothing can read."""
    return type(variable) is DropVar


def new_outvars(program: Program, names: dict[Var, Atom]) -> list[Atom]:
    """Return the outputs of the program, replaced as `names` says."""
    return [v if type(v) is Literal else names.get(v, v) for v in program.outvars]


def new_var(aval, *, is_dropped: bool = False) -> Var:
    """Return a variable that no program has yet, or one that nothing can read."""
    return core.DropVar(aval) if is_dropped else core.Var(aval)


def renamed(eqn: Eqn, names: dict[Var, Atom]) -> Eqn:
    """Return the equation with operands replaced as `names` says.

    The effects on its operands follow them. An equation that reads none of the names
    is returned as it is.
    """
    if not names:
        return eqn
    operands = [v if type(v) is Literal else names.get(v, v) for v in eqn.invars]
    if not any(map(is_not, operands, eqn.invars)):
        return eqn
    return eqn.replace(invars=operands, effects=_renamed(eqn.effects, names))


def copied(eqn: Eqn, names: dict[Var, Atom], scope: Any, traceback: Any) -> Eqn:
    """Return the equation with fresh results, for use in another program.

    **Arguments:**

    - `names`: What the old variables are called there. The fresh results are added.
    - `scope`: The name stack that the equation now stands in.
    - `traceback`: What to report where the equation itself does not say.
    """
    operands = [v if type(v) is Literal else names.get(v, v) for v in eqn.invars]
    effects = _renamed(eqn.effects, names)
    results = [v if type(v) is DropVar else core.Var(v.aval) for v in eqn.outvars]
    names.update(zip(eqn.outvars, results, strict=True))
    source = eqn.source_info
    source = source.replace(
        traceback=source.traceback or traceback,
        name_stack=scope + source.name_stack,
    )
    return eqn.replace(
        invars=operands, outvars=results, effects=effects, source_info=source
    )


def _renamed(effects, names: dict[Var, Atom]):
    if not effects or not any(isinstance(e, _INPUT_EFFECT) for e in effects):
        return effects
    return {
        effect.replace(names.get(effect.input, effect.input))
        if isinstance(effect, _INPUT_EFFECT)
        else effect
        for effect in effects
    }


@contextmanager
def context_of(eqn: Eqn) -> Iterator[None]:
    """Enter the settings and the mesh that the equation was traced in."""
    types = [getattr(v.aval, "manual_axis_type", None) for v in eqn.invars]
    # not among those settings: whether types say over which manual axes values vary
    varies = any(t is not None and t.varying for t in types)
    with (
        eqn.ctx.manager,
        config._check_vma(varies or config._check_vma.value),
        core.extend_axis_env_nd(_manual_axes(eqn)),
    ):
        yield


def _manual_axes(eqn: Eqn) -> list[tuple[str, int]]:
    """The names and sizes of the mesh axes that the operands may vary over."""
    for v in eqn.invars:
        mesh = getattr(getattr(v.aval, "sharding", None), "mesh", None)
        if mesh is not None and not mesh.empty:
            return [(name, mesh.shape[name]) for name in mesh.manual_axes]
    return []


def scope_of_call(eqn: Eqn) -> Any:
    """Return the name stack that JAX gives to the body of a nested `jit`."""
    stack = eqn.source_info.name_stack
    name = eqn.params.get("name")
    return stack.extend(f"jit({name})") if name else stack


def is_pure(eqn: Eqn) -> bool:
    """Say whether the equation computes its results and does nothing else.

    A collective counts as pure: the axis that it names is not an effect on anything.
    """
    return not eqn.effects or all(
        isinstance(effect, core.NamedAxisEffect) for effect in eqn.effects
    )


def is_array(aval) -> bool:
    """Say whether the type is of plain arrays: no reference, token or PRNG key."""
    return type(aval) is core.ShapedArray and not _is_extended(aval.dtype)


@lru_cache(maxsize=256)
def _is_extended(dtype) -> bool:
    return jax.dtypes.issubdtype(dtype, jax.dtypes.extended)


def is_tracer(value) -> bool:
    """Say whether the value belongs to a trace that is still going on."""
    return isinstance(value, core.Tracer)


def check(program: Program) -> None:
    """Check scopes, types and effects by JAX's own rules.

    **Raises:**

    `JaxprTypeError` naming the variable or the equation at fault.
    """
    core.check_jaxpr(program.jaxpr if _PAIRED and _is_closed(program) else program)
