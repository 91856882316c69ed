"""Dropping operations whose results nobody uses and that change nothing."""

from tilejax.lowering.tile.program import EFFECTS, Block, Op, Value, used

_KEPT = EFFECTS | {"check"}


def without_dead(block: Block) -> Block:
    """Return a body without dead operations; those inside of its bodies go too."""
    needed = {x for x in block.results if isinstance(x, Value)}
    kept: list[Op] = []
    for op in reversed(block.ops):
        if not (has_effect(op) or any(out in needed for out in op.outputs)):
            continue
        op.blocks = tuple(without_dead(inner) for inner in op.blocks)
        needed.update(used(op))
        kept.append(op)
    return Block(block.inputs, kept[::-1], block.results)


def has_effect(op: Op) -> bool:
    """Tell whether an operation changes memory or is seen outside."""
    if op.kind in _KEPT:
        return True
    return any(has_effect(inner) for block in op.blocks for inner in block.ops)
