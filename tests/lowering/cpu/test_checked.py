"""Planted faults are found and named; what is right runs as before."""

import jax
import numpy as np
import pytest

import tilejax
from tests.lowering.cpu import faulty
from tilejax.errors import KernelFault

pytestmark = pytest.mark.filterwarnings("ignore:.*donated")


@pytest.mark.parametrize("name", faulty.AT_RUN_TIME)
def test_a_fault_of_a_running_kernel_is_named(name):
    make, _, wrong, arrays, told = faulty.AT_RUN_TIME[name]
    with tilejax.checked(), pytest.raises(KernelFault, match=f"^kernel .*{told}"):
        tilejax.jit(make(wrong))(*arrays)


@pytest.mark.parametrize("name", faulty.AT_RUN_TIME)
def test_a_kernel_without_the_fault_gives_the_same_checked_and_not(name):
    make, right, _, arrays, _ = faulty.AT_RUN_TIME[name]
    run = tilejax.jit(make(right))
    wanted = run(*arrays)
    with tilejax.checked():
        np.testing.assert_array_equal(run(*arrays), wanted)


@pytest.mark.parametrize("name", faulty.BEFORE_RUNNING)
@pytest.mark.parametrize("static_only", [True, False])
def test_a_fault_of_blocks_is_told_before_the_kernel_runs(name, static_only):
    make, _, wrong, told = faulty.BEFORE_RUNNING[name]
    with (
        tilejax.checked(static_only=static_only),
        pytest.raises(KernelFault, match=f"^kernel .*{told}"),
    ):
        tilejax.jit(make(wrong)).lower(faulty.X)


@pytest.mark.parametrize("name", faulty.BEFORE_RUNNING)
@pytest.mark.parametrize("static_only", [True, False])
def test_blocks_without_the_fault_pass(name, static_only):
    make, right, _, _ = faulty.BEFORE_RUNNING[name]
    run = tilejax.jit(make(right))
    with tilejax.checked(static_only=static_only):
        found = run(faulty.X)
    for each in jax.tree.leaves(found):
        np.testing.assert_array_equal(each, faulty.X[: each.size])
