"""A tile program to a module: one grid step, and how it is launched."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from tilejax.errors import UnsupportedKernel
from tilejax.lowering.cpu.access import View, store
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.blocks import Block, whole
from tilejax.lowering.cpu.checked import Checks
from tilejax.lowering.cpu.checked_owners import checked_launch
from tilejax.lowering.cpu.driver import Launch, add_driver, step_header
from tilejax.lowering.cpu.edges import run_in_two
from tilejax.lowering.cpu.emit import Emitter
from tilejax.lowering.cpu.host import Host
from tilejax.lowering.cpu.memory import scratch
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.plan import plan
from tilejax.lowering.cpu.streaming import is_streamed
from tilejax.lowering.cpu.types import TYPES, Elt, dtype_name, itemsize
from tilejax.lowering.tile.program import Operand, Ref, TileProgram, blocks_within


def build(
    program: TileProgram, host: Host, checked: Mapping[Ref, str] | None = None
) -> tuple[Module, Launch]:
    """Generate the code of a tile program, and say how to launch it.

    **Arguments:**

    - `checked`: to check what it reads and writes: the names of its references.

    **Raises:** `UnsupportedKernel`, naming the operation and the user's line.
    """
    _check_dtypes(program)
    module = Module(host)
    launch = _launch(program)
    if checked is not None:
        launch = checked_launch(launch, program)
    f = Function(module, step_header(launch))
    arena = Arena(f)
    storage = _storages(program, arena.storage)
    made = plan(program.body, storage)
    e = Emitter(f, arena, made, program.name, *_places(program, f, launch))
    operands = list(zip(program.operands, _pointers(program, launch), strict=True))
    if checked is not None:
        e.checks = Checks(e, program, launch, checked, [p for _, p in operands])
        e.checks.begin()
    e.is_shared = any(dim.parallel for dim in program.grid)
    for operand, pointer in operands:
        e.bind(operand.ref, whole(operand, pointer, storage))
    blocks = [
        Block(e, operand, _array(program, operand, pointer, storage))
        for operand, pointer in operands
        if operand.index_map is not None
    ]
    for block in blocks:
        e.bind(block.operand.ref, block.view)
    for ref in program.scratch:
        e.bind(ref, scratch(e, ref))
    _clear_semaphores(e, program)
    if e.checks is not None:
        e.checks.clear_scratch()
    if not run_in_two(e, program, blocks):
        e.run(program.body)
    for block in blocks:
        block.leave()
    if e.checks is not None:
        e.checks.end()
    _await_stores(f)
    f.finish()
    launch = replace(launch, arena_bytes=arena.peak, uses_amx=module.uses_amx)
    add_driver(module, launch)
    return module, launch


def _array(program: TileProgram, operand: Operand, pointer: str, storage) -> View:
    streamed = is_streamed(program, operand)
    return replace(whole(operand, pointer, storage), streamed=streamed)


def _await_stores(f: Function) -> None:
    """Whoever is told that the step is done must see what went past the caches."""
    if f.module.streams and f.module.host.is_x86:
        f.module.declare("declare void @llvm.x86.sse.sfence()")
        f.line("call void @llvm.x86.sse.sfence()")


def _check_dtypes(program: TileProgram) -> None:
    for ref in [o.ref for o in program.operands] + list(program.scratch):
        _check_dtype(program, ref.dtype, "memory", "")
    maps = [o.index_map for o in program.operands if o.index_map is not None]
    for body in (program.body, *maps):
        for block in blocks_within(body):
            for op in block.ops:
                for out in op.outputs:
                    _check_dtype(program, out.dtype, op.kind, op.line)


def _check_dtype(program: TileProgram, dtype, what: str, line: str) -> None:
    if dtype.name not in TYPES:
        where = f" at {line}" if line else ""
        raise UnsupportedKernel(
            f"kernel {program.name}: {what} of dtype {dtype.name}{where} has no native "
            "code on the CPU; run it with interpret=True, or ask for "
            "fallback='interpret'"
        )


def _launch(program: TileProgram) -> Launch:
    outputs = [o for o in program.operands if o.role == "output"]
    sizes = tuple(d.size for d in program.grid)
    return Launch(
        name=program.name,
        inputs=len(program.operands) - len(outputs),
        outputs=len(outputs),
        grid=sizes,
        parallel=tuple(d.parallel for d in program.grid),
        output_bytes=tuple(_bytes(o) for o in outputs),
        sizes=None in sizes,
        aliases=tuple(
            (o.alias, i) for i, o in enumerate(outputs) if o.alias is not None
        ),
        is_seen=any(
            op.kind == "print"
            for block in blocks_within(program.body)
            for op in block.ops
        ),
    )


def _pointers(program: TileProgram, launch: Launch) -> list[str]:
    """The buffers of the operands; a checked launch has others after each kind."""
    outputs = [o.role == "output" for o in program.operands]
    first = launch.inputs - outputs.count(False)
    return [f"%a{k + first * is_output}" for k, is_output in enumerate(outputs)]


def _bytes(operand: Operand) -> int:
    return math.prod(operand.shape) * itemsize(dtype_name(operand.dtype))


def _places(program: TileProgram, f: Function, launch: Launch):
    ids = [Elt(f"%pid{d}", "int32") for d in range(len(program.grid))]
    sizes = [
        Elt(f"%size{d}" if launch.sizes else str(dim.size), "int32")
        for d, dim in enumerate(program.grid)
    ]
    return ids, sizes


def _storages(program: TileProgram, new: Callable[[], int]) -> Callable[[Ref], int]:
    """Number the memory of each reference; what is shared has one number."""
    found: dict[Ref, int] = {}
    for operand in program.operands:
        if operand.alias is None:
            found[operand.ref] = new()
        else:
            found[operand.ref] = found[program.operands[operand.alias].ref]
    return lambda ref: found.setdefault(ref, new())


def _clear_semaphores(e: Emitter, program: TileProgram) -> None:
    """Semaphores count from zero at the first step of a unit."""
    counters = [r for r in program.scratch if r.kind != "memory"]
    if not counters:
        return
    f, first, rest = e.function, e.function.label(), e.function.label()
    steps = [e.ids[d].text for d, dim in enumerate(program.grid) if not dim.parallel]
    total = "0"
    for text in steps:
        name = f.name()
        f.line(f"{name} = or i32 {total}, {text}")
        total = name
    is_first = f.name()
    f.line(f"{is_first} = icmp eq i32 {total}, 0")
    f.line(f"br i1 {is_first}, label %{first}, label %{rest}")
    f.line(f"{first}:")
    zero = Elt("0", "int32")
    for view in map(e.view, counters):
        e.each(view.shape, None, lambda n, at, tail, v=view: store(n, v, at, zero))
    f.place(rest)
