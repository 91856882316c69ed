"""A tile program to a module: one grid step, and how it is launched."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from tilejax.errors import UnsupportedKernel
from tilejax.lowering.cpu.access import View, dense_strides, store
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.checked import Checks, checked_launch
from tilejax.lowering.cpu.driver import Launch, add_driver, step_header
from tilejax.lowering.cpu.emit import Emitter
from tilejax.lowering.cpu.host import Host
from tilejax.lowering.cpu.memory import scratch
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.plan import Plan, plan
from tilejax.lowering.cpu.shaping import part_of
from tilejax.lowering.cpu.tiles import Scalar
from tilejax.lowering.cpu.types import TYPES, Elt, dtype_name, itemsize
from tilejax.lowering.tile.program import Operand, Ref, TileProgram


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
    for operand, pointer in operands:
        e.bind(operand.ref, _whole(operand, pointer, storage))
    for operand, pointer in operands:
        if operand.index_map is not None:
            e.bind(operand.ref, _block(e, operand, pointer, storage))
    for ref in program.scratch:
        e.bind(ref, scratch(e, ref))
    _clear_semaphores(e, program)
    if e.checks is not None:
        e.checks.clear_scratch()
    e.run(program.body)
    if e.checks is not None:
        e.checks.end()
    f.finish()
    launch = replace(launch, arena_bytes=arena.peak, uses_amx=module.uses_amx)
    add_driver(module, launch)
    return module, launch


def _check_dtypes(program: TileProgram) -> None:
    refs = [o.ref for o in program.operands] + list(program.scratch)
    for ref in refs:
        if ref.dtype.name not in TYPES:
            raise UnsupportedKernel(
                f"kernel {program.name}: memory of dtype {ref.dtype.name} has no "
                "native code on the CPU"
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


def _whole(operand: Operand, pointer: str, storage: Callable) -> View:
    return View(
        pointer,
        dtype_name(operand.dtype),
        operand.shape,
        dense_strides(operand.shape),
        storage(operand.ref),
        (None,) * len(operand.shape),
    )


def _block(e: Emitter, operand: Operand, pointer: str, storage: Callable) -> View:
    """The block of an operand at the place in the grid."""
    index_map, dims = operand.index_map, operand.dims
    assert index_map is not None
    for value, element in zip(index_map.inputs, e.ids, strict=False):
        e.bind(value, Scalar(element))
    with _without_plan(e):
        e.run(index_map)
    whole = _whole(operand, pointer, storage)
    starts = [e.index(value) for value in index_map.results]
    at, shape, strides, limits = [], [], [], []

    def emit(n):
        for start, dim, size, stride in zip(
            starts, dims, operand.shape, whole.strides, strict=True
        ):
            first = n.mul_index(start, dim.step)
            at.append((first, False))
            if dim.squeezed:
                continue
            shape.append(dim.size)
            strides.append(stride)
            limits.append(_limit(n, first, dim, size))
        return whole.address(n, whole.offset(n, at))

    if any(dim.padding != (0, 0) for dim in dims):
        raise e.refuse(f"padding of the block of {operand.name}")
    pointer = e.straight(emit)
    if e.checks is not None:
        e.checks.block(operand.ref, [first for first, _ in at], dims, operand.shape)
    return part_of(whole, pointer, shape, strides, limits)


def _limit(n, first, dim, size: int):
    """Where a block may pass the array's end, the first index outside; else None."""
    if isinstance(first, int):
        return None if first + dim.size <= size else size - first
    if dim.step == dim.size and size % dim.size == 0:
        return None
    return n.add_index(size, n.mul_index(first, -1))


@contextmanager
def _without_plan(e: Emitter) -> Iterator[None]:
    """Index maps are scalars, of which nothing is kept."""
    plan, e.plan = e.plan, Plan()
    yield
    e.plan = plan


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
