"""Grid steps written by hand as LLVM IR, run through the driver by a JAX primitive."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from tilejax._jax.primitives import (
    ShapedArray,
    def_lowering,
    def_types,
    new_primitive,
)
from tilejax.lowering.cpu import ffi
from tilejax.lowering.cpu.driver import Launch, add_driver, step_header
from tilejax.lowering.cpu.host import Host, current
from tilejax.lowering.cpu.module import Module


def module_text(launch: Launch, body: str, host: Host, more: str = "") -> str:
    module = Module(host)
    module.functions["step"] = f"{step_header(launch)} {{\n{body}\n}}\n{more}"
    add_driver(module, launch)
    return module.text()


def native(launch: Launch, body: str, *outputs, more: str = "") -> Callable:
    """Make a function of arrays that runs the step over the grid.

    `outputs` are (shape, dtype); every call lowers anew, for the host then current.
    """
    primitive = new_primitive(f"test_{launch.name}")
    avals = [ShapedArray(shape, np.dtype(dtype)) for shape, dtype in outputs]

    def lower(ctx, *nodes):
        host = current()
        text = module_text(launch, body, host, more)
        return ffi.call(ctx, nodes, ffi.register(text, launch, host), launch)

    def_types(primitive, lambda *_: avals)
    def_lowering(primitive, lower)

    def function(*operands):
        bound = primitive.bind(*map(jnp.asarray, operands))
        return bound[0] if len(avals) == 1 else bound

    return function


ADD = """
  %i = zext i32 %pid0 to i64
  %pa = getelementptr float, ptr %a0, i64 %i
  %pb = getelementptr float, ptr %a1, i64 %i
  %pc = getelementptr float, ptr %a2, i64 %i
  %a = load float, ptr %pa
  %b = load float, ptr %pb
  %c = fadd float %a, %b
  store float %c, ptr %pc
  ret void"""
"""c[i] = a[i] + b[i], one element a step."""


def adder(size: int, name: str = "add", **settings) -> Callable:
    launch = Launch(name, 2, 1, (size,), (True,), **settings)
    return native(launch, ADD, ((size,), np.float32))


SUM_ROWS = """
  %first = icmp eq i32 %pid1, 0
  %before = load float, ptr %arena
  %start = select i1 %first, float 0.0, float %before
  %r = zext i32 %pid0 to i64
  %c = zext i32 %pid1 to i64
  %row = mul i64 %r, COLUMNS
  %at = add i64 %row, %c
  %px = getelementptr float, ptr %a0, i64 %at
  %x = load float, ptr %px
  %sum = fadd float %start, %x
  store float %sum, ptr %arena
  %py = getelementptr float, ptr %a1, i64 %r
  store float %sum, ptr %py
  ret void"""
"""y[r] = sum of x[r, :], one element a step, the partial sum in scratch."""


def row_sums(rows: int, columns: int, **settings) -> Callable:
    settings = {"arena_bytes": 64, **settings}
    launch = Launch("sums", 1, 1, (rows, columns), (True, False), **settings)
    body = SUM_ROWS.replace("COLUMNS", str(columns))
    return native(launch, body, ((rows,), np.float32))
