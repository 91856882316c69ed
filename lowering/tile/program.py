"""The records of a tile program. Nothing in them knows about a target.

A program has a grid, operands cut into blocks, scratch, and a body. A body is a list of
operations in order. Values are tiles and are defined once; references are memory, and
only `load`, `store` and the operations named in `EFFECTS` touch it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(eq=False)
class Value:
    """A tile, or a scalar where `shape` is empty, that one operation defines."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(eq=False)
class Ref:
    """Memory, or a part of it that `view` gave.

    **Arguments:**

    - `space`: the name of the memory space that the user asked for.
    - `kind`: "memory", or a kind of semaphore.
    - `root`: the reference whose memory this is part of; itself if it is not a part.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    space: str = "any"
    kind: str = "memory"
    root: "Ref | None" = None

    @property
    def whole(self) -> "Ref":
        """The reference that this one is a part of."""
        return self.root or self


@dataclass(frozen=True)
class Span:
    """`size` neighbours along a dimension from `start`, `stride` elements apart."""

    start: "Value | int"
    size: int
    stride: int = 1


Entry = "Span | Value | int"
"""How a dimension is indexed: a span, a scalar, or an array of indices."""


@dataclass(eq=False)
class Op:
    """An operation.

    **Arguments:**

    - `kind`: an element-wise JAX primitive's name, or one of this package's
      (`operations.py` lists them).
    - `inputs`: values and references.
    - `params`: what else it depends on, all static; an `index` holds values that are
      among the inputs.
    - `blocks`: bodies of control flow.
    - `line`: the user's line, for errors.
    """

    kind: str
    inputs: tuple
    outputs: tuple
    params: dict[str, Any] = field(default_factory=dict)
    blocks: tuple["Block", ...] = ()
    line: str = ""


@dataclass(eq=False)
class Block:
    """A body: its inputs, operations and results.

    A body may use whatever is defined before the operation that it is part of.
    """

    inputs: tuple
    ops: list[Op]
    results: tuple[Value, ...] = ()


@dataclass(frozen=True)
class GridDim:
    """A dimension of the grid.

    **Arguments:**

    - `size`: None where it is an operand of the call.
    - `parallel`: whether its steps may run in any order.
    - `reason`: why, in words.
    - `counted`: whether `program_id` counts it; `vmap` adds some that it does not.
    """

    size: int | None
    parallel: bool
    reason: str
    counted: bool = True


@dataclass(frozen=True)
class BlockDim:
    """A dimension of an operand's block; see `tilejax._jax.pallas.BlockDim`."""

    size: int
    squeezed: bool
    step: int
    padding: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class Operand:
    """An array of the call, and the block of it that a grid step sees.

    **Arguments:**

    - `role`: "index" (read by index maps, seen whole), "input" or "output".
    - `ref`: how the body knows the block.
    - `shape`, `dtype`: of the array.
    - `dims`: of the block, a record a dimension of the array.
    - `index_map`: a body from the grid's indices and the index operands' references to
      an i32 a dimension.
    - `alias`: for an output, the number of the operand whose memory it shares.
    """

    role: str
    name: str
    ref: Ref
    shape: tuple[int, ...]
    dtype: np.dtype
    dims: tuple[BlockDim, ...]
    index_map: Block | None
    alias: int | None = None


@dataclass(eq=False)
class TileProgram:
    """A kernel in the form that emitters read.

    **Arguments:**

    - `grid`: outermost dimension first; steps of sequential ones run in this order.
    - `operands`: index operands, inputs, outputs.
    - `scratch`: references that belong to one index of the parallel dimensions.
    - `body`: its inputs are the operands' references and the scratch.
    """

    name: str
    grid: tuple[GridDim, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[Ref, ...]
    body: Block


def blocks_within(block: Block) -> Iterator[Block]:
    """Yield a body and all bodies inside of it."""
    yield block
    for op in block.ops:
        for inner in op.blocks:
            yield from blocks_within(inner)


EFFECTS = frozenset(
    ("store", "atomic", "compare_exchange", "transfer", "print", "signal", "wait")
)
"""Operations that change memory or are seen outside; their order must be kept."""


def written(op: Op) -> set[Ref]:
    """Return the references, as wholes, that an operation writes, in its bodies too."""
    if op.kind == "transfer":
        return {op.inputs[1].whole}
    found: set[Ref] = set()
    if op.kind in EFFECTS:
        found = {x.whole for x in op.inputs[:1] if isinstance(x, Ref)}
    for block in op.blocks:
        for inner in block.ops:
            found |= written(inner)
    return found


def used(op: Op) -> Iterator:
    """Yield what an operation uses from outside of itself, in its bodies too."""
    yield from op.inputs
    own: set = set()
    for block in op.blocks:
        own.update(block.inputs)
        for inner in block.ops:
            own.update(inner.outputs)
            yield from (x for x in used(inner) if x not in own)
        yield from (x for x in block.results if x not in own)
