"""Compile and run single products, for the tests of them."""

import ctypes
import mmap
from functools import cache

import ml_dtypes
import numpy as np

from tilejax.lowering.cpu.access import View
from tilejax.lowering.cpu.arena import Arena
from tilejax.lowering.cpu.compile import load
from tilejax.lowering.cpu.dot import InMemory, emit_dot, packed_form
from tilejax.lowering.cpu.elementwise_convert import convert
from tilejax.lowering.cpu.host import NAMED, Host, detect
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import constant

PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """A copy of an array that ends where a page ends that may not be touched.

    The copy has the array's strides if they are those of its transpose.
    """

    def __init__(self, array: np.ndarray):
        turn = array.flags.f_contiguous and not array.flags.c_contiguous
        whole = array.T if turn else array
        size = -(-max(array.nbytes, 1) // PAGE) * PAGE
        self.map = mmap.mmap(-1, size + PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        assert _LIBC.mprotect(ctypes.c_void_p(start + size), PAGE, 0) == 0
        flat = np.frombuffer(self.map, np.uint8, array.nbytes, size - array.nbytes)
        copy = flat.view(array.dtype).reshape(whole.shape)
        copy[...] = whole
        self.array = copy.T if turn else copy


class Doubled(InMemory):
    """An operand that is computed: twice what lies in memory."""

    def view(self):
        return None

    def at(self, n: Nest, row, k, tail):
        e = convert(n, super().at(n, row, k, tail), "float32")
        return convert(n, n.mul(e, constant(2, "float32")), self.dtype)


@cache
def dot_module(
    host: Host,
    shape,
    dtypes,
    strides,
    *,
    accumulate=False,
    padded=False,
    keep=False,
    operand=InMemory,
    finish=None,
):
    """The text of a module with one product, and the bytes of scratch it needs.

    `strides`: of a [M, K], of b [N, K], and of the rows of the output.
    """
    m, n, k = shape
    f = Function(
        Module(host),
        'define void @run(ptr %a, ptr %b, ptr %out, ptr noalias %arena) "no-builtins"',
    )
    arena = Arena(f)
    a = operand(View("%a", dtypes[0], (m, k), strides[0], 0, (None, None)))
    b = operand(View("%b", dtypes[1], (n, k), strides[1], 1, (None, None)))
    out = View("%out", dtypes[2], (m, n), (strides[2], 1), 2, (None, None), padded)
    if keep:
        kept = packed_form(arena, a, b, dtypes[2])
        kept.fill(f, b)
        b = kept
    emit_dot(f, arena, a, b, out, accumulate=accumulate, finish=finish)
    f.finish()
    return f.module.text(), arena.peak


def run(host: Host, a, b, out, **options) -> None:
    """Run a product on arrays: a [M, K] and b [N, K] of any strides, out [M, N]."""
    dtypes = tuple(x.dtype.name for x in (a, b, out))
    steps = [tuple(s // x.itemsize for s in x.strides) for x in (a, b, out)]
    shape = (a.shape[0], b.shape[0], a.shape[1])
    text, scratch = dot_module(
        host, shape, dtypes, (steps[0], steps[1], steps[2][0]), **options
    )
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    arena = np.full(scratch + 128, 0xFF, np.uint8)
    at = -(-arena.ctypes.data // 64) * 64
    kind(load(text, host, "run"))(a.ctypes.data, b.ctypes.data, out.ctypes.data, at)
    assert (arena[at - arena.ctypes.data + scratch :] == 0xFF).all(), "scratch"


def hosts() -> dict[str, Host]:
    """This host, and those with fewer features that it can run code for."""
    named = {name: NAMED[name] for name in ("plain", "avx2", "avx512")}
    return {"native": detect()} | {n: h for n, h in named.items() if h.runs_here}


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype of a name, the small floats' too."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def numbers(rng, shape, name: str, layout: str = "C") -> np.ndarray:
    """Random numbers of a dtype, with columns contiguous for the layout F."""
    dtype = numpy_dtype(name)
    if name == "bool":
        found = rng.integers(0, 2, shape).astype(bool)
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    else:
        found = rng.standard_normal(shape).astype(dtype)
    return np.asfortranarray(found) if layout == "F" else found


def expected(a, b, out, *, accumulate: bool):
    """The product in float64 or int64, and how far rounding may take it."""
    if out.dtype.kind == "f":
        x, y, z = (v.astype(np.float64) for v in (a, b, out))
        bound = np.abs(x) @ np.abs(y).T + np.abs(z)
        digits = np.finfo(out.dtype).eps * np.sqrt(a.shape[1] + 1)
        return x @ y.T + z * accumulate, bound * digits
    x, y, z = (v.astype(np.int64) for v in (a, b, out))
    with np.errstate(over="ignore"):
        exact = x @ y.T + z * accumulate
    return exact.astype(out.dtype), np.zeros(out.shape)
