"""Which dimensions of a grid may run in any order: declared, or found out."""

from tilejax._jax.pallas import PallasCall
from tilejax.lowering.tile.program import (
    Block,
    GridDim,
    Op,
    Operand,
    Ref,
    Span,
    TileProgram,
    Value,
    used,
    written,
)


def grid_dims(call: PallasCall, program: TileProgram) -> tuple[GridDim, ...]:
    """Decide for each dimension of the grid.

    A dimension that nothing is declared about is parallel if every output's block is
    another one at each of its indices, and if no step reads what an earlier one left in
    scratch. Where that cannot be shown, its steps run in order.
    """
    declared = call.semantics
    counted = [d for d in range(len(call.grid)) if d not in call.vmapped]
    found = []
    for d, size in enumerate(call.grid):
        if d in call.vmapped:
            found.append(GridDim(size, True, "added by vmap", counted=False))
            continue
        if declared is not None and len(declared) == len(counted):
            word = declared[counted.index(d)]
            found.append(GridDim(size, "parallel" in word, f"declared {word}"))
        elif call.independent:
            found.append(
                GridDim(size, True, "programs of this dialect are independent")
            )
        else:
            reason = _carried(program, d, counted)
            found.append(
                GridDim(size, not reason, reason or "nothing is carried along it")
            )
    return tuple(found)


def _carried(program: TileProgram, d: int, counted: list[int]) -> str:
    """Say what a step may take from another along a dimension; "" for nothing."""
    changed = {ref for op in program.body.ops for ref in written(op)}
    for operand in program.operands:
        if operand.ref not in changed:
            continue
        if not _distinct(operand, d):
            return f"{operand.name} may be the same block at two of its indices"
        if operand.role == "input" and operand.alias is None:
            return f"the input {operand.name} is written"
    for operand in program.operands:
        if operand.alias is None:
            continue
        source = program.operands[operand.alias]
        if not _same_map(operand, source):
            return f"{operand.name} and {source.name} share memory but not blocks"
    for ref in program.scratch:
        if ref in _read_first(program.body) and not _renewed(program, ref, d, counted):
            return "scratch may be read before it is written in a step"
    return ""


def _distinct(operand: Operand, d: int) -> bool:
    """Whether two indices along `d` always give two blocks that do not overlap."""
    index_map = operand.index_map
    if index_map is None:
        return False
    grid_index = index_map.inputs[d]
    for dim, result in zip(operand.dims, index_map.results, strict=True):
        if dim.step == dim.size and _is_plain(index_map, result, grid_index):
            return True
    return False


def _is_plain(block: Block, value: Value, grid_index: Value) -> bool:
    """Whether a value is the grid index itself, perhaps converted."""
    while value is not grid_index:
        op = next((op for op in block.ops if value in op.outputs), None)
        if op is None or op.kind != "convert_element_type":
            return False
        value = op.inputs[0]
    return True


def _same_map(a: Operand, b: Operand) -> bool:
    """Whether two operands' blocks are cut alike."""
    if a.dims != b.dims or a.index_map is None or b.index_map is None:
        return False
    return _spelled(a.index_map) == _spelled(b.index_map)


def _spelled(block: Block) -> list:
    """A body with numbers for names, equal for equal bodies."""
    number = {x: i for i, x in enumerate(block.inputs)}
    lines = []
    for op in block.ops:
        inputs = [number.get(x) for x in op.inputs]
        lines.append((op.kind, inputs, repr(op.params)))
        for out in op.outputs:
            number[out] = len(number)
    lines.append([number.get(x) for x in block.results])
    return lines


def _read_first(block: Block) -> set[Ref]:
    """Wholes that a body may read before all of it has been written in the body."""
    full: set[Ref] = set()
    found: set[Ref] = set()
    for op in block.ops:
        if op.kind == "store" and _is_full(op):
            full.add(op.inputs[0])
            continue
        for x in used(op):
            if isinstance(x, Ref) and x.whole not in full and op.kind != "view":
                found.add(x.whole)
    return found


def _is_full(op: Op) -> bool:
    """Whether a store writes every element of a reference that is no part."""
    ref, _, mask = op.inputs[:3]
    return (
        mask is None
        and ref.root is None
        and all(
            isinstance(e, Span) and e.start == 0 and e.size == n and e.stride == 1
            for e, n in zip(op.params["index"], ref.shape, strict=True)
        )
    )


def _renewed(program: TileProgram, ref: Ref, d: int, counted: list[int]) -> bool:
    """Whether scratch is written anew at the first step of a dimension inside of `d`.

    Steps run in row-major order, so what is written at index 0 of an inner dimension,
    before anything reads it, is not carried along the outer ones.
    """
    body = program.body
    for op in body.ops:
        if op.kind == "switch" and _stores_fully(op, ref):
            axis = _zero_test(body, op.inputs[0])
            return axis is not None and axis > d
        if any(isinstance(x, Ref) and x.whole is ref for x in used(op)):
            return False
    return False


def _stores_fully(op: Op, ref: Ref) -> bool:
    last = op.blocks[-1]
    return len(op.blocks) == 2 and any(
        inner.kind == "store" and inner.inputs[0] is ref and _is_full(inner)
        for inner in last.ops
    )


def _zero_test(block: Block, value: Value) -> int | None:
    """The grid dimension whose index a value compares with zero."""
    made = {out: op for op in block.ops for out in op.outputs}
    op = made.get(value)
    while op is not None and op.kind == "convert_element_type":
        op = made.get(op.inputs[0])
    if op is None or op.kind != "eq":
        return None
    sides = [made.get(x) for x in op.inputs]
    ids = [s for s in sides if s is not None and s.kind == "program_id"]
    zeros = [
        s
        for s in sides
        if s is not None and s.kind == "constant" and not s.params["value"].any()
    ]
    return ids[0].params["axis"] if len(ids) == len(zeros) == 1 else None
