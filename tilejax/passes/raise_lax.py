"""Raising the equations of JAX's that are a tiled operation as they stand."""

from tilejax._jax.jaxprs import Eqn, Program, new_outvars, renamed, with_
from tilejax._jax.primitives import partial_axes
from tilejax.ir import rewrite
from tilejax.passes.record import note
from tilejax.passes.splice import splice
from tilejax.primitives import retile


def raise_lax(program: Program) -> Program:
    """Turn products, convolutions and lookups into tiled operations.

    **Rewrite:**

        c = dot_general[dimension_numbers=...] a b
        -->   c = tiled_matmul[dimension_numbers=...] a b

    **Arguments:**

    - `program`: Any program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _raise)


def _raise(body: Program, has_room: bool) -> Program:
    del has_room  # nothing gets constants
    table = retile.replacements()
    if not any(eqn.primitive in table for eqn in body.eqns):
        return body
    names: dict = {}
    eqns: list[Eqn] = []
    for old in body.eqns:
        eqn = renamed(old, names)
        made = _made(eqn, table)
        if made is None:
            eqns.append(eqn)
            continue
        eqns += made[0]
        names.update(zip(eqn.outvars, made[1], strict=True))
    if not names:
        return body
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _made(eqn: Eqn, table: dict):
    """The tiled form of an equation: its equations and results; None if it has none."""
    replace = table.get(eqn.primitive)
    if replace is None:
        return None
    if any(partial_axes(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        # JAX differentiates these into values that only its own rules may take.
        note(f"left {eqn.primitive.name}: reduced or unreduced over a mesh axis")
        return None
    kept = []

    def apply(*operands):
        outs = replace(operands, eqn.params)
        if outs is None:
            kept.append(True)
            outs = [eqn.primitive.bind(*operands, **eqn.params)]
        return list(outs)

    made = splice(apply, eqn.invars, eqn)
    name = eqn.primitive.name
    if kept or made is None:
        note(f"left {name}: {'no tiled form' if kept else 'its type would change'}")
        return None
    note(f"raised {name}")
    return made
