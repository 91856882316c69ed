"""Checks of what a kernel reads and writes, emitted with its code when asked for.

A check comes before the operation that it is about, and ends the grid step where it
finds a fault, so that memory which is not the kernel's is never touched. Operations
themselves are emitted as ever, so a checked kernel computes the very same numbers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.checked_owners import (
    Owners,
    element_bytes,
    owners_of_outputs,
)
from tilejax.lowering.cpu.checked_runtime import (
    STATE,
    UNJUDGED,
    WORDS,
    runtime_text,
)
from tilejax.lowering.cpu.checked_text import add_describe
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import itemsize
from tilejax.lowering.tile.program import Operand, Ref, TileProgram, blocks_within

if TYPE_CHECKING:
    from tilejax.lowering.cpu.emit import Emitter


class Checks:
    """The checks of one kernel while its code grows.

    **Arguments:**

    - `e`: emits the kernel.
    - `launch`: as `checked_launch` returned it.
    - `names`: what the user calls each reference.
    - `pointers`: the data of each operand of the program.
    """

    def __init__(
        self,
        e: "Emitter",
        program: TileProgram,
        launch: Launch,
        names: Mapping[Ref, str],
        pointers: Sequence[str],
    ):
        self.e, self.program, self.launch = e, program, launch
        self.names = dict(names)
        self.sites: list[tuple[str, tuple[int, ...]]] = []
        self.exit = e.function.label()
        self.state = e.function.alloca(STATE)
        self._table = f"%a{launch.inputs + launch.outputs - 1}"
        kinds = {op.kind for b in blocks_within(program.body) for op in b.ops}
        # who holds a lock may write what others wrote
        self._common = UNJUDGED if "compare_exchange" in kinds else 0
        self.owners = owners_of_outputs(
            e.function, self._table, program, pointers, self._common
        )
        e.function.module.functions["checked"] = runtime_text()
        self._declare()

    def _declare(self) -> None:
        for text in (
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "declare i64 @llvm.smax.i64(i64, i64)",
            "declare i64 @llvm.smin.i64(i64, i64)",
        ):
            self.e.function.module.declare(text)

    # The frame of a step

    def begin(self) -> None:
        """Note the place in the grid; do nothing where a fault has been found."""
        f, grid = self.e.function, self.program.grid
        f.line(f"store ptr %fault, ptr {self.state}")
        self.leave_if_faulty()
        ids = [self._wide(e.text) for e in self.e.ids]
        unit = "0"
        for d, dim in enumerate(grid):
            if dim.parallel:
                unit = self.define(f"mul i64 {unit}, {self._size(d)}")
                unit = self.define(f"add i64 {unit}, {ids[d]}")
        words = [self.define(f"add i64 {unit}, 1"), *ids[:WORDS]]
        for k, word in enumerate(words, 1):
            at = f.name()
            f.line(f"{at} = getelementptr i64, ptr {self.state}, i64 {k}")
            f.line(f"store i64 {word}, ptr {at}")

    def end(self) -> None:
        """Look for elements that nobody has written, when the last unit is done."""
        f, grid = self.e.function, self.program.grid
        whole, whole_end = f.label(), f.label()
        last = "true"
        units = "1"
        for d, dim in enumerate(grid):
            if dim.parallel:
                units = self.define(f"mul i64 {units}, {self._size(d)}")
                continue
            rest = self.define(f"sub i64 {self._size(d)}, 1")
            here = self.define(f"icmp eq i64 {self._wide(self.e.ids[d].text)}, {rest}")
            last = self.define(f"and i1 {last}, {here}")
        f.line(f"br i1 {last}, label %{whole}, label %{self.exit}")
        f.line(f"{whole}:")
        before = self.define(f"atomicrmw add ptr {self._table}, i32 1 acq_rel")
        done = self.define(f"add i64 {self._wide(before)}, 1")
        every = self.define(f"icmp eq i64 {done}, {units}")
        f.line(f"br i1 {every}, label %{whole_end}, label %{self.exit}")
        f.line(f"{whole_end}:")
        self.e.line = ""
        for operand in self.program.operands:
            owners = self.owners.get(operand.ref)
            is_new = operand.role == "output" and operand.alias is None
            if owners is None or not is_new:
                continue
            name = self.names[operand.ref]
            site = self.site(name, owners.shape)
            count = math.prod(owners.shape)
            self.call("whole", site, f"ptr {owners.pointer}, i64 {count}")
        f.place(self.exit)
        module = f.module
        sizes = [dim.size for dim in grid if dim.parallel]
        known = [n for n in sizes if n is not None]
        add_describe(
            module,
            self.sites,
            min(len(grid), WORDS),
            known if len(known) == len(sizes) else (),
        )

    def _size(self, d: int) -> str:
        return self._wide(self.e.sizes[d].text)

    def _wide(self, text: str) -> str:
        return self.define(f"sext i32 {text} to i64") if text.startswith("%") else text

    def define(self, right: str) -> str:
        """Define a value where code is being emitted."""
        name = self.e.function.name()
        self.e.function.line(f"{name} = {right}")
        return name

    def leave_if_faulty(self) -> None:
        """Leave the step when anybody has found a fault."""
        f, on = self.e.function, self.e.function.label()
        word = self.define("load atomic i64, ptr %fault monotonic, align 8")
        clean = self.define(f"icmp eq i64 {word}, 0")
        f.line(f"br i1 {clean}, label %{on}, label %{self.exit}")
        f.line(f"{on}:")

    def site(self, what: str, shape: Sequence[int] = ()) -> int:
        """Number a place where something may go wrong, at the line at hand.

        **Arguments:**

        - `what`: happens there.
        - `shape`: of the memory whose elements a fault there names.
        """
        where = f" at {self.e.line}" if self.e.line else ""
        text = f"kernel {self.program.name}: {what}{where}"
        self.sites.append((text, tuple(shape)))
        return len(self.sites) - 1

    def call(self, name: str, site: int, rest: str) -> None:
        """Emit the call of one of the functions of `checked_runtime`."""
        state = f"ptr {self.state}, i64 {site}"
        self.e.function.line(f"call void @checked_{name}({state}, {rest})")

    # Memory that a unit, or a body, has for itself

    def clear_scratch(self) -> None:
        """Poison scratch at the first step of a unit: no element has been written."""
        refs = [r for r in self.program.scratch if r.kind == "memory"]
        if not refs:
            return
        for ref in refs:
            self._own(ref)
        f = self.e.function
        first, rest = f.label(), f.label()
        total = "0"
        for d, dim in enumerate(self.program.grid):
            if not dim.parallel:
                total = self.define(f"or i32 {total}, {self.e.ids[d].text}")
        is_first = self.define(f"icmp eq i32 {total}, 0")
        f.line(f"br i1 {is_first}, label %{first}, label %{rest}")
        f.line(f"{first}:")
        for ref in refs:
            self._poison(ref)
        f.place(rest)

    def allocated(self, ref: Ref) -> None:
        """Poison memory that a body has just been given."""
        if ref.kind == "memory":
            self.names[ref] = "scoped scratch"
            self._own(ref)
            self._poison(ref)

    def _own(self, ref: Ref) -> None:
        view = self.e.view(ref)
        pointer = self.e.arena.tile(ref.shape, "uint32", dense=True).pointer
        size = element_bytes(ref)
        self.owners[ref] = Owners(view.pointer, pointer, size, ref.shape, self._common)

    def _poison(self, ref: Ref) -> None:
        owners, count = self.owners[ref], math.prod(ref.shape)
        for pointer, byte, size in (
            (owners.data, -1, owners.element * count),
            (owners.pointer, 0, 4 * count),
        ):
            self.e.function.line(
                f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 {byte}, "
                f"i64 {size}, i1 false)"
            )

    # Accesses

    def block(self, operand: Operand, starts: Sequence) -> None:
        """Check that an operand's block starts inside of its array.

        **Arguments:**

        - `starts`: of the block, an element along each dimension of the array.
        """
        site = None
        triples = zip(starts, operand.dims, operand.shape, strict=True)
        for d, (start, dim, size) in enumerate(triples):
            if dim.padding != (0, 0) or (isinstance(start, int) and 0 <= start < size):
                continue
            if site is None:
                site = self.site(f"the block of {self.names[operand.ref]}")
            self.call("block", site, f"i64 {d}, i64 {start}, i64 {max(size, 1)}")
        if site is not None:
            self.leave_if_faulty()

    def name_of(self, ref: Ref) -> str:
        """Return what to call the memory that a reference is part of."""
        return self.names.get(ref.whole, "memory")

    def element_offset(self, owners: Owners, pointer: str) -> str:
        """How many elements lie before an address."""
        at = self.define(f"ptrtoint ptr {pointer} to i64")
        start = self.define(f"ptrtoint ptr {owners.data} to i64")
        apart = self.define(f"sub i64 {at}, {start}")
        return self.define(f"sdiv exact i64 {apart}, {owners.element}")

    def touch(self, how: str, ref: Ref, view: View, flags: int = 0) -> None:
        """Check, and mark, that all elements of a view are read or written.

        **Arguments:**

        - `how`: "read" or "write".
        - `ref`: what the view is a part of.
        """
        owners = self.owners.get(ref.whole)
        if owners is None or 0 in view.shape:
            return
        verb = "write of" if how == "write" else "read of"
        site = self.site(f"{verb} {self.name_of(ref)}", owners.shape)
        flags |= owners.flags
        if itemsize(view.dtype) != owners.element:
            if how == "write":
                rest = f"ptr {owners.pointer}, i64 0, i64 {math.prod(owners.shape)}"
                self.call(how, site, f"{rest}, i64 1, i64 {flags | UNJUDGED}")
            return
        first = self.element_offset(owners, view.pointer)
        counts = [
            size if limit is None else self._within(limit, size)
            for size, limit in zip(view.shape, view.limits, strict=True)
        ]
        wide = [d for d, count in enumerate(counts) if count != 1]
        row, stride = ("1", "0")
        if wide:
            d = wide.pop()
            row, stride = counts[d], view.strides[d]
        n = Nest(self.e.function, [counts[d] for d in wide])
        offset = first
        for d, index in zip(wide, n.index, strict=True):
            offset = n.add_index(offset, n.mul_index(index, view.strides[d]))
        n.do(
            f"call void @checked_{how}(ptr {self.state}, i64 {site}, "
            f"ptr {owners.pointer}, i64 {offset}, i64 {row}, i64 {stride}, i64 {flags})"
        )
        n.flush()

    def _within(self, limit, size: int) -> int | str:
        if isinstance(limit, int):
            return min(max(limit, 0), size)
        low = self.define(f"call i64 @llvm.smax.i64(i64 {limit}, i64 0)")
        return self.define(f"call i64 @llvm.smin.i64(i64 {low}, i64 {size})")
