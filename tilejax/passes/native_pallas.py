"""Ask for compiled Pallas kernels where a program runs on a CPU."""

from tilejax._jax.jaxprs import Program, with_
from tilejax._jax.pallas import is_unmarked, marked
from tilejax.ir import rewrite
from tilejax.passes.record import note


def compile_pallas(program: Program) -> Program:
    """Mark each `pallas_call` that is not interpreted as one to compile on a CPU.

    **Rewrite:**

        b = pallas_call[interpret=False] a    -->    b = pallas_call[interpret=native] a

    On other platforms the mark says nothing. It stays with a call through `vmap`,
    derivatives and sharding.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _mark)


def _mark(body: Program, has_room: bool) -> Program:
    if not any(map(is_unmarked, body.eqns)):
        return body
    eqns = []
    for eqn in body.eqns:
        if is_unmarked(eqn):
            note(f"kernel {eqn.params.get('name') or 'without a name'}: native on CPUs")
            eqn = marked(eqn)
        eqns.append(eqn)
    return with_(body, eqns=eqns)
