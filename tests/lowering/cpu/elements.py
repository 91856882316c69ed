"""Compile element-wise rules and run them over arrays, for the tests of them."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import ml_dtypes
import numpy as np

from tilejax.lowering.cpu.compile import load
from tilejax.lowering.cpu.elementwise import OPS
from tilejax.lowering.cpu.host import NAMED, Host, detect
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt, itemsize, memory_type

HOSTS = [name for name in ("avx2", "plain") if NAMED[name].runs_here]
"""The hosts beside the process's own that can run here."""


def host_of(name: str, lanes: int | None = None) -> Host:
    """Return a host by its name or `native`, with another number of lanes."""
    host = detect() if name == "native" else NAMED[name]
    return host if lanes is None else replace(host, lanes=lanes)


def numpy_dtype(dtype: str) -> np.dtype:
    """Return a dtype by its name, of ml_dtypes too."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@dataclass
class Kernels:
    """Functions over arrays, compiled as one module.

    **Arguments:**

    - `host`: what to compile for.
    - `scalar`: emit for one element at a time instead of vectors.
    - `flush`: take denormals for zeros, as XLA has its threads do.
    """

    host: Host
    scalar: bool = False
    flush: bool = False
    signatures: dict[str, tuple] = field(default_factory=dict)
    module: Module = field(init=False)

    def __post_init__(self):
        self.module = Module(self.host)

    @cached_property
    def text(self) -> str:
        """The module, which cannot grow any more."""
        return self.module.text()

    def add(self, key, emit, dtypes: Sequence[str], result: str) -> None:
        """Add a function: `emit(nest, elements)` gives the result's element."""
        symbol = f"f{len(self.signatures)}"
        self.signatures[key] = (symbol, tuple(dtypes), result)
        names = [f"%a{i}" for i in range(len(dtypes) + 1)]
        pointers = ", ".join(f"ptr {name}" for name in names)
        function = Function(
            self.module, f'define void @{symbol}({pointers}, i64 %n) "no-builtins"'
        )
        lanes = 1 if self.scalar else self.host.lanes
        if self.flush:
            self._set_flushing(function, 0x9FC0)
        with function.loop("%n", step=lanes) as index:
            nest = Nest(function)
            args = [
                self._load(nest, name, index, dtype)
                for name, dtype in zip(names, dtypes, strict=False)
            ]
            out = emit(nest, args)
            assert out.dtype == result, (key, out.dtype, result)
            self._store(nest, names[-1], index, out)
            nest.flush()
        if self.flush:
            self._set_flushing(function, 0x1F80)
        function.finish()

    def _set_flushing(self, function: Function, control: int) -> None:
        self.module.declare("declare void @llvm.x86.sse.ldmxcsr(ptr)")
        name = f"@control{control}"
        self.module.globals[name] = f"internal constant i32 {control}"
        function.line(f"call void @llvm.x86.sse.ldmxcsr(ptr {name})")

    def add_op(self, key, name: str, dtypes, result: str, params=None) -> None:
        """Add a function that applies a primitive."""
        self.add(
            key,
            lambda n, args: OPS[name](n, args, result, params or {}),
            dtypes,
            result,
        )

    def _load(self, nest: Nest, pointer: str, index: str, dtype: str) -> Elt:
        size = itemsize(dtype)
        ty = memory_type(dtype)
        whole = ty if self.scalar else f"<{self.host.lanes} x {ty}>"
        address = nest.define(
            f"getelementptr i8, ptr {pointer}, i64 {nest.mul_index(index, size)}"
        )
        value = nest.define(f"load {whole}, ptr {address}, align {size}")
        if dtype == "bool":
            narrow = whole.replace("i8", "i1")
            value = nest.emit(f"trunc {whole} {value} to {narrow}", value)
        return Elt(value, dtype, not self.scalar)

    def _store(self, nest: Nest, pointer: str, index: str, e: Elt) -> None:
        size, ty = itemsize(e.dtype), memory_type(e.dtype)
        whole = ty if self.scalar else f"<{self.host.lanes} x {ty}>"
        text = e.text if self.scalar else nest.vector(e)
        if e.dtype == "bool":
            narrow = whole.replace("i8", "i1")
            text = nest.emit(f"zext {narrow} {text} to {whole}", text)
        address = nest.define(
            f"getelementptr i8, ptr {pointer}, i64 {nest.mul_index(index, size)}"
        )
        nest.do(f"store {whole} {text}, ptr {address}, align {size}")

    def __call__(self, key, *arrays: np.ndarray) -> np.ndarray:
        """Run a function over flat arrays."""
        symbol, dtypes, result = self.signatures[key]
        address = load(self.text, self.host, symbol)
        count = arrays[0].size
        padded = -(-count // 64) * 64
        inputs = []
        for array, dtype in zip(arrays, dtypes, strict=True):
            assert array.dtype == numpy_dtype(dtype), (array.dtype, dtype)
            inputs.append(np.ones(padded, array.dtype))
            inputs[-1][:count] = array
        out = np.zeros(padded, numpy_dtype(result))
        kinds = [ctypes.c_void_p] * (len(inputs) + 1)
        function = ctypes.CFUNCTYPE(None, *kinds, ctypes.c_int64)(address)
        function(*(a.ctypes.data for a in inputs), out.ctypes.data, padded)
        return out[:count]
