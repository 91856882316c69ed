"""Let products read and write in the order that values have in memory."""

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    is_literal,
    new_outvars,
    renamed,
    with_,
)
from tilejax.ir import rewrite
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.turned import reading
from tilejax.passes.uses import Uses
from tilejax.passes.views import Puller, View, inverse, view_of
from tilejax.primitives.matmul import matmul_op


def settle_layouts(program: Program) -> Program:
    """Take transposes and reshapes away where what they do can be had without them.

    **Rewrite:**

        b = transpose a
        d = tiled_matmul b c           -->   d = tiled_matmul[other dimensions] a c

        b = tiled_matmul a c
        d = transpose b                -->   d = tiled_matmul c a

        b = transpose a
        d = transpose (exp b)          -->   d = exp a

    The same through any element-wise equations whose results nothing else reads. No
    element is computed in another way.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, lambda body, _: _settle(body))


def _settle(body: Program) -> Program:
    if not any(view_of(eqn) for eqn in body.eqns):
        return body
    names: dict[Atom, Atom] = {}
    definitions = Definitions()
    puller = Puller(definitions, Uses(body))
    eqns: list[Eqn] = []
    for old in body.eqns:
        eqn = renamed(old, names)
        made = _viewed(eqn, puller)
        if made is not None:
            result, new = made
            names[eqn.outvars[0]] = result
        else:
            new = _product(eqn, puller)
        for each in new:
            definitions.add(each)
        eqns += new
    same = len(eqns) == len(body.eqns)
    if not names and same and all(map(_is, eqns, body.eqns)):
        return body
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _is(one: Eqn, other: Eqn) -> bool:
    return one is other


def _viewed(eqn: Eqn, puller: Puller) -> tuple[Atom, list[Eqn]] | None:
    """What gives the result of a transpose or reshape without one."""
    view = view_of(eqn)
    if view is None or is_literal(eqn.invars[0]):
        return None
    found = puller.pull(eqn.invars[0], view)
    if found is None or found[0].aval != eqn.outvars[0].aval:
        return None
    into = any(each.primitive is matmul_op.forward_p for each in found[1])
    note(f"{view.kind}: {'in a product' if into else 'cancelled'}")
    return found


def _product(eqn: Eqn, puller: Puller) -> list[Eqn]:
    """A product that reads what its operands were transposed from."""
    if eqn.primitive is not matmul_op.forward_p:
        return [eqn]
    new: list[Eqn] = []
    for at in range(2):
        order = puller.order_of(eqn.invars[at])
        if order is None:
            continue
        found = puller.pull(eqn.invars[at], View("transpose", inverse(order)))
        turned = None if found is None else reading(eqn, at, found[0], order)
        if found is not None and turned is not None:
            note("transpose: read by a product")
            new += found[1]
            eqn = turned
    return [*new, eqn]
