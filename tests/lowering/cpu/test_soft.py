"""Conversions of 16-bit floats without instructions for them, against NumPy's."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from tilejax.lowering.cpu import compile, runtime, soft
from tilejax.lowering.cpu.host import NAMED, detect

_LOOP = """
define void @apply(ptr %from, ptr %to, i64 %count) {{
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %next]
  %p = getelementptr {a}, ptr %from, i64 %i
  %x = load {a}, ptr %p
  %y = call {b} @{name}({a} %x)
  %q = getelementptr {b}, ptr %to, i64 %i
  store {b} %y, ptr %q
  %after = add i64 %i, 1
  %more = icmp ult i64 %after, %count
  br i1 %more, label %next, label %end
end:
  ret void
}}
declare {b} @{name}({a})
"""

_TYPES = {
    "half": np.dtype(np.float16),
    "bfloat": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}


def _apply(name, a, b, values):
    runtime.start()
    text = _LOOP.format(name=name, a=a, b=b)
    address = compile.load(text, detect(), "apply")
    result = np.empty(values.shape, _TYPES[b])
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(address)
    function(values.ctypes.data, result.ctypes.data, values.size)
    return result


def _assert_same(result, wanted):
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(result), nan)
    bits = f"u{wanted.itemsize}"
    np.testing.assert_array_equal(result.view(bits)[~nan], wanted.view(bits)[~nan])


def test_every_half_widens_exactly():
    values = np.arange(2**16, dtype=np.uint16).view(np.float16)
    _assert_same(
        _apply("__extendhfsf2", "half", "float", values), values.astype(np.float32)
    )


def _hard_cases(wide, narrow, rng):
    """Every narrow number, the ties between neighbours, and what lies beside them."""
    small = np.arange(2**15, dtype=np.uint16).view(narrow)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = small.astype(wide)
        exact = exact[np.isfinite(exact)]
        ties = (exact[:-1] + exact[1:]) / 2
        largest = exact[-1] + (exact[-1] - exact[-2]) / 2
        beside = [np.nextafter(x, to) for x in (ties, largest) for to in (0, np.inf)]
        extreme = np.array([np.inf, np.nan, np.finfo(wide).max, 65536, 1e-30], wide)
        random = rng.normal(size=5000) * 10.0 ** rng.integers(-12, 6, 5000)
        groups = [exact, ties, np.array([largest]), *map(np.atleast_1d, beside)]
        values = np.concatenate([*groups, extreme, random.astype(wide)]).astype(wide)
    # The pool's threads, and XLA, take float32's subnormal numbers for zero.
    values[np.abs(values) < np.finfo(np.float32).tiny] = 0
    return np.concatenate([values, -values])


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("a", ["float", "double"])
@pytest.mark.parametrize("b", ["half", "bfloat"])
def test_narrowing_rounds_once_to_the_nearest_even(rng, a, b):
    name = f"__trunc{a[0] if a == 'double' else 's'}f{'hf' if b == 'half' else 'bf'}2"
    assert name in soft.NAMES
    values = _hard_cases(_TYPES[a].type, _TYPES[b].type, rng)
    if (a, b) == ("double", "bfloat"):
        # ml_dtypes rounds twice, by way of float32; odd rounding between avoids that.
        near = values.astype(np.float32)
        bits = near.view(np.int32)
        inexact = (near.astype(np.float64) != values) & ~np.isnan(values)
        step = np.where(np.abs(near.astype(np.float64)) > np.abs(values), -1, 1)
        bits = np.where(inexact & (bits % 2 == 0), bits + step, bits)
        wanted = bits.astype(np.int32).view(np.float32).astype(ml_dtypes.bfloat16)
    else:
        wanted = values.astype(_TYPES[b])
    _assert_same(_apply(name, a, b, values), wanted)


def test_code_for_a_cpu_without_halves_is_loaded_and_right():
    if not NAMED["plain"].runs_here:
        pytest.skip("this CPU cannot run code for plain x86-64")
    body = "%y = fadd half %x, %x\n  ret half %y"
    text = _LOOP.format(name="twice", a="half", b="half")
    text = text.replace("declare half @twice(half)", "") + (
        f"define half @twice(half %x) noinline {{\n  {body}\n}}"
    )
    runtime.start()
    values = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    result = np.empty_like(values)
    address = compile.load(text, NAMED["plain"], "apply")
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(address)
    function(values.ctypes.data, result.ctypes.data, values.size)
    with np.errstate(over="ignore"):
        _assert_same(result, values + values)
