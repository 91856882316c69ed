"""About how many simple instructions an element of an operation's result takes."""

from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.tile.program import Op

_SHAPED = {
    **{"broadcast": 0, "transpose": 0, "reshape": 1, "iota": 0, "constant": 0},
    "pick": 4,
}


def cost_of(op: Op) -> int:
    """Return the cost of an operation, without that of its operands."""
    if op.kind in OPS:
        return OPS[op.kind].cost
    if op.kind == "load":
        return 3 if op.inputs[1] is not None else 1
    return _SHAPED.get(op.kind, 1)
