"""Arithmetic on elements with Python's operators, for functions that are formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import TYPES, Elt


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    **Arguments:**

    - `bits`: of a number; `digits`: after the point; `bias`: of the exponent.
    """

    bits: int
    digits: int
    bias: int


FORMATS = {"float32": Format(32, 23, 127), "float64": Format(64, 52, 1023)}


@dataclass(frozen=True)
class Real:
    """A float32 or float64 element that Python's operators work on.

    Each operator is one rounded operation; only `fma` and `times` may fuse.

    **Arguments:**

    - `nest`: where instructions go.
    - `elt`: the element.
    """

    nest: Nest
    elt: Elt

    @property
    def dtype(self) -> str:
        """The element's dtype."""
        return self.elt.dtype

    @property
    def format(self) -> Format:
        """The layout of its bits."""
        return FORMATS[self.elt.dtype]

    @property
    def single(self) -> bool:
        """Whether it is a float32."""
        return self.elt.dtype == "float32"

    def of(self, value: Number) -> Real:
        """Make a number of the same dtype; one that is a `Real` already stays."""
        if isinstance(value, Real):
            return value
        return Real(self.nest, self.nest.constant(value, self.dtype))

    def _binary(self, instruction: str, other: Number) -> Real:
        right = self.of(other).elt
        return Real(self.nest, self.nest.binary(instruction, self.elt, right))

    def __add__(self, other: Number) -> Real:
        """Add, rounding once."""
        return self._binary("fadd", other)

    def __sub__(self, other: Number) -> Real:
        """Subtract, rounding once."""
        return self._binary("fsub", other)

    def __mul__(self, other: Number) -> Real:
        """Multiply, rounding once."""
        return self._binary("fmul", other)

    def __truediv__(self, other: Number) -> Real:
        """Divide, rounding once."""
        return self._binary("fdiv", other)

    def __radd__(self, other: float) -> Real:
        """Add to a Python number."""
        return self.of(other) + self

    def __rsub__(self, other: float) -> Real:
        """Subtract from a Python number."""
        return self.of(other) - self

    def __rmul__(self, other: float) -> Real:
        """Multiply a Python number."""
        return self.of(other) * self

    def __rtruediv__(self, other: float) -> Real:
        """Divide a Python number."""
        return self.of(other) / self

    def __neg__(self) -> Real:
        """Change the sign."""
        return Real(self.nest, self.nest.unary("fneg", self.elt))

    def __abs__(self) -> Real:
        """Drop the sign."""
        return self.call("fabs")

    def __lt__(self, other: Number) -> Mask:
        """Compare; false for NaN."""
        return self.compare("olt", other)

    def __gt__(self, other: Number) -> Mask:
        """Compare; false for NaN."""
        return self.compare("ogt", other)

    def compare(self, predicate: str, other: Number) -> Mask:
        """Compare by LLVM's predicate."""
        right = self.of(other).elt
        return Mask(self.nest, self.nest.compare(predicate, self.elt, right))

    def is_nan(self) -> Mask:
        """Tell where it is NaN."""
        return self.compare("uno", self)

    def call(self, name: str, *others: Number) -> Real:
        """Call an intrinsic of LLVM on it."""
        rest = [self.of(o).elt for o in others]
        return Real(self.nest, self.nest.intrinsic(name, self.elt, *rest))

    def times(self, factor: Number, plus: Number) -> Real:
        """Compute `self * factor + plus`, rounded once where the host can."""
        if fuses(self.nest):
            return self.call("fma", factor, plus)
        return self * factor + plus

    def polynomial(self, coefficients: Sequence[float]) -> Real:
        """Evaluate a polynomial, its constant term first."""
        *rest, last = coefficients
        value: Real = self.of(last)
        for coefficient in reversed(rest):
            value = value.times(self, coefficient)
        return value

    def with_sign(self, other: Real) -> Real:
        """Take the sign of another."""
        return self.call("copysign", other)

    def bits(self) -> Whole:
        """Take its bits as an integer."""
        kind = f"int{self.format.bits}"
        return Whole(self.nest, self.nest.cast("bitcast", self.elt, kind))

    def to(self, dtype: str) -> Real:
        """Convert between float32 and float64."""
        if self.dtype == dtype:
            return self
        how = "fpext" if dtype == "float64" else "fptrunc"
        return Real(self.nest, self.nest.cast(how, self.elt, dtype))


