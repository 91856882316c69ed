"""One grid step made into a kernel that XLA can call.

    module = Module(host)
    ...  # emit `define internal void @step(...)` into it
    launch = Launch("matmul", inputs=2, outputs=1, grid=(8, None, 4),
                    parallel=(True, True, False), arena_bytes=1 << 16, step_ns=900)
    add_driver(module, launch)          # adds @units, @plan and @handler
    target = ffi.register(module.text(), launch, host)
    results = ffi.call(ctx, nodes, target, launch)   # in a lowering rule of JAX's

`@step` must have the signature that `step_header(launch)` returns:

    define internal void @step(ptr %a0, ..., ptr %aN, i32 %pid0, ..., [i32 %size0, ...]
                               ptr noalias %arena, ptr noalias %fault)

- `%a*`: the data of inputs, then outputs. Sizes of the grid that are operands (None in
  `grid`) come before the inputs among XLA's operands and are not among `%a*`.
- `%pid*`: the indices of all grid dimensions, in order; with `sizes`, the dimensions'
  sizes follow.
- `%arena`: `arena_bytes` of scratch, aligned to 4096 bytes at least (2 MiB from 2 MiB
  on), of unspecified content; null for none. It belongs to one unit, that is one index
  of the parallel dimensions, whose sequential steps run in row-major order on one
  thread.
- `%fault`: null unless `checked`. Else 16 i64 words, zero at first: whoever changes
  word 0 from zero by compare-and-swap owns the other 15. After all units have run, a
  record whose word 0 is not zero is described by the module's own
  `define internal void @describe(ptr %fault, ptr %text, i64 %size)`, which writes a
  text with its closing zero, and becomes the call's error.
"""

import math
from contextlib import ExitStack
from dataclasses import dataclass

from tilejax.lowering.cpu.abi import BLOCK, LAYOUT
from tilejax.lowering.cpu.module import Function, Module


@dataclass(frozen=True)
class Launch:
    """How the steps of a kernel are run.

    **Arguments:**

    - `name`: the kernel's, for people.
    - `inputs`, `outputs`: how many buffers a step sees of each.
    - `grid`: the sizes; None for one that is an operand, an i32 scalar, and may turn
      out to be zero or less: then nothing runs.
    - `parallel`: whether the indices of each dimension may run at the same time.
    - `arena_bytes`: scratch of a unit.
    - `step_ns`: an estimate of how long a step takes, in nanoseconds; 0 if unknown.
      Work that is worth no second thread stays on the caller's, and short units are
      claimed several at once. Unknown work is shared out unit by unit.
    - `output_bytes`: of each output; from 8 MiB on, huge pages are asked for.
    - `uses_amx`: each worker loads the tile configuration: eight tiles of 16 rows of 64
      bytes.
    - `checked`: steps may record a fault.
    - `sizes`: steps are told the grid's sizes.
    - `aliases`: pairs of an input and the output that shares its buffer.
    - `is_seen`: whether it does more than compute its outputs, such as print.
    """

    name: str
    inputs: int
    outputs: int
    grid: tuple[int | None, ...] = ()
    parallel: tuple[bool, ...] = ()
    arena_bytes: int = 0
    step_ns: int = 0
    output_bytes: tuple[int, ...] = ()
    uses_amx: bool = False
    checked: bool = False
    sizes: bool = False
    aliases: tuple[tuple[int, int], ...] = ()
    is_seen: bool = False

    def __post_init__(self):
        assert len(self.grid) == len(self.parallel), "a word for each grid dimension"
        assert not self.output_bytes or len(self.output_bytes) == self.outputs

    @property
    def dynamic(self) -> list[int]:
        """The grid dimensions whose sizes are operands."""
        return [d for d, size in enumerate(self.grid) if size is None]


def step_header(launch: Launch) -> str:
    """Return the signature that the step of a launch must have.

    Buffers that no other shares are `noalias`. A step has "no-builtins": LLVM would
    turn loops into calls of the C library, which generated code cannot reach.
    """
    shared = {i for i, _ in launch.aliases}
    shared |= {launch.inputs + o for _, o in launch.aliases}
    buffers = [
        f"ptr {'' if k in shared else 'noalias '}%a{k}"
        for k in range(launch.inputs + launch.outputs)
    ]
    pids = [f"i32 %pid{d}" for d in range(len(launch.grid))]
    sizes = [f"i32 %size{d}" for d in range(len(launch.grid)) if launch.sizes]
    rest = ["ptr noalias %arena", "ptr noalias %fault"]
    signature = ", ".join([*buffers, *pids, *sizes, *rest])
    return f'define internal void @step({signature}) "no-builtins"'


