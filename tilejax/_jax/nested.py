"""The bodies inside equations: which there are, how to replace them, what is dead.

JAX keeps bodies in parameters of various names, open or closed, alone or in tuples.
A primitive that this table does not name keeps its bodies as they are: they can be
read, but what may change in them is known to its authors alone. That goes for the
bodies of kernels too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jax._src import config, core
from jax._src.interpreters import partial_eval as pe

from tilejax._jax.jaxprs import Eqn, Program, consts, with_

_BODY_TYPES = (core.Jaxpr, getattr(core, "ClosedJaxpr", core.Jaxpr))


@dataclass(frozen=True)
class _Form:
    """Where a primitive keeps its bodies, and whether they may have constants."""

    params: tuple[str, ...]
    holds_constants: bool = False


_FORMS = {
    "jit": _Form(("jaxpr",), holds_constants=True),
    "closed_call": _Form(("call_jaxpr",), holds_constants=True),
    "eval_jaxpr": _Form(("call_jaxpr",), holds_constants=True),
    "core_call": _Form(("call_jaxpr",)),
    "call": _Form(("call_jaxpr",)),
    "scan": _Form(("jaxpr",)),
    "while": _Form(("cond_jaxpr", "body_jaxpr")),
    "cond": _Form(("branches",)),
    "remat2": _Form(("jaxpr",)),
    "checkpoint": _Form(("jaxpr",)),
    "custom_jvp_call": _Form(("call_jaxpr",)),
    "custom_vjp_call": _Form(("call_jaxpr",)),
    "custom_vmap_call": _Form(("call",)),
    "shard_map": _Form(("jaxpr",)),
    "run_state": _Form(("jaxpr",)),
}

# Calls whose body means the same in the place of the call.
NOT_A_CALL = "is not a plain call"
_TRANSPARENT = ("closed_call", "core_call", "call", "eval_jaxpr")


def nested(eqn: Eqn) -> list[tuple[str, Program]]:
    """Return the name and the body of every program in the parameters.

    **Returns:**

    Pairs in a stable order; a body in a tuple is called `branches[0]` and so on.
    """
    found: list[tuple[str, Program]] = []
    form = _FORMS.get(eqn.primitive.name)
    if form is None and not any(map(_may_hold, eqn.params.values())):
        return found
    for name in form.params if form else sorted(eqn.params):
        value = eqn.params.get(name)
        if isinstance(value, _BODY_TYPES):
            found.append((name, value))
        elif isinstance(value, tuple | list):
            found += [
                (f"{name}[{i}]", body)
                for i, body in enumerate(value)
                if isinstance(body, _BODY_TYPES)
            ]
    return found


def _may_hold(param) -> bool:
    if isinstance(param, tuple | list):
        return any(isinstance(each, _BODY_TYPES) for each in param)
    return isinstance(param, _BODY_TYPES)


def is_body(value) -> bool:
    """Say whether a parameter is a program."""
    return isinstance(value, _BODY_TYPES)


def can_rewrite(eqn: Eqn) -> bool:
    """Say whether the bodies of the equation may be replaced."""
    return eqn.primitive.name in _FORMS


def holds_constants(eqn: Eqn) -> bool:
    """Say whether the bodies of the equation may have constants of their own."""
    form = _FORMS.get(eqn.primitive.name)
    return form is not None and form.holds_constants


def with_nested(eqn: Eqn, bodies: Sequence[Program]) -> Eqn:
    """Return the equation with new bodies, in the order in which `nested` gives them.

    Each must take and return what the old one did.

    **Raises:**

    `ValueError` if the bodies of this primitive may not be replaced, or if a body
    has another number of inputs or outputs.
    """
    name = eqn.primitive.name
    if name not in _FORMS:
        raise ValueError(f"{name}: the bodies of this primitive may not be replaced")
    old_bodies = [body for _, body in nested(eqn)]
    for old, new in zip(old_bodies, bodies, strict=True):
        if len(old.invars) != len(new.invars) or len(old.outvars) != len(new.outvars):
            raise ValueError(
                f"{name}: a body of {len(old.invars)} inputs and {len(old.outvars)} "
                f"outputs cannot become one of {len(new.invars)} and "
                f"{len(new.outvars)}"
            )
    rest = iter(bodies)
    params = dict(eqn.params)
    for key in _FORMS[name].params:
        value = params[key]
        many = type(value) in (tuple, list)
        params[key] = type(value)(next(rest) for _ in value) if many else next(rest)
    new_eqn = eqn.replace(params=params)
    same = all(
        core.positional_effects(old) == core.positional_effects(new)
        for old, new in zip(old_bodies, bodies, strict=True)
    )
    return new_eqn if same else new_eqn.replace(effects=_effects(new_eqn))


def _effects(eqn: Eqn):
    """Work out the effects of an equation from those of its bodies."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        rule = core.custom_typechecks[eqn.primitive]
        _, effects = rule(lambda: None, *eqn.invars, **eqn.params)
        return core.resolve_input_effects(effects, eqn.invars)
    ((_, body),) = nested(eqn)
    return core.eqn_effects(body, eqn.invars)


