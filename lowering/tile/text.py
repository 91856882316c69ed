"""A tile program as text."""

from hashlib import sha256
from itertools import count

import numpy as np

from tilejax.lowering.tile.program import (
    Block,
    BlockDim,
    Op,
    Operand,
    Ref,
    Span,
    TileProgram,
    Value,
)

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}


def dtype_text(dtype: np.dtype) -> str:
    """Spell a dtype shortly: `f32`, `bf16`, `i8`, `bool`.

    >>> dtype_text(np.dtype("float32")), dtype_text(np.dtype("bool"))
    ('f32', 'bool')
    """
    name = dtype.name
    stem = name.rstrip("0123456789")
    return _SHORT[stem] + name[len(stem) :] if stem in _SHORT else name


def as_text(program: TileProgram) -> str:
    """Print a program: its grid, its operands with their blocks, and its body."""
    names = _Names()
    lines = [f"kernel {program.name} {{"]
    for i, dim in enumerate(program.grid):
        size = "operand" if dim.size is None else dim.size
        order = "parallel" if dim.parallel else "sequential"
        lines.append(f"  grid {i}: {size} {order} ({dim.reason})")
    for operand in program.operands:
        lines += _operand(operand, names)
    for ref in program.scratch:
        lines.append(f"  scratch {names.of(ref)}: {type_text(ref)}")
    lines += _block(program.body, names, "  ")
    return "\n".join([*lines, "}"])


def type_text(x: Value | Ref) -> str:
    """Spell a type: `f32[8,128]`, with the memory space of a reference."""
    shape = ",".join(map(str, x.shape))
    if isinstance(x, Value):
        return f"{dtype_text(x.dtype)}[{shape}]"
    what = dtype_text(x.dtype) if x.kind == "memory" else x.kind
    return f"{x.space} {what}[{shape}]"


class _Names:
    """Short names in the order of first appearance."""

    def __init__(self):
        self._found: dict = {}
        self._values, self._refs = count(), count()

    def of(self, x) -> str:
        if x is None:
            return "-"
        if x not in self._found:
            is_ref = isinstance(x, Ref)
            number = next(self._refs if is_ref else self._values)
            self._found[x] = f"{'&' if is_ref else '%'}{number}"
        return self._found[x]


def _operand(operand: Operand, names: _Names) -> list[str]:
    shape = ",".join(map(str, operand.shape))
    array = f"{dtype_text(operand.dtype)}[{shape}]"
    text = f"  {operand.role} {names.of(operand.ref)}: {array} {operand.name!r}"
    if operand.alias is not None:
        text += f" shares memory with operand {operand.alias}"
    if operand.index_map is None:
        return [text]
    dims = ", ".join(map(_dim, operand.dims))
    lines = [f"{text} in blocks ({dims})"]
    ids = [names.of(x) for x in operand.index_map.inputs if isinstance(x, Value)]
    lines.append(f"    at ({', '.join(ids)}) ->")
    return lines + _block(operand.index_map, names, "    ")


def _dim(dim: BlockDim) -> str:
    if dim.squeezed:
        return "squeezed"
    low, high = dim.padding
    padding = f" padded by {low} and {high}" if low or high else ""
    return f"{dim.size} by {dim.step}{padding}"


def _block(block: Block, names: _Names, indent: str) -> list[str]:
    lines = []
    for op in block.ops:
        lines += _op(op, names, indent)
    if block.results:
        lines.append(f"{indent}yield {', '.join(map(names.of, block.results))}")
    return lines


def _op(op: Op, names: _Names, indent: str) -> list[str]:
    outs = ", ".join(f"{names.of(o)}:{type_text(o)}" for o in op.outputs)
    index = op.params.get("index")
    plain = [x for x in op.inputs if not (isinstance(x, Value) and _within(x, index))]
    while plain and plain[-1] is None:
        plain.pop()
    words = [op.kind, ", ".join(map(names.of, plain))]
    if index is not None:
        words.append(f"[{', '.join(_entry(e, names) for e in index)}]")
    told = {k: v for k, v in op.params.items() if k != "index" and v is not None}
    if told:
        words.append("{" + ", ".join(f"{k}={_param(v)}" for k, v in told.items()) + "}")
    line = f"{outs} = " if outs else ""
    lines = [indent + line + " ".join(w for w in words if w)]
    for block in op.blocks:
        inputs = ", ".join(map(names.of, block.inputs))
        lines.append(f"{indent}({inputs}) {{")
        lines += _block(block, names, indent + "  ")
        lines.append(f"{indent}}}")
    return lines


def _within(x: Value, index) -> bool:
    return any(x is e or (isinstance(e, Span) and x is e.start) for e in index or ())


def _entry(entry, names: _Names) -> str:
    if not isinstance(entry, Span):
        return names.of(entry)
    start = names.of(entry.start) if isinstance(entry.start, Value) else entry.start
    stride = f":{entry.stride}" if entry.stride != 1 else ""
    return f"{start}+{entry.size}{stride}"


def _param(value) -> str:
    if isinstance(value, np.ndarray):
        if value.size <= 8:
            return str(value.tolist())
        digest = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"{value.size} numbers, {digest}"
    return str(value)