def add_driver(module: Module, launch: Launch) -> None:
    """Add to a module with `@step` what runs it over the grid: `@handler`, for XLA."""
    _add_units(module, launch)
    tiles = _add_tiles(module) if launch.uses_amx else ("null", "null")
    module.globals["@plan"] = _plan(launch, *tiles)
    module.declare("declare ptr @tilejax_run(ptr, ptr)")
    module.functions["handler"] = (
        "define ptr @handler(ptr %frame) {\n"
        "  %error = call ptr @tilejax_run(ptr %frame, ptr @plan)\n"
        "  ret ptr %error\n"
        "}"
    )


def _plan(launch: Launch, enter: str, leave: str) -> str:
    """Fill in the record whose layout is `abi.PLAN`."""
    known = [(n, p) for n, p in zip(launch.grid, launch.parallel, strict=True)]
    units = math.prod(max(n, 0) for n, p in known if p and n is not None)
    steps = math.prod(max(n, 0) for n, p in known if not p and n is not None)
    mask = sum(launch.parallel[d] << k for k, d in enumerate(launch.dynamic))
    numbers = [
        launch.arena_bytes,
        launch.step_ns,
        len(launch.dynamic),
        units,
        steps,
        mask,
        *(launch.output_bytes or (0,) * launch.outputs),
    ]
    describe = "@describe" if launch.checked else "null"
    pointers = [f"ptr {p}" for p in ("@units", enter, leave, describe)]
    values = [f"i64 {LAYOUT}", *pointers, *(f"i64 {n}" for n in numbers)]
    types = ", ".join(value.split()[0] for value in values)
    return f"internal constant {{ {types} }} {{ {', '.join(values)} }}, align 64"


def _add_units(module: Module, launch: Launch) -> None:
    """Add the function that runs the steps of units `%from` to `%to`."""
    function = Function(
        module,
        "define internal void @units(ptr %block, i64 %from, i64 %to, "
        "ptr %arena, ptr %fault)",
    )
    sizes: list[int | str] = [0 if n is None else n for n in launch.grid]
    slots = [(d, "i64") for d in launch.dynamic]
    slots += [(None, "ptr")] * (launch.inputs + launch.outputs)
    buffers = []
    for k, (dimension, kind) in enumerate(slots):
        at = f"getelementptr i8, ptr %block, i64 {BLOCK.slots + 8 * k}"
        value = function.at_entry(f"load {kind}, ptr {function.at_entry(at)}")
        if dimension is None:
            buffers.append(f"ptr {value}")
        else:
            sizes[dimension] = value
    with ExitStack() as loops:
        unit = loops.enter_context(function.loop("%to", start="%from"))
        index = _parallel_indices(function, launch, sizes, unit)
        for d, size in enumerate(sizes):
            if not launch.parallel[d]:
                index[d] = loops.enter_context(function.loop(size))
        numbers = [index[d] for d in range(len(sizes))]
        if launch.sizes:
            numbers += sizes
        arguments = [*buffers, *(f"i32 {_narrow(function, n)}" for n in numbers)]
        arguments += ["ptr %arena", "ptr %fault"]
        function.line(f"call void @step({', '.join(arguments)})")
    function.finish()


def _parallel_indices(
    function: Function, launch: Launch, sizes: list[int | str], unit: str
) -> dict[int, int | str]:
    """Take a unit's number apart, the last dimension running fastest."""
    index: dict[int, int | str] = {}
    dimensions = [d for d, parallel in enumerate(launch.parallel) if parallel]
    rest = unit
    for d in reversed(dimensions[1:]):
        # A known size of zero is never divided by: there are no units then.
        size = sizes[d] or 1
        index[d], quotient = function.name(), function.name()
        function.line(f"{index[d]} = urem i64 {rest}, {size}")
        function.line(f"{quotient} = udiv i64 {rest}, {size}")
        rest = quotient
    for d in dimensions[:1]:
        index[d] = rest
    return index


def _narrow(function: Function, number: int | str) -> int | str:
    if isinstance(number, int):
        return number
    name = function.name()
    function.line(f"{name} = trunc i64 {number} to i32")
    return name


def _add_tiles(module: Module) -> tuple[str, str]:
    """Add what sets the tile registers up and frees them again."""
    rows, columns = [16] * 8 + [0] * 8, [64, 0] * 8 + [0] * 16
    shape = [1, 0, *[0] * 14, *columns, *rows]
    values = ", ".join(f"i8 {byte}" for byte in shape)
    module.globals["@tile_shapes"] = f"internal constant [64 x i8] [{values}], align 64"
    module.declare("declare void @llvm.x86.ldtilecfg(ptr)")
    module.declare("declare void @llvm.x86.tilerelease()")
    module.functions["enter"] = (
        "define internal void @enter() {\n"
        "  call void @llvm.x86.ldtilecfg(ptr @tile_shapes)\n"
        "  ret void\n"
        "}"
    )
    module.functions["leave"] = (
        "define internal void @leave() {\n"
        "  call void @llvm.x86.tilerelease()\n"
        "  ret void\n"
        "}"
    )
    return "@enter", "@leave"
