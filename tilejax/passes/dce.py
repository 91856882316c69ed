"""Drop what nothing needs."""

from tilejax._jax.jaxprs import Program
from tilejax._jax.nested import without_dead
from tilejax.ir import rewrite


def drop_dead(program: Program) -> Program:
    """Drop equations, and parts of loops and calls, whose results nothing reads.

    **Rewrite:**

        b = sin a          c = cos a
        c = cos a    -->   return c
        return c

    Effects stay, in their order, and so do all inputs of the program. Constants that
    nothing reads go.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, lambda body, has_room: without_dead(body))
