"""Straight-line code inside a nest of loops, hoisted and shared as it is emitted."""

from collections.abc import Sequence
from contextlib import ExitStack

from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.types import (
    SUFFIX,
    TYPES,
    Elt,
    is_float,
    is_unsigned,
    literal,
)

Index = int | str
"""An i64: known when compiling, or the name of a value."""


class Nest:
    """An emitter of pure code for one nest of loops.

    An instruction goes to the outermost loop at which its operands exist, and equal
    text is emitted once; so what a loop does not change costs nothing in it, and common
    subexpressions are shared, without any analysis.

    **Arguments:**

    - `function`: where the code goes.
    - `counts`: the trips of each loop, outermost first. `index` names their counters.
    - `contract`: whether products and sums may become one instruction.
    """

    def __init__(
        self, function: Function, counts: Sequence = (), *, contract: bool = True
    ):
        self.function, self.counts = function, list(counts)
        self._contract = " contract" if contract else ""
        self.lanes = function.module.host.lanes
        self.values: dict = {}
        self._segments: list[list[str]] = [[] for _ in range(len(self.counts) + 1)]
        self._level: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self.index = [function.name("i") for _ in self.counts]
        for depth, name in enumerate(self.index):
            self._level[name] = depth + 1

    # Emission

    def emit(self, right: str, *operands) -> str:
        """Define a value by the right side of an instruction without side effects."""
        if right in self._known:
            return self._known[right]
        level = max((self._level.get(str(o), 0) for o in operands), default=0)
        name = self.function.name()
        self._segments[level].append(f"{name} = {right}")
        self._level[name] = level
        self._known[right] = name
        return name

    def do(self, text: str) -> None:
        """Emit an instruction with an effect, in the innermost loop."""
        self._segments[-1].append(text)

    def define(self, right: str, prefix: str = "v") -> str:
        """Define a value by an instruction that must not be moved or shared."""
        name = self.function.name(prefix)
        self.do(f"{name} = {right}")
        self._level[name] = len(self.counts)
        return name

    def flush(self) -> None:
        """Write the loops and their code to the function."""
        function = self.function
        function.lines += self._segments[0]
        with ExitStack() as loops:
            for depth, (count, name) in enumerate(
                zip(self.counts, self.index, strict=True)
            ):
                loops.enter_context(function.loop(count, index=name))
                function.lines += self._segments[depth + 1]

    # Index arithmetic: Python integers stay Python integers

    def add_index(self, a: Index, b: Index) -> Index:
        """Add two i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        if b == 0:
            return a
        return self.emit(f"add nsw i64 {a}, {b}", a, b)

    def mul_index(self, a: Index, b: Index) -> Index:
        """Multiply two i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        if b == 1:
            return a
        return self.emit(f"mul nsw i64 {a}, {b}", a, b)

    def div_index(self, a: Index, b: int) -> Index:
        """Divide an i64 that is not negative."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.emit(f"udiv i64 {a}, {b}", a)

    def mod_index(self, a: Index, b: int) -> Index:
        """Take the remainder of an i64 that is not negative."""
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.emit(f"urem i64 {a}, {b}", a)

    def as_index(self, e: Elt) -> Index:
        """Widen an integer element to an i64."""
        assert not e.vector, "an index is one number"
        if not e.text.startswith("%"):
            return {"true": 1, "false": 0}[e.text] if e.type == "i1" else int(e.text)
        if e.type == "i64":
            return e.text
        how = "zext" if is_unsigned(e.dtype) else "sext"
        return self.emit(f"{how} {e.type} {e.text} to i64", e.text)

    def as_element(self, index: Index, dtype: str) -> Elt:
        """Narrow an i64 to an integer element."""
        ty = TYPES[dtype]
        if isinstance(index, int) or ty == "i64":
            return Elt(str(index), dtype)
        return Elt(self.emit(f"trunc i64 {index} to {ty}", index), dtype)

    # Values

    def spell(self, dtype: str, vector: bool) -> str:
        """Spell the type of one element or of a vector."""
        ty = TYPES[dtype]
        return f"<{self.lanes} x {ty}>" if vector else ty

    def vector(self, e: Elt) -> str:
        """Return an operand for a vector of the element in every lane, or of itself."""
        ty, lanes = e.type, self.lanes
        if e.base is not None:
            steps = ", ".join(f"{ty} {lane}" for lane in range(lanes))
            start = self._splat(e.base, ty)
            return self.emit(f"add <{lanes} x {ty}> {start}, <{steps}>", start)
        return e.text if e.vector else self._splat(e.text, ty)

    def _splat(self, text: str, ty: str) -> str:
        if not text.startswith("%"):
            return f"splat ({ty} {text})"
        whole = f"<{self.lanes} x {ty}>"
        one = self.emit(f"insertelement {whole} poison, {ty} {text}, i32 0", text)
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.emit(f"shufflevector {whole} {one}, {whole} poison, {zeros}", one)

    def operands(self, *elements: Elt) -> tuple[bool, list[str]]:
        """Bring elements to one width: whether it is a vector, and their operands."""
        vector = any(e.vector for e in elements)
        return vector, [self.vector(e) if vector else e.text for e in elements]

    def binary(self, instruction: str, a: Elt, b: Elt) -> Elt:
        """Apply an instruction of two operands of one type."""
        vector, (x, y) = self.operands(a, b)
        ty = self.spell(a.dtype, vector)
        return Elt(self.emit(f"{instruction} {ty} {x}, {y}", x, y), a.dtype, vector)

    def unary(self, instruction: str, a: Elt) -> Elt:
        """Apply an instruction of one operand, as `fneg`."""
        vector, (x,) = self.operands(a)
        ty = self.spell(a.dtype, vector)
        return Elt(self.emit(f"{instruction} {ty} {x}", x), a.dtype, vector)

    def cast(self, instruction: str, a: Elt, dtype: str) -> Elt:
        """Convert an element by an instruction, as `sitofp` or `bitcast`."""
        vector, (x,) = self.operands(a)
        before, after = self.spell(a.dtype, vector), self.spell(dtype, vector)
        right = f"{instruction} {before} {x} to {after}"
        return Elt(self.emit(right, x), dtype, vector)

    def intrinsic(self, name: str, *elements: Elt) -> Elt:
        """Call `@llvm.<name>` on operands of one type, which the result has too."""
        vector, xs = self.operands(*elements)
        dtype = elements[0].dtype
        ty = self.spell(dtype, vector)
        suffix = SUFFIX.get(TYPES[dtype], TYPES[dtype])
        full = f"@llvm.{name}.{f'v{self.lanes}' if vector else ''}{suffix}"
        module = self.function.module
        module.declare(f"declare {ty} {full}({', '.join([ty] * len(xs))})")
        args = ", ".join(f"{ty} {x}" for x in xs)
        return Elt(self.emit(f"call {ty} {full}({args})", *xs), dtype, vector)

    def compare(self, predicate: str, a: Elt, b: Elt) -> Elt:
        """Compare by LLVM's predicate, `olt` for floats or `slt` for integers."""
        vector, (x, y) = self.operands(a, b)
        how = "fcmp" if is_float(a.dtype) and a.type != "i8" else "icmp"
        ty = self.spell(a.dtype, vector)
        return Elt(self.emit(f"{how} {predicate} {ty} {x}, {y}", x, y), "bool", vector)

    def select(self, mask: Elt, a: Elt, b: Elt) -> Elt:
        """Take `a` where the mask is true, `b` elsewhere."""
        if mask.text in ("true", "false") and not mask.vector:
            return a if mask.text == "true" else b
        vector, (m, x, y) = self.operands(mask, a, b)
        ty, bits = self.spell(a.dtype, vector), self.spell("bool", vector)
        right = f"select {bits} {m}, {ty} {x}, {ty} {y}"
        return Elt(self.emit(right, m, x, y), a.dtype, vector)

    def both(self, a: Elt | None, b: Elt | None) -> Elt | None:
        """Combine two masks, of which None means everywhere."""
        if a is None or b is None:
            return b if a is None else a
        return self.binary("and", a, b)

    def constant(self, value, dtype: str = "float32") -> Elt:
        """Make an element of a Python number."""
        return Elt(literal(value, dtype), dtype)

    def fma(self, a: Elt, b: Elt, c: Elt) -> Elt:
        """Compute a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def add(self, a: Elt, b: Elt) -> Elt:
        """Add floats; the product of a `mul` may be fused in."""
        return self.binary(f"fadd{self._contract}", a, b)

    def sub(self, a: Elt, b: Elt) -> Elt:
        """Subtract floats; the product of a `mul` may be fused in."""
        return self.binary(f"fsub{self._contract}", a, b)

    def mul(self, a: Elt, b: Elt) -> Elt:
        """Multiply floats; a following sum may be fused with it."""
        return self.binary(f"fmul{self._contract}", a, b)