@dataclass(frozen=True)
class Mask:
    """A boolean element."""

    nest: Nest
    elt: Elt

    def __and__(self, other: Mask) -> Mask:
        """Be true where both are."""
        return Mask(self.nest, self.nest.binary("and", self.elt, other.elt))

    def __or__(self, other: Mask) -> Mask:
        """Be true where either is."""
        return Mask(self.nest, self.nest.binary("or", self.elt, other.elt))

    def __xor__(self, other: Mask) -> Mask:
        """Be true where one is."""
        return Mask(self.nest, self.nest.binary("xor", self.elt, other.elt))

    def flipped(self) -> Mask:
        """Be true where it is not."""
        return Mask(self.nest, self.nest.binary("xor", self.elt, Elt("true", "bool")))

    def pick(self, yes: Real, no: Number) -> Real:
        """Take `yes` where true and `no` elsewhere."""
        right = yes.of(no).elt
        return Real(self.nest, self.nest.select(self.elt, yes.elt, right))

    def whole(self, yes: Whole, no: Whole | int) -> Whole:
        """Take `yes` where true and `no` elsewhere."""
        right = yes.of(no).elt
        return Whole(self.nest, self.nest.select(self.elt, yes.elt, right))


@dataclass(frozen=True)
class Whole:
    """A signed integer element."""

    nest: Nest
    elt: Elt

    def of(self, value: Whole | int) -> Whole:
        """Make a number of the same dtype."""
        if isinstance(value, Whole):
            return value
        return Whole(self.nest, Elt(str(value), self.elt.dtype))

    def apply(self, instruction: str, other: Whole | int) -> Whole:
        """Apply an instruction of LLVM to it and another."""
        right = self.of(other).elt
        return Whole(self.nest, self.nest.binary(instruction, self.elt, right))

    def __add__(self, other: Whole | int) -> Whole:
        """Add, wrapping around."""
        return self.apply("add", other)

    def __sub__(self, other: Whole | int) -> Whole:
        """Subtract, wrapping around."""
        return self.apply("sub", other)

    def __and__(self, other: Whole | int) -> Whole:
        """Keep the common bits."""
        return self.apply("and", other)

    def __lshift__(self, count: int) -> Whole:
        """Shift left."""
        return self.apply("shl", count)

    def __rshift__(self, count: int) -> Whole:
        """Shift right, keeping the sign."""
        return self.apply("ashr", count)

    def compare(self, predicate: str, other: Whole | int) -> Mask:
        """Compare by LLVM's predicate."""
        right = self.of(other).elt
        return Mask(self.nest, self.nest.compare(predicate, self.elt, right))

    def real(self, dtype: str) -> Real:
        """Take the bits as a float's."""
        return Real(self.nest, self.nest.cast("bitcast", self.elt, dtype))

    def number(self, dtype: str) -> Real:
        """Convert to a float."""
        return Real(self.nest, self.nest.cast("sitofp", self.elt, dtype))

    def to(self, dtype: str) -> Whole:
        """Narrow or widen with the sign."""
        before, after = int(self.elt.type[1:]), int(TYPES[dtype][1:])
        if before == after:
            return self
        how = "trunc" if after < before else "sext"
        return Whole(self.nest, self.nest.cast(how, self.elt, dtype))


Number = Real | float | int


def fuses(nest: Nest) -> bool:
    """Tell whether the host multiplies and adds in one instruction."""
    host = nest.function.module.host
    return not host.is_x86 or host.has("fma") or host.has("avx512f")


def outlined(name: str, body: Callable[..., Real], *args: Real) -> Real:
    """Call a function that computes `body(*args)`, made once a module and shape.

    It keeps a long function's code out of the loops that call it.
    """
    nest = args[0].nest
    vector, texts = nest.operands(*(a.elt for a in args))
    dtype = args[0].dtype
    ty = nest.spell(dtype, vector)
    symbol = f"@math.{name}.{f'v{nest.lanes}' if vector else ''}{TYPES[dtype]}"
    module = nest.function.module
    if symbol[1:] not in module.functions:
        names = [f"%x{i}" for i in range(len(args))]
        header = (
            f"define internal {ty} {symbol}({', '.join(f'{ty} {n}' for n in names)})"
        )
        function = Function(module, f"{header} nounwind")
        inner = Nest(function)
        result = body(*(Real(inner, Elt(n, dtype, vector)) for n in names))
        inner.flush()
        function.finish(
            f"ret {ty} {inner.vector(result.elt) if vector else result.elt.text}"
        )
    operands = ", ".join(f"{ty} {t}" for t in texts)
    call = nest.emit(f"call {ty} {symbol}({operands})", *texts)
    return Real(nest, Elt(call, dtype, vector))
