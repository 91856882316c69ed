"""Walking a body: what each operation of a tile program becomes in LLVM IR."""

from collections.abc import Callable, Sequence

from tilejax.errors import UnsupportedKernel
from tilejax.lowering.cpu import (
    atomics,
    checked_access,
    control,
    dots,
    memory,
    printing,
    reduce,
    shaping,
    sort,
    windows,
)
from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.checked import Checks
from tilejax.lowering.cpu.edges import Inside
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.plan import Plan
from tilejax.lowering.cpu.tiles import Load, Mapped, Scalar, Stretched, Tile
from tilejax.lowering.cpu.types import Elt, dtype_name
from tilejax.lowering.cpu.write import Writer
from tilejax.lowering.tile.program import Block, Op, Ref, Value

_RULES: dict[str, Callable] = {
    **shaping.RULES,
    **reduce.RULES,
    **dots.RULES,
    **memory.RULES,
    **atomics.RULES,
    **control.RULES,
    **windows.RULES,
    **sort.RULES,
    **printing.RULES,
}


class Emitter(Writer):
    """The code of one grid step while it grows.

    **Arguments:**

    - `function`, `arena`: where code and scratch go.
    - `plan`: which values are kept in memory.
    - `kernel`: its name, for errors.
    - `ids`: the place in the grid, an i32 a dimension.
    - `sizes`: the grid's sizes, an i32 a dimension.

    `is_shared` says whether other steps may run at the same time, `inside` what
    comparisons are known to hold.
    """

    def __init__(
        self,
        function: Function,
        arena: Arena,
        plan: Plan,
        kernel: str,
        ids: Sequence[Elt],
        sizes: Sequence[Elt],
    ):
        super().__init__(function, arena)
        self.plan, self.kernel = plan, kernel
        self.ids, self.sizes = tuple(ids), tuple(sizes)
        self.line = ""
        self.is_shared = False
        self.checks: Checks | None = None
        self.inside: Inside | None = None
        self._tiles: dict[Value, Tile] = {}
        self._views: dict[Ref, View] = {}

    def tile(self, value: Value) -> Tile:
        """Return what a value has become."""
        return self._tiles[value]

    def view(self, ref: Ref) -> View:
        """Return the memory of a reference."""
        return self._views[ref]

    def bind(self, x: Value | Ref, to: Tile | View) -> None:
        """Say what a value or a reference has become."""
        if isinstance(to, View):
            assert isinstance(x, Ref)
            self._views[x] = to
        else:
            assert isinstance(x, Value)
            self._tiles[x] = to

    def refuse(self, what: str) -> UnsupportedKernel:
        """Make the error of something that has no code."""
        where = f" at {self.line}" if self.line else ""
        return UnsupportedKernel(
            f"kernel {self.kernel}: {what}{where} has no native code on the CPU; run "
            "it with interpret=True, or ask for fallback='interpret'"
        )

    def run(self, block: Block) -> list[Tile]:
        """Emit a body; its inputs are bound already. Return its results."""
        for op in block.ops:
            self.line = op.line
            if self.checks is not None:
                checked_access.before(self, self.checks, op)
            outs = self._operation(op)
            for value, made in zip(op.outputs, outs, strict=True):
                self.bind(value, self._placed(value, made))
            if self.checks is not None:
                checked_access.after(self, self.checks, op)
        return [self.tile(x) for x in block.results]

    def _operation(self, op: Op) -> Sequence[Tile | View]:
        if op.kind in OPS:
            return [self._elementwise(op)]
        rule = _RULES.get(op.kind)
        if rule is None:
            raise self.refuse(f"the operation {op.kind}")
        try:
            return rule(self, op)
        except UnsupportedKernel:
            raise
        except Exception as error:
            # a form of an operation that no rule has thought of
            what = f"the operation {op.kind} ({type(error).__name__}: {error})"
            raise self.refuse(what) from error

    def _placed(self, value, made: Tile | View) -> Tile | View:
        if isinstance(made, View) or value not in self.plan.kept:
            return made
        if isinstance(made, Load) and made.is_plain and not made.reads:
            return made
        return self.keep(made)

    def _elementwise(self, op: Op) -> Tile:
        (out,) = op.outputs
        args = [self.tile(x) for x in op.inputs]
        if self.inside is not None and out.shape:
            if self.inside.is_true(op):
                return Stretched(Scalar(Elt("true", "bool")), (), out.shape)
            if op.kind == "select_n" and len(args) == 3 and _is_true(args[0]):
                return args[2]
        rule, dtype = OPS[op.kind].rule, dtype_name(out.dtype)
        tile = Mapped(rule, op.params, args, out.shape, dtype)
        return tile if out.shape else self.number(tile)

    def number(self, tile: Tile) -> Scalar:
        """Compute a tile of one element now.

        Whether LLVM would see it together with what uses it depends on what is emitted
        in between, so it is rounded in any case.
        """
        places = ((0, False),) * len(tile.shape)
        return Scalar(self.straight(lambda n: tile.at(n, places), contract=False))

    def index(self, value: Value | int) -> int | str:
        """Return a scalar as an i64."""
        if isinstance(value, int):
            return value
        element = self.scalar(value)
        return self.straight(lambda n: n.as_index(element))

    def scalar(self, value: Value) -> Elt:
        """Return the element of a scalar."""
        tile = self.tile(value)
        return self.straight(lambda n: tile.at(n, ()))


def _is_true(tile: Tile) -> bool:
    while isinstance(tile, Stretched):
        (tile,) = tile.args
    return isinstance(tile, Scalar) and tile.element.text == "true"


def straight(function: Function, emit: Callable):
    """Emit code without loops; return what `emit` of the nest returns."""
    n = Nest(function)
    found = emit(n)
    n.flush()
    return found
