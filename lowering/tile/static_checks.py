"""Faults of a kernel's blocks that can be told before it runs.

Index maps that read no operand are evaluated over the grid, with NumPy, along the
dimensions that they depend on. What is decided so:

- every block starts inside of its array, or of its padding;
- every output is written, and its blocks cover its array;
- no two indices of the parallel dimensions write the same block.

Maps that read operands, grids whose sizes are operands, and maps that depend on grid
dimensions with more than `MOST` steps together are left to the checks at run time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilejax.errors import KernelFault
from tilejax.lowering.tile.evaluate import NotKnown, evaluate, reached
from tilejax.lowering.tile.program import (
    Block,
    Op,
    Operand,
    Ref,
    Span,
    TileProgram,
    blocks_within,
)

MOST = 2**21
"""Grid steps, and cells of an array, that are looked at."""


def check_blocks(program: TileProgram, names: Mapping[Ref, str]) -> None:
    """Check what can be told of a kernel's blocks.

    **Arguments:**

    - `names`: what the user calls each reference.

    **Raises:** `KernelFault`, naming kernel, reference, block and grid step.
    """
    sizes = [dim.size for dim in program.grid]
    writers = _writers(program.body)
    for operand in program.operands:
        kinds = writers.get(operand.ref, frozenset())
        judge = _Judge(program, operand, names[operand.ref], kinds)
        if operand.role == "output" and operand.alias is None and not kinds:
            judge.never_written()
        if operand.index_map is None or None in sizes or 0 in operand.shape:
            continue
        judge.look()


def _writers(body: Block) -> dict[Ref, frozenset[str]]:
    """How each whole reference is written: "full", "part" or "atomic"."""
    found: dict[Ref, set[str]] = {}
    for block in blocks_within(body):
        for op in block.ops:
            if op.kind == "transfer":
                found.setdefault(op.inputs[1].whole, set()).add("part")
            elif op.kind == "store":
                how = "full" if _is_full(op) else "part"
                found.setdefault(op.inputs[0].whole, set()).add(how)
            elif op.kind in ("atomic", "compare_exchange"):
                found.setdefault(op.inputs[0].whole, set()).add("atomic")
    return {ref: frozenset(kinds) for ref, kinds in found.items()}


def _is_full(op: Op) -> bool:
    ref, _, mask = op.inputs[:3]
    spans = zip(op.params["index"], ref.shape, strict=True)
    return (
        mask is None
        and ref.root is None
        and all(isinstance(e, Span) and e.start == 0 and e.size == n for e, n in spans)
    )


@dataclass(frozen=True)
class _Steps:
    """The blocks of an operand along the grid dimensions that it depends on.

    **Arguments:**

    - `used`: those dimensions; `ids`: of each the indices, one a step.
    - `starts`: of each dimension of the array the first element, one a step.
    """

    used: tuple[int, ...]
    ids: list[np.ndarray]
    starts: list[np.ndarray]


class _Judge:
    def __init__(self, program, operand: Operand, name: str, writers: frozenset[str]):
        self.program, self.operand, self.name = program, operand, name
        self.writers = writers

    def fault(self, what: str) -> KernelFault:
        return KernelFault(f"kernel {self.program.name}: {what}")

    def never_written(self) -> None:
        if 0 not in self.operand.shape and 0 not in [
            dim.size for dim in self.program.grid
        ]:
            raise self.fault(
                f"{self.name} is never written; write all of it, or drop it from "
                "out_shape"
            )

    def look(self) -> None:
        """Evaluate the index map and judge what it gives."""
        try:
            steps = self._steps()
        except NotKnown:
            return
        if steps is None:
            return
        self._outside(steps)
        if self.operand.role == "output":
            cells = self._cells(steps)
            if cells is not None:
                self._twice(steps, *cells)
                if self.operand.alias is None:
                    self._missing(*cells)

    def _steps(self) -> _Steps | None:
        index_map = self.operand.index_map
        assert index_map is not None
        grid = self.program.grid
        used = tuple(
            d for d in range(len(grid)) if reached(index_map, index_map.inputs[d])
        )
        sizes = [grid[d].size or 0 for d in used]
        steps = math.prod(sizes)
        if steps > MOST or 0 in [dim.size for dim in grid]:
            return None
        ids = [a.reshape(-1) for a in np.indices(sizes, np.int32)]
        given = dict(zip([index_map.inputs[d] for d in used], ids, strict=True))
        found = evaluate(index_map, given)
        starts = []
        for block, dim in zip(found, self.operand.dims, strict=True):
            first = block.astype(np.int64) * dim.step - dim.padding[0]
            starts.append(np.broadcast_to(first, (steps,)))
        return _Steps(used, ids, starts)

    def _place(self, steps: _Steps, at: int) -> str:
        """A grid step; dimensions that do not matter are at 0."""
        words = ["0"] * len(self.program.grid)
        for d, ids in zip(steps.used, steps.ids, strict=True):
            words[d] = str(ids[at])
        return f"({', '.join(words)})"

    def _block(self, steps: _Steps, at: int) -> str:
        """A block, by its first and last elements."""
        spans = [
            f"{start[at]}:{start[at] + dim.size}"
            for start, dim in zip(steps.starts, self.operand.dims, strict=True)
        ]
        return f"[{', '.join(spans)}]"

    def _outside(self, steps: _Steps) -> None:
        """A block that starts where no array, and no padding of it, is."""
        o = self.operand
        triples = zip(steps.starts, o.dims, o.shape, strict=True)
        for d, (first, dim, size) in enumerate(triples):
            low, high = dim.padding
            bad = np.flatnonzero((first < -low) | (first >= size + high))
            if not len(bad):
                continue
            at = int(bad[0])
            index = int(first[at] + low) // dim.step
            raise self.fault(
                f"the index map of {self.name} gives {index} for dimension {d} at "
                f"grid step {self._place(steps, at)}: the block "
                f"{self._block(steps, at)} leaves its array of shape "
                f"{tuple(o.shape)}; shorten the grid or clamp the index"
            )

    def _cells(self, steps: _Steps):
        """The parts of the array that each step's block covers.

        A cell is a block along blocked dimensions and an element along the others.

        **Returns:** the cells' numbers, the steps that they are of, and how many cells
        there are along each dimension; None if there are too many.
        """
        o = self.operand
        counts, widths = [], []
        for dim, size in zip(o.dims, o.shape, strict=True):
            blocked = dim.step == dim.size
            counts.append(-(-size // dim.size) if blocked else size)
            widths.append(1 if blocked else dim.size)
        total = len(steps.starts[0]) if steps.starts else 1
        if total * math.prod(widths) > MOST or math.prod(counts) > MOST:
            return None
        owner = np.arange(total)
        numbers = np.zeros(total, np.int64)
        for first, dim, count, width in zip(
            steps.starts, o.dims, counts, widths, strict=True
        ):
            at = first // dim.size if dim.step == dim.size else first
            at = at[owner, None] + np.arange(width)
            inside = (at >= 0) & (at < count)
            numbers = (numbers[:, None] * count + np.clip(at, 0, count - 1))[inside]
            owner = np.broadcast_to(owner[:, None], at.shape)[inside]
        return numbers, owner, tuple(counts)

    def _missing(self, cells: np.ndarray, _, counts: tuple[int, ...]) -> None:
        seen = np.zeros(math.prod(counts), bool)
        seen[cells] = True
        if seen.all():
            return
        at = np.unravel_index(int(np.argmin(seen)), counts)
        first = [
            int(i) * (dim.size if dim.step == dim.size else 1)
            for i, dim in zip(at, self.operand.dims, strict=True)
        ]
        raise self.fault(
            f"no grid step has the block of {self.name} with the element "
            f"({', '.join(map(str, first))}), so that it is never written; let the "
            f"grid and the index map reach all of its shape {tuple(self.operand.shape)}"
        )

    def _twice(self, steps: _Steps, cells, owner, counts) -> None:
        """Blocks that several indices of the parallel dimensions write."""
        grid = self.program.grid
        parallel = [d for d, dim in enumerate(grid) if dim.parallel and dim.size != 1]
        if not parallel or not self._is_judged(counts):
            return
        for d in parallel:
            if d not in steps.used:
                first, second = (self._at(steps, int(owner[0]), d, i) for i in (0, 1))
                raise self._both(steps, int(owner[0]), first, second, [d])
        unit = np.zeros(len(steps.starts[0]) if steps.starts else 1, np.int64)
        for d, ids in zip(steps.used, steps.ids, strict=True):
            if d in parallel:
                unit = unit * (grid[d].size or 1) + ids
        order = np.lexsort((unit[owner], cells))
        cells, owner = cells[order], owner[order]
        same = (cells[1:] == cells[:-1]) & (unit[owner][1:] != unit[owner][:-1])
        for at in np.flatnonzero(same)[:1]:
            a, b = int(owner[at]), int(owner[at + 1])
            differ = [
                d
                for d, ids in zip(steps.used, steps.ids, strict=True)
                if d in parallel and ids[a] != ids[b]
            ]
            first, second = self._place(steps, a), self._place(steps, b)
            raise self._both(steps, a, first, second, differ)

    def _is_judged(self, counts: Sequence[int]) -> bool:
        """Whether steps that see the same block are taken to write the same elements.

        Not where all see the whole array and write their parts of it, nor where they
        add to it by atomics.
        """
        if self.writers <= {"atomic"}:
            return False
        dialect = [d for d in self.program.grid if "dialect" in d.reason]
        if dialect or all(n == 1 for n in counts):
            return "full" in self.writers
        return True

    def _at(self, steps: _Steps, at: int, d: int, index: int) -> str:
        words = self._place(steps, at)[1:-1].split(", ")
        words[d] = str(index)
        return f"({', '.join(words)})"

    def _both(self, steps, at: int, first: str, second: str, dims) -> KernelFault:
        several = len(dims) > 1
        which = f"{'s' if several else ''} {' and '.join(map(str, dims))}"
        return self.fault(
            f"{self.name} is written in the block {self._block(steps, at)} at grid "
            f"step {first} and, in parallel, in one that overlaps it at {second}; "
            f"declare grid dimension{which} 'arbitrary', or let the index map depend "
            "on it"
        )
