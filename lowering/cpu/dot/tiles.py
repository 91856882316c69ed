"""Micro-kernels on AMX tiles: 32 x 32 of the output in four tiles."""

from dataclasses import dataclass

from tilejax.lowering.cpu.module import Function, Module

ROWS = 16
"""Rows of a tile, and 4-byte columns of one."""

BYTES = 64
"""Bytes of a tile's row: of k in a, of one group of k for 16 columns in b."""


@dataclass(frozen=True)
class TileKernel:
    """What a micro-kernel on tiles is made for.

    **Arguments:**

    - `instruction`: the name of its intrinsic.
    - `rows`, `columns`: tiles of the output, at most 2 by 2.
    - `steps`: tiles along k.
    - `a_row`, `b_k`, `out_row`: bytes between rows of a, groups of b, rows of `out`.
    - `accumulate`: whether the output is added to.
    """

    instruction: str
    rows: int
    columns: int
    steps: int
    a_row: int
    b_k: int
    out_row: int
    accumulate: bool

    @property
    def name(self) -> str:
        """A name that tells it apart from every other."""
        numbers = (
            self.rows,
            self.columns,
            self.steps,
            self.a_row,
            self.b_k,
            self.out_row,
            int(self.accumulate),
        )
        return "_".join(["tiles", self.instruction, *map(str, numbers)])


def tile_kernel(module: Module, t: TileKernel) -> str:
    """Return the name of the function of a micro-kernel, made when first wanted.

    It has the arguments of other micro-kernels, and needs tiles that are configured
    for 16 rows of 64 bytes.
    """
    module.uses_amx = True
    if t.name not in module.functions:
        _emit(module, t)
    return t.name


def _emit(module: Module, t: TileKernel) -> None:
    f = Function(
        module,
        f"define internal void @{t.name}(ptr noalias %a, ptr noalias %b, "
        "ptr noalias %out, ptr noalias %offset, ptr %ahead) noinline nounwind",
    )
    # Tiles 0 to 3 hold the output, 4 and 5 rows of a, 6 and 7 columns of b.
    places = [(r, c) for r in range(t.rows) for c in range(t.columns)]
    outputs = {
        (r, c): _place(f, "%out", r * ROWS * t.out_row + c * BYTES) for r, c in places
    }
    for r, c in places:
        if t.accumulate:
            _load(f, 2 * r + c, outputs[r, c], t.out_row)
        else:
            _call(f, "tilezero", ("i8 immarg",), f"i8 {2 * r + c}")
    a_at, b_at = f.alloca("ptr"), f.alloca("ptr")
    f.line(f"store ptr %a, ptr {a_at}")
    f.line(f"store ptr %b, ptr {b_at}")
    with f.loop(t.steps):
        a = _define(f, f"load ptr, ptr {a_at}")
        b = _define(f, f"load ptr, ptr {b_at}")
        for r in range(t.rows):
            _load(f, 4 + r, _place(f, a, r * ROWS * t.a_row), t.a_row)
        for c in range(t.columns):
            _load(f, 6 + c, _place(f, b, c * BYTES), t.b_k)
        for r, c in places:
            numbers = f"i8 {2 * r + c}, i8 {4 + r}, i8 {6 + c}"
            _call(f, t.instruction, ("i8 immarg",) * 3, numbers)
        f.line(f"store ptr {_place(f, a, BYTES)}, ptr {a_at}")
        f.line(f"store ptr {_place(f, b, ROWS * t.b_k)}, ptr {b_at}")
    for r, c in places:
        arguments = f"i8 {2 * r + c}, ptr {outputs[r, c]}, i64 {t.out_row}"
        _call(f, "tilestored64", ("i8 immarg", "ptr", "i64"), arguments)
    f.finish()


def _define(f: Function, right: str) -> str:
    name = f.name()
    f.line(f"{name} = {right}")
    return name


def _place(f: Function, base: str, offset: int) -> str:
    if offset == 0:
        return base
    return _define(f, f"getelementptr i8, ptr {base}, i64 {offset}")


def _load(f: Function, tile: int, address: str, row: int) -> None:
    arguments = f"i8 {tile}, ptr {address}, i64 {row}"
    _call(f, "tileloadd64", ("i8 immarg", "ptr", "i64"), arguments)


def _call(f: Function, name: str, types: tuple[str, ...], arguments: str) -> None:
    f.module.declare(f"declare void @llvm.x86.{name}({', '.join(types)})")
    f.line(f"call void @llvm.x86.{name}({arguments})")
