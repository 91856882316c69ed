"""What a checked kernel records becomes the call's error."""

import jax
import numpy as np
import pytest

from tests.lowering.cpu.steps import ADD, native
from tilejax.lowering.cpu.driver import Launch

# Records the index of the first step seen with a negative element of the first input.
_CHECKED = """
  %j = zext i32 %pid0 to i64
  %pz = getelementptr float, ptr %a0, i64 %j
  %z = load float, ptr %pz
  %bad = fcmp olt float %z, 0.0
  br i1 %bad, label %claim, label %fine
claim:
  %pair = cmpxchg ptr %fault, i64 0, i64 1 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %record, label %fine
record:
  %word = getelementptr i64, ptr %fault, i64 15
  store i64 %j, ptr %word
  br label %fine
fine:
"""

_DESCRIBE = """
@words = internal constant [28 x i8] c"negative element, index 0x_\\00"
define internal void @describe(ptr %fault, ptr %text, i64 %size) {
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr @words, i64 28, i1 false)
  %word = getelementptr i64, ptr %fault, i64 15
  %index = load i64, ptr %word
  %digit = add i64 %index, 48
  %letter = trunc i64 %digit to i8
  %place = getelementptr i8, ptr %text, i64 26
  store i8 %letter, ptr %place
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def _kernel(size):
    launch = Launch("checked", 2, 1, (size,), (True,), checked=True)
    return jax.jit(
        native(launch, _CHECKED + ADD, ((size,), np.float32), more=_DESCRIBE)
    )


def test_a_fault_arrives_as_jaxs_runtime_error_with_its_text():
    a = np.array([1, 2, 3, -4, 5], np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="negative element, index 0x3"):
        jax.block_until_ready(_kernel(5)(a, a))


def test_a_call_after_a_fault_is_clean():
    kernel = _kernel(5)
    bad, good = np.array([-1, 0, 0, 0, 0], np.float32), np.ones(5, np.float32)
    for _ in range(3):
        with pytest.raises(jax.errors.JaxRuntimeError, match="index 0x0"):
            jax.block_until_ready(kernel(bad, bad))
        np.testing.assert_array_equal(kernel(good, good), good + good)


def test_the_first_of_many_faults_is_told_once():
    a = np.full(9, -1, np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"index 0x[0-8]"):
        jax.block_until_ready(_kernel(9)(a, a))


def test_an_unchecked_kernel_is_given_no_record():
    launch = Launch("unchecked", 0, 1, (3,), (True,))
    body = """
  %i = zext i32 %pid0 to i64
  %py = getelementptr i32, ptr %a0, i64 %i
  %none = icmp eq ptr %fault, null
  %y = zext i1 %none to i32
  store i32 %y, ptr %py
  ret void"""
    np.testing.assert_array_equal(native(launch, body, ((3,), np.int32))(), [1, 1, 1])
