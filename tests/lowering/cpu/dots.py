"""Compile and run single products, for the tests of them."""

import ctypes
import mmap
from functools import cache

import numpy as np

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.compile import load
from tilejax.lowering.cpu.dot import InMemory, emit_dot, packed_form
from tilejax.lowering.cpu.host import NAMED, Host, detect
from tilejax.lowering.cpu.module import Function, Module

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """An array that ends where a page ends that may not be touched."""

    def __init__(self, array: np.ndarray):
        size = -(-max(array.nbytes, 1) // PAGE) * PAGE
        self.map = mmap.mmap(-1, size + PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        assert _LIBC.mprotect(ctypes.c_void_p(start + size), PAGE, 0) == 0
        offset = size - array.nbytes
        flat = np.frombuffer(self.map, np.uint8, array.nbytes, offset)
        self.array = flat.view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.address = start + offset


@cache
def dot_module(host, shape, dtypes, strides, *, accumulate, padded, keep):
    """The text of a module with one product, and the bytes of scratch it needs.

    `strides`: of a [M, K], of b [N, K], and of the rows of the output.
    """
    m, n, k = shape
    module = Module(host)
    f = Function(
        module,
        'define void @run(ptr %a, ptr %b, ptr %out, ptr noalias %arena) "no-builtins"',
    )
    arena = Arena(f)
    views = [
        View(name, dtype, size, stride, i, (None, None))
        for i, (name, dtype, size, stride) in enumerate(
            zip(["%a", "%b"], dtypes, [(m, k), (n, k)], strides, strict=False)
        )
    ]
    a, b = (InMemory(view) for view in views)
    out = View("%out", dtypes[2], (m, n), (strides[2], 1), 2, (None, None), padded)
    if keep:
        kept = packed_form(arena, *dtypes, (n, k))
        kept.fill(f, b)
        b = kept
    emit_dot(f, arena, a, b, out, accumulate=accumulate)
    f.finish()
    return module.text(), arena.peak


_LOADED: dict = {}


def run(host: Host, a, b, out, *, accumulate=False, padded=False, keep=False):
    """Run a product on arrays: a [M, K] and b [N, K] of any strides, out [M, N]."""
    names = tuple(x.dtype.name for x in (a, b, out))
    steps = [tuple(s // x.itemsize for s in x.strides) for x in (a, b, out)]
    shape = (a.shape[0], b.shape[0], a.shape[1])
    strides = (steps[0], steps[1], steps[2][0])
    key = (host, shape, names, strides)
    text, scratch = dot_module(*key, accumulate=accumulate, padded=padded, keep=keep)
    if text not in _LOADED:
        address = load(text, host, "run")
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
        _LOADED[text] = kind(address)
    arena = np.full(scratch + 128, 0xFF, np.uint8)
    at = -(-arena.ctypes.data // 64) * 64
    _LOADED[text](a.ctypes.data, b.ctypes.data, out.ctypes.data, at)


def hosts() -> dict[str, Host]:
    """This host, and those with fewer features that it can run code for."""
    named = {name: NAMED[name] for name in ("plain", "avx2", "avx512")}
    return {"native": detect()} | {n: h for n, h in named.items() if h.runs_here}
