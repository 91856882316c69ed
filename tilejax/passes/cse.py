"""Merge equations that compute the same thing."""

from tilejax._jax.jaxprs import (
    Eqn,
    Program,
    consts,
    is_array,
    is_dropped,
    is_literal,
    is_pure,
    new_outvars,
    renamed,
    with_,
)
from tilejax._jax.values import literal_value
from tilejax.ir import rewrite
from tilejax.passes.record import note

# Equal calls of these need not be equal, or are there to keep values apart: a barrier
# and a checkpoint say what to compute again, a copy gives memory of its own.
_APART = frozenset(
    ("optimization_barrier", "remat2", "checkpoint", "copy", "copy_p", "pure_callback")
)
_RANDOM = ("random_", "rng_", "threefry")


def merge_common(program: Program) -> Program:
    """Keep the first of any equations of one body that compute the same thing.

    **Rewrite:**

        b = sin a          b = sin a
        c = sin a    -->   d = mul b b
        d = mul b c

    An equation is left alone if it has an effect, reads or writes a reference, is
    random, drops a result, or has a parameter that cannot be hashed. So are barriers,
    checkpoints and copies, whose point is not to be merged. Constants that are the
    same array become one.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _merge)


def _merge(body: Program, has_room: bool) -> Program:
    seen: dict[tuple, Eqn] = {}
    constants, names = _merged_constants(body)
    kept = []
    for eqn in body.eqns:
        eqn = renamed(eqn, names)
        key = _key(eqn)
        first = eqn if key is None else seen.setdefault(key, eqn)
        if first is eqn:
            kept.append(eqn)
        else:
            note(f"merged {eqn.primitive.name}")
            names.update(zip(eqn.outvars, first.outvars, strict=True))
    if not names:
        return body
    outvars = new_outvars(body, names)
    return with_(body, eqns=kept, outvars=outvars, constants=constants or None)


def _merged_constants(body: Program) -> tuple[list, dict]:
    first: dict = {}
    names = {}
    for variable, value in zip(body.constvars, consts(body), strict=True):
        same, _ = first.setdefault((id(value), variable.aval), (variable, value))
        if same is not variable:
            note("merged constant")
            names[variable] = same
    return list(first.values()), names


def _key(eqn: Eqn) -> tuple | None:
    """Return what equations must agree in to be merged; `None` for one left alone."""
    name = eqn.primitive.name
    if name in _APART or name.startswith(_RANDOM) or not is_pure(eqn):
        return None
    if any(is_dropped(v) or not is_array(v.aval) for v in eqn.outvars):
        return None
    if not all(is_array(v.aval) for v in eqn.invars):
        return None
    key = (
        eqn.primitive,
        tuple([_operand(atom) for atom in eqn.invars]),
        tuple([(name, _distinct(eqn.params[name])) for name in sorted(eqn.params)]),
        tuple([v.aval for v in eqn.outvars]),
        eqn.ctx,
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _operand(atom):
    if not is_literal(atom):
        return atom
    # By bits, since 0.0 == -0.0 and no NaN equals itself.
    return atom.aval, literal_value(atom).tobytes()


def _distinct(value):
    """Return a key that tells apart 1, 1.0 and True, and 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(map(_distinct, value))
    if isinstance(value, int | float | complex):
        return type(value), repr(value)
    return value
