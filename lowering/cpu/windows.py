"""Rules of picking elements out of a tile, and of putting elements into one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import load, store
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.memory import access, put_picked
from tilejax.lowering.cpu.picked import Picked
from tilejax.lowering.cpu.tiles import Load, Tile
from tilejax.lowering.tile.program import Op

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

RULES: dict[str, Callable] = {}


def _pick(e: "Emitter", op: Op) -> Sequence[Tile]:
    source = e.in_memory(e.tile(op.inputs[0])).view
    found = access(e, source, op.params["index"], op.inputs[1], op.inputs[2])
    return [found if op.outputs[0].shape else e.number(found)]


def _put(e: "Emitter", op: Op) -> Sequence[Tile]:
    """Copy the tile, then write, or combine with what is there, in order."""
    x, value = (e.without_dots(e.tile(v)) for v in op.inputs[:2])
    whole = Load(e.keep(x).view)
    target = access(e, whole.view, op.params["index"], op.inputs[2], None)
    name = op.params["op"]
    if name is None:
        if isinstance(target, Picked):
            put_picked(e, target, value)
        else:
            e.put(target.view, value, target.mask)
        return [whole]

    def one(n, places, tail):
        new = value.at(n, places, tail)
        if isinstance(target, Picked):
            old = target.read(n, places, tail)
            target.put(n, places, OPS[name](n, [old, new], whole.dtype), tail)
        else:
            mask = target.mask and target.mask.at(n, places, tail)
            old = load(n, target.view, places, mask)
            store(n, target.view, places, OPS[name](n, [old, new], whole.dtype), mask)

    e.each(target.shape, None, one)
    return [whole]


RULES.update(pick=_pick, put=_put)
