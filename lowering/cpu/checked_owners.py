"""Who has written each element of outputs and scratch: a word of 32 bits an element."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilejax.lowering.cpu.checked_runtime import INITIALISED
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.types import dtype_name, itemsize
from tilejax.lowering.tile.program import Operand, Ref, TileProgram

HEAD = 16
"""Words before the first owner: the count of the units that are done."""


@dataclass(frozen=True)
class Owners:
    """The words that say who has written each element of some memory.

    **Arguments:**

    - `data`: the address of its first element; `pointer`: of the first word.
    - `element`: the bytes of an element.
    - `shape`: of the memory, for naming elements.
    - `flags`: of all accesses.
    """

    data: str
    pointer: str
    element: int
    shape: tuple[int, ...]
    flags: int


def checked_launch(launch: Launch, program: TileProgram) -> Launch:
    """Add the owners of outputs to a launch: zeros that become its last result."""
    return replace(
        launch,
        inputs=launch.inputs + 1,
        outputs=launch.outputs + 1,
        output_bytes=(*launch.output_bytes, 4 * owner_words(program)),
        aliases=(*launch.aliases, (launch.inputs, launch.outputs)),
        checked=True,
    )


def owner_words(program: TileProgram) -> int:
    """Return how many words the owners of a program's outputs take."""
    return HEAD + sum(_padded(o.shape) for o in program.operands if o.role == "output")


def _padded(shape: Sequence[int]) -> int:
    return -(-math.prod(shape) // HEAD) * HEAD


def owners_of_outputs(
    function: Function,
    table: str,
    program: TileProgram,
    pointers: Sequence[str],
    flags: int,
) -> dict[Ref, Owners]:
    """Return the owners of outputs, and of inputs that share their memory.

    Steps see copies of padded blocks, which nobody follows.

    **Arguments:**

    - `table`: the address of all words.
    - `pointers`: the data of each operand.
    - `flags`: of all accesses.
    """
    found: dict[Ref, Owners] = {}
    offset = HEAD
    for operand, data in zip(program.operands, pointers, strict=True):
        if operand.role != "output":
            continue
        pointer = function.at_entry(f"getelementptr i32, ptr {table}, i64 {offset}")
        offset += _padded(operand.shape)
        shared = INITIALISED if operand.alias is not None else 0
        size, shape = element_bytes(operand.ref), tuple(operand.shape)
        owners = Owners(data, pointer, size, shape, flags | shared)
        seen = [(operand, data)]
        if operand.alias is not None:
            seen.append((program.operands[operand.alias], pointers[operand.alias]))
        for each, address in seen:
            if not _has_padding(each):
                found[each.ref] = replace(owners, data=address)
    return found


def _has_padding(operand: Operand) -> bool:
    return any(dim.padding != (0, 0) for dim in operand.dims)


def element_bytes(ref: Ref) -> int:
    """Return the bytes of an element of a reference."""
    return itemsize(dtype_name(ref.dtype))
