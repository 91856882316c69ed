"""Two codes of one body: for steps whose blocks lie inside of their arrays, and others.

Where a block may pass its array's end every access of it is masked. Only the last steps
of a dimension do, so the others get code of their own, without masks. In it a kernel's
own comparisons of places with the array's size are known as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.blocks import Block
from tilejax.lowering.tile.program import Op, Operand, TileProgram, Value, blocks_within

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter

MOST = 400
"""Operations of a body that is worth a second code."""


@dataclass(frozen=True)
class Bound:
    """What holds in the inner code: index of `axis` * `step` + `size` <= `limit`."""

    axis: int
    step: int
    size: int
    limit: int


class Inside:
    """Which comparisons of a body are true while the bounds hold."""

    def __init__(self, program: TileProgram, bounds: Sequence[Bound]):
        self._bounds = bounds
        self._makers: dict[Value, Op] = {
            out: op
            for block in blocks_within(program.body)
            for op in block.ops
            for out in op.outputs
            if isinstance(out, Value)
        }

    def is_true(self, op: Op) -> bool:
        """Tell whether `place < size`, in any of its spellings, always holds."""
        if op.kind not in ("lt", "gt", "le", "ge") or op.inputs[0].dtype.kind != "i":
            return False
        low, high = op.inputs if op.kind in ("lt", "le") else op.inputs[::-1]
        limit = self._number(high)
        place = self._place(low)
        if limit is None or place is None:
            return False
        limit += op.kind in ("le", "ge")
        axis, step, size = place
        return any(
            (b.axis, b.step) == (axis, step) and size <= b.size and limit >= b.limit
            for b in self._bounds
        )

    def _made(self, value) -> Op | None:
        """What made a value, but for its shape."""
        op = self._makers.get(value)
        while op is not None and op.kind in ("broadcast", "reshape"):
            op = self._makers.get(op.inputs[0])
        return op

    def _number(self, value) -> int | None:
        op = self._made(value)
        if op is None or op.kind != "constant" or op.params["value"].size != 1:
            return None
        return int(op.params["value"].reshape(()))

    def _place(self, value) -> tuple[int, int, int] | None:
        """The grid's axis, its step and the extent of `index * step + iota`."""
        op = self._made(value)
        if op is None or op.kind not in ("add", "mul", "program_id"):
            return None
        if op.kind != "add":
            start = self._start(op)
            return None if start is None else (*start, 1)
        for a, b in (op.inputs, op.inputs[::-1]):
            along, start = self._made(a), self._made(b)
            if along is None or start is None or along.kind != "iota":
                continue
            found = self._start(start)
            if found is not None:
                size = along.outputs[0].shape[along.params["dimension"]]
                return (*found, size)
        return None

    def _start(self, op: Op) -> tuple[int, int] | None:
        """The grid's axis and the factor of `index * step`."""
        if op.kind == "program_id":
            return op.params["axis"], 1
        if op.kind != "mul":
            return None
        for a, b in (op.inputs, op.inputs[::-1]):
            index, step = self._made(a), self._number(b)
            if index is not None and index.kind == "program_id" and step is not None:
                return index.params["axis"], step
        return None


def run_in_two(e: "Emitter", program: TileProgram, blocks: Sequence[Block]) -> bool:
    """Emit the body twice, if it is worth it; return whether."""
    ragged = [block for block in blocks if block.view.is_ragged]
    size = sum(len(b.ops) for b in blocks_within(program.body))
    if not ragged or e.checks is not None or size > MOST:
        return False
    tests = [
        (limit, extent)
        for block in ragged
        for limit, extent in zip(block.view.limits, block.view.shape, strict=True)
        if limit is not None
    ]
    if any(isinstance(limit, int) for limit, _ in tests):
        return False  # there is one step along it, which passes the end
    f = e.function
    inner, edge, end = f.label(), f.label(), f.label()
    f.line(f"br i1 {_all_inside(e, tests)}, label %{inner}, label %{edge}")
    f.line(f"{inner}:")
    for block in ragged:
        e.bind(block.operand.ref, _unlimited(block.view))
    e.inside = Inside(program, [b for block in ragged for b in _bounds(block.operand)])
    with e.arena.scope():
        e.run(program.body)
    f.line(f"br label %{end}")
    f.line(f"{edge}:")
    for block in ragged:
        e.bind(block.operand.ref, block.view)
    e.inside = None
    with e.arena.scope():
        e.run(program.body)
    f.place(end)
    return True


def _all_inside(e: "Emitter", tests: Sequence[tuple]) -> str:
    f, found = e.function, "true"
    for limit, extent in dict.fromkeys(tests):
        here, both = f.name(), f.name()
        f.line(f"{here} = icmp sge i64 {limit}, {extent}")
        f.line(f"{both} = and i1 {found}, {here}")
        found = both
    return found


def _unlimited(view: View) -> View:
    return replace(view, limits=(None,) * len(view.limits))


def _bounds(operand: Operand) -> list[Bound]:
    """What the inner code may take for granted, of blocks that a grid index counts."""
    index_map = operand.index_map
    assert index_map is not None
    ids = [x for x in index_map.inputs if isinstance(x, Value)]
    return [
        Bound(ids.index(at), dim.step, dim.size, size)
        for at, dim, size in zip(
            index_map.results, operand.dims, operand.shape, strict=True
        )
        if at in ids
    ]
