"""JAX's own kernels compile unmodified, and agree with the interpreter."""

import pytest

import tilejax
from tests.lowering.cpu.jax_kernels import CASES, error_of

REQUIRED = [name for name, case in CASES.items() if case.required]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_kernel_of_jax_agrees_with_the_interpreter(name, rng):
    with tilejax.native_pallas():
        error = error_of(name, rng)
    assert error <= CASES[name].tolerance