def why_not_inline(eqn: Eqn) -> str | None:
    """Say why the call must stay a call; `None` where its body may replace it.

    A call of another kind than `jit` and plain calls always has a meaning of its own:
    a custom derivative, a checkpoint, a loop. Donation inside a program means nothing
    to JAX and is no reason.
    """
    if eqn.primitive.name in _TRANSPARENT:
        return None
    if eqn.primitive.name != "jit":
        return NOT_A_CALL
    params = eqn.params
    if any(
        type(s).__name__ != "UnspecifiedValue"
        for s in (*params["in_shardings"], *params["out_shardings"])
    ):
        return "has shardings"
    if any(x is not None for x in (*params["in_layouts"], *params["out_layouts"])):
        return "has layouts"
    if params["compiler_options_kvs"]:
        return "has compiler options"
    # JAX 0.12 lets the user leave the choice to XLA, by these names.
    if getattr(params["inline"], "name", "") in ("XLA_EARLY", "XLA_LATE"):
        return "asked to be left to XLA"
    return None


def scan_parts(eqn: Eqn) -> tuple[int, int]:
    """Return how many of a scan's operands are constants and how many are carried."""
    if "ft_in" in eqn.params:
        constants, carried, _ = eqn.params["ft_in"].unpack()
        return len(constants), len(carried)
    return eqn.params["num_consts"], eqn.params["num_carry"]


def without_dead(program: Program) -> Program:
    """Drop what no output and no effect needs, by JAX's own rule for each primitive.

    All inputs stay, used or not, and so do writes to references that outlive the
    program. A program without dead parts is returned as it is.
    """
    # JAX never prunes constants, so they are inputs for the while.
    pairs = list(zip(program.constvars, consts(program), strict=True))
    inputs = [*program.constvars, *program.invars]
    bare = with_(program, invars=inputs, constants=()) if pairs else program
    # JAX would check a body as if it stood alone, without the axes around it.
    with config.enable_checks(False):
        slim, used = pe.dce_jaxpr(
            getattr(bare, "jaxpr", bare),
            True,
            [False] * len(pairs) + [True] * len(program.invars),
        )
    kept = [pair for pair, use in zip(pairs, used, strict=False) if use]
    # On 0.10 JAX rebuilds every call, so only what shrank counts as a change.
    if len(kept) == len(pairs) and _weight(slim) == _weight(program):
        return program
    return with_(program, eqns=slim.eqns, constants=kept)


def _weight(program: Program) -> int:
    """Count all that dead code elimination can take away."""
    total = 0
    for eqn in program.eqns:
        total += 1 + len(eqn.invars) + len(eqn.outvars)
        if eqn.primitive.name in _FORMS:
            for _, body in nested(eqn):
                total += len(body.constvars) + _weight(body)
    return total
