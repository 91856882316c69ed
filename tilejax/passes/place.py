"""Telling each tiled equation the target that its kernel is chosen for."""

from dataclasses import replace

from tilejax._jax.jaxprs import Program, with_
from tilejax.ir import rewrite
from tilejax.primitives.define import operation_of


def placing(target: str):
    """Return a pass that writes the target's name into every tiled equation.

    **Rewrite:**

        b = tiled_softmax[call=x] a   -->   b = tiled_softmax[call=x@tpu:v5e] a

    An equation that names a target already keeps it.
    """

    def body(program: Program, has_room: bool) -> Program:
        del has_room  # nothing is added
        eqns = [_placed(eqn, target) for eqn in program.eqns]
        if all(new is old for new, old in zip(eqns, program.eqns, strict=True)):
            return program
        return with_(program, eqns=eqns)

    return lambda program: rewrite(program, body)


def _placed(eqn, target: str):
    if operation_of(eqn.primitive) is None or eqn.params["call"].target is not None:
        return eqn
    call = replace(eqn.params["call"], target=target)
    return eqn.replace(params={**eqn.params, "call": call})
