"""A kernel to a tile program: calls inlined, accesses and loops in one form."""

from collections.abc import Callable, Sequence

import numpy as np

from tilejax._jax import pallas
from tilejax._jax.expanded import plain_program
from tilejax._jax.jaxprs import Eqn, Program, consts, is_dropped, is_literal
from tilejax._jax.values import literal_value
from tilejax.errors import UnsupportedKernel
from tilejax.lowering.tile import control, memory, values, windows
from tilejax.lowering.tile.build import Builder
from tilejax.lowering.tile.dead import without_dead
from tilejax.lowering.tile.parallel import grid_dims
from tilejax.lowering.tile.program import (
    Block,
    BlockDim,
    Operand,
    Ref,
    TileProgram,
    Value,
)

_RULES: dict[str, Callable] = {
    **values.RULES,
    **windows.RULES,
    **memory.RULES,
    **control.RULES,
}


def normalise(call: pallas.PallasCall) -> TileProgram:
    """Bring a kernel to the one form that emitters read.

    **Raises:** `UnsupportedKernel`, naming the primitive and the user's line.
    """
    operands = _operands(call)
    scratch = tuple(Ref(s.shape, _dtype(s), s.space, s.kind) for s in call.scratch)
    axes = _counted(call)
    refs = [o.ref for o in operands]
    apart = frozenset(o.ref for o in operands if _is_apart(o))
    body = _body(call.name, axes, call.body, [*refs, *scratch], apart)
    program = TileProgram(call.name, (), tuple(operands), scratch, body)
    program.grid = grid_dims(call, program)
    return program


def _counted(call: pallas.PallasCall) -> list[int]:
    """The dimensions of the grid that `program_id` counts."""
    return [d for d in range(len(call.grid)) if d not in call.vmapped]


def _dtype(described: pallas.Scratch) -> np.dtype:
    """Semaphores are counters."""
    return described.dtype or np.dtype(np.int32)


def _operands(call: pallas.PallasCall) -> list[Operand]:
    found = []
    for i, told in enumerate(call.indices):
        ref = Ref(told.shape, _dtype(told), told.space)
        dims = tuple(BlockDim(n, False, n) for n in told.shape)
        operand = Operand(
            "index", f"index{i}", ref, told.shape, ref.dtype, dims, index_map=None
        )
        found.append(operand)
    index_refs = [o.ref for o in found]
    axes = _counted(call)
    shared = {out: of for of, out in call.aliases}
    for i, told in enumerate(call.blocks):
        dims = tuple(BlockDim(d.size, d.squeezed, d.step, d.padding) for d in told.dims)
        seen = tuple(d.size for d in dims if not d.squeezed)
        ids = [Value((), np.dtype(np.int32)) for _ in call.grid]
        is_input = i < call.inputs
        index_map = _index_map(call.name, axes, told.index_map, ids, index_refs)
        found.append(
            Operand(
                "input" if is_input else "output",
                told.origin,
                Ref(seen, told.dtype, told.space),
                told.shape,
                told.dtype,
                dims,
                index_map,
                None if is_input else shared.get(i - call.inputs),
            )
        )
    return found


def _index_map(
    name: str, axes: Sequence[int], program: Program, ids: list[Value], refs: list[Ref]
) -> Block:
    block = _body(f"{name}'s index map", axes, program, [*ids, *refs])
    return Block((*ids, *refs), block.ops, block.results)


def _is_apart(operand: Operand) -> bool:
    """Whether a block is not one run of memory, or may pass the array's end."""
    sizes = zip(operand.dims, operand.shape, strict=True)
    wide = [d for d, (dim, _) in enumerate(sizes) if dim.size != 1]
    rest = range(wide[0] + 1, len(operand.shape)) if wide else ()
    is_run = all(operand.dims[d].size == operand.shape[d] for d in rest)
    is_inside = all(
        dim.step == dim.size and size % dim.size == 0
        for dim, size in zip(operand.dims, operand.shape, strict=True)
        if dim.size
    )
    return not (is_run and is_inside)


def _body(
    name: str,
    axes: Sequence[int],
    program: Program,
    inputs: Sequence,
    apart: frozenset[Ref] = frozenset(),
) -> Block:
    builder = Builder(name, axes, _walk)
    builder.apart = apart
    try:
        results = builder.walk(program, inputs)
    except pallas.NotDescribable as error:
        raise builder.refuse(str(error)) from None
    return without_dead(Block(tuple(inputs), builder.ops, tuple(results)))


def _walk(
    builder: Builder, program: Program, inputs: Sequence, constants: Sequence
) -> list:
    env = dict(zip(program.invars, inputs, strict=True))
    if not constants:
        constants = [builder.constant(np.asarray(v)) for v in consts(program)]
    env.update(zip(program.constvars, constants, strict=True))

    def read(atom):
        if is_literal(atom):
            return builder.constant(literal_value(atom))
        return env[atom]

    outer = builder.line
    for eqn in program.eqns:
        builder.line = pallas.line_of(eqn) or outer
        outs = _equation(builder, eqn, [read(a) for a in eqn.invars])
        for var, out in zip(eqn.outvars, outs, strict=True):
            if not is_dropped(var):
                env[var] = out
    builder.line = outer
    return [read(a) for a in program.outvars]


def _expanded(builder: Builder, eqn: Eqn, inputs: list) -> list:
    """What has no rule of its own may be a program of primitives that have."""
    program = plain_program(eqn)
    if program is None:
        raise builder.refuse(f"the primitive {eqn.primitive.name}")
    return builder.walk(program, inputs)


def _equation(builder: Builder, eqn: Eqn, inputs: list) -> list:
    name = eqn.primitive.name
    rule = _RULES.get(name, _expanded)
    try:
        outs = rule(builder, eqn, inputs)
    except (UnsupportedKernel, pallas.NotDescribable):
        raise
    except Exception as error:
        # a form of a primitive that no rule has thought of
        what = f"the primitive {name} ({type(error).__name__}: {error})"
        raise builder.refuse(what) from error
    return list(outs) if isinstance(outs, (list, tuple)) else [outs]
