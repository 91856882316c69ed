"""Let kernels write where an operand lies that nothing needs afterwards."""

import math

from tilejax._jax.in_place import is_compiled, working_in_place
from tilejax._jax.jaxprs import Atom, Eqn, Program, is_literal, with_
from tilejax._jax.pallas import BlockOf, NotDescribable, PallasCall, describe
from tilejax.ir import as_text, rewrite
from tilejax.ir.work import nbytes
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.uses import Uses

_READS = ("get", "masked_load")
_WRITES = ("swap", "masked_swap")
# The same memory under another type.
_VIEWS = ("reshape", "squeeze", "expand_dims")


def share_memory(program: Program, *, donated: frozenset[int] = frozenset()) -> Program:
    """Give results of compiled Pallas calls the memory of operands.

    **Rewrite:**

        b = exp a
        c = pallas_call b    -->    c = pallas_call[input_output_aliases=((0, 0),)] b

    Where the operand is computed by the program, or a donated input, and read by the
    call alone, once; where result and operand are cut into the same blocks, each of
    which one step of the grid has to itself; and where the kernel reads all that it
    reads of the operand before it writes the result.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `donated`: Which inputs the caller gives away, by number.

    **Returns:**

    A program with the same inputs and outputs.
    """
    given = {program.invars[i] for i in donated}
    return rewrite(program, lambda body, _: _share(body, given))


def _share(body: Program, given: set) -> Program:
    if not any(map(is_compiled, body.eqns)):
        return body
    definitions, uses = Definitions(), Uses(body)
    owned = set(given)
    for eqn in body.eqns:
        definitions.add(eqn)
        owned.update(eqn.outvars)
    eqns = []
    for eqn in body.eqns:
        pairs = _pairs(eqn, definitions, uses, owned) if is_compiled(eqn) else []
        if pairs:
            saved = sum(nbytes(eqn.outvars[o].aval) for _, o in pairs)
            note(f"a kernel works in place: {saved} bytes")
            eqn = working_in_place(eqn, pairs)
        eqns.append(eqn)
    same = all(new is old for new, old in zip(eqns, body.eqns, strict=True))
    return body if same else with_(body, eqns=eqns)


def _pairs(eqn: Eqn, definitions: Definitions, uses: Uses, owned: set) -> list:
    """The operands that die here, each with a result that may take its memory."""
    if len(eqn.params["input_output_aliases"]):
        return []
    dying = [i for i, v in enumerate(eqn.invars) if _dies(v, eqn, uses)]
    dying = [i for i in dying if _root(eqn.invars[i], definitions) in owned]
    if not dying:
        return []
    try:
        call = describe(eqn.params)
    except NotDescribable:
        return []
    found, taken = [], set()
    for at in dying:
        for out in range(len(eqn.outvars)):
            if out not in taken and is_safe(call, at, out):
                found.append((at, out))
                taken.add(out)
                break
    return found


def _dies(v: Atom, eqn: Eqn, uses: Uses) -> bool:
    if is_literal(v) or uses.is_output(v):
        return False
    alone = all(each is eqn for each in uses.of(v))
    return alone and sum(v is w for w in eqn.invars) == 1


def _root(v: Atom, definitions: Definitions) -> Atom:
    while (made := definitions.of(v, *_VIEWS)) is not None:
        v = made.invars[0]
    return v


def is_safe(call: PallasCall, operand: int, result: int) -> bool:
    """Say whether a kernel may write a result where an operand lies.

    **Arguments:**

    - `call`: the kernel and its blocks.
    - `operand`: its number, as the call counts aliases.
    - `result`: its number.
    """
    at = operand - len(call.indices)
    if None in call.grid or not 0 <= at < call.inputs:
        return False
    source, target = call.blocks[at], call.blocks[call.inputs + result]
    return (
        _same_blocks(source, target)
        and _has_each_to_itself(target, call.grid)
        and _reads_first(call, operand, len(call.indices) + call.inputs + result)
    )


def _same_blocks(one: BlockOf, two: BlockOf) -> bool:
    same = (one.shape, one.dtype, one.dims) == (two.shape, two.dtype, two.dims)
    if not same or one.space != two.space:
        return False
    return as_text(one.index_map) == as_text(two.index_map)


def _has_each_to_itself(block: BlockOf, grid: tuple[int | None, ...]) -> bool:
    """Whether no two steps meet in a block: each number of a step is one of a block."""
    if any(d.step != d.size or d.padding != (0, 0) for d in block.dims):
        return False
    if math.prod(n or 0 for n in grid) == 1:
        return True
    numbers = {v for v in block.index_map.outvars if not is_literal(v)}
    return not block.index_map.eqns and all(
        n == 1 or v in numbers
        for n, v in zip(grid, block.index_map.invars, strict=False)
    )


def _reads_first(call: PallasCall, source: int, target: int) -> bool:
    """Whether all reads of one reference come before all writes of the other."""
    read, written = call.body.invars[source], call.body.invars[target]
    has_written = False
    for eqn in call.body.eqns:
        name = eqn.primitive.name
        for place, v in enumerate(eqn.invars):
            if v is read and (place or name not in _READS or has_written):
                return False
            if v is written:
                if place or name not in _WRITES:
                    return False
                has_written = True
    return True
