"""What all native kernels of a process share: its pool's rules and its scratch."""

import ctypes
import math
import os
import re
from functools import cache
from pathlib import Path

import jaxlib
import llvmlite.binding as llvm

from tilejax.lowering.cpu import compile, printing, scratch, soft
from tilejax.lowering.cpu.call import call_text
from tilejax.lowering.cpu.host import detect
from tilejax.lowering.cpu.pool import pool_text
from tilejax.targets.host import cpu_quota


@cache
def start() -> None:
    """Load the runtime, so that kernels find it when they are loaded."""
    text, host = runtime_text(), detect()
    llvm.add_symbol("tilejax_run", compile.load(text, host, "tilejax_run"))
    for name in soft.NAMES:
        llvm.add_symbol(name, compile.load(soft.soft_text(), host, name))
    llvm.add_symbol(printing.SYMBOL, printing.address())
    set_threads(allowed_threads())


def set_threads(count: int) -> None:
    """Limit how many threads a call may use.

    **Arguments:**

    - `count`: at least 1; more than XLA's pool has means all of them.
    """
    address = compile.load(runtime_text(), detect(), "tilejax_set_threads")
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)(max(count, 1))


def allowed_threads() -> int:
    """Return how many threads may run at once: by affinity and control groups."""
    if hasattr(os, "sched_getaffinity"):
        threads = len(os.sched_getaffinity(0))
    else:
        threads = os.cpu_count() or 1
    quota = cpu_quota()
    return threads if quota is None else max(1, min(threads, math.ceil(quota)))


@cache
def runtime_text() -> str:
    """Return the runtime as LLVM IR."""
    triple = detect().triple
    shared = call_text(triple, interface_version(), scratch.HUGE)
    return pool_text(triple) + shared


def interface_version() -> tuple[int, int]:
    """Return the version of XLA's interface in the header that jaxlib ships."""
    header = Path(jaxlib.__path__[0]) / "include/xla/ffi/api/c_api.h"
    text = header.read_text()
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text))
    return int(found["MAJOR"]), int(found["MINOR"])
