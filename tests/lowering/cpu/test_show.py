"""The code of compiled kernels, as `lower(...).as_text` shows it."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import tilejax
from tilejax.errors import ParameterError


def _double(x):
    def kernel(x, y):
        y[...] = x[...] * 2

    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        ("tile", "f32[8,128] = mul"),
        ("llvm", "@handler("),
        ("asm", "handler:"),
        ("tiled", "interpret=native"),
    ],
)
def test_each_form_of_a_kernel_is_shown(dialect, part):
    x = jnp.ones((8, 128))
    lowered = tilejax.jit(lambda x, y: (_double(x), _double(y))).lower(x, x)
    text = lowered.as_text(dialect)
    assert part in text
    if dialect == "tile":  # twice called, once compiled, once shown
        assert text.count("kernel kernel {") == 1


def test_a_program_without_kernels_has_none_to_show():
    lowered = tilejax.jit(lambda x: x + 1).lower(jnp.ones(3))
    assert lowered.as_text("llvm") == ""


def test_an_unknown_form_is_refused_with_those_there_are():
    lowered = tilejax.jit(_double).lower(jnp.ones((8, 128)))
    with pytest.raises(ParameterError, match="jaxpr, tiled, tile, llvm, asm"):
        lowered.as_text("ptx")
