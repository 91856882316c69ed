"""What runs on a CPU: a kernel where its record says that this pays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilejax
from tilejax import targets
from tilejax.lowering import rules
from tilejax.primitives.attention import attention, attention_op
from tilejax.primitives.call import Call
from tilejax.primitives.conv import conv
from tilejax.primitives.matmul import matmul
from tilejax.primitives.softmax import softmax

S = jax.ShapeDtypeStruct
Q = S((1, 2, 1024, 64), "float32")


def _attend(q):
    return attention(q, q, q, causal=True)


def _kernel(fun, *avals):
    (kernel,) = tilejax.explain(fun, *avals, target="cpu").kernels
    return kernel


@pytest.mark.parametrize(
    ("fun", "avals"),
    [
        (_attend, (Q,)),
        (softmax, (S((1024, 1024), "float32"),)),
        (
            lambda a, b: matmul(a, b, preferred_element_type="int32"),
            (S((1, 2048), "int8"), S((2048, 2048), "int8")),
        ),
        (
            lambda x, w: conv(x, w, groups=64),
            (S((2, 28, 28, 64), "float32"), S((3, 3, 1, 64), "float32")),
        ),
    ],
)
def test_large_problems_run_as_kernels(fun, avals):
    kernel = _kernel(fun, *avals)
    assert kernel.impl == "native" and kernel.config is not None
    assert "modelled, reference" in kernel.reason
    assert kernel.kernel_seconds is not None and kernel.reference_seconds is not None
    assert kernel.kernel_seconds < kernel.reference_seconds


@pytest.mark.parametrize("size", [1, 8, 32])
def test_what_a_call_would_dwarf_stays_with_the_reference(size):
    x = S((size, size), "float32")
    for fun in (softmax, lambda x: matmul(x, x)):
        kernel = _kernel(fun, x)
        assert kernel.impl == "reference"
        assert "less than a kernel's call" in kernel.reason


def test_the_choice_turns_with_the_records_figures():
    def impl(**figures):
        target = targets.get("cpu")
        for path, value in figures.items():
            path = "code." + path.replace("__", ".")
            target = target.with_figure(path, value, "planted")
        params = dict(
            causal=True, window=None, soft_cap=None, masked_rows="zeros", scale=1.0,
            precision=None,
        )  # fmt: skip
        call = Call((True, True, True, False, False, False, False))
        return rules.choose(attention_op, "forward", target, [Q] * 3, call, params).impl

    assert impl() == "native"
    assert impl(kernel__attention__forward__float32=0.01) == "reference"
    assert impl(kernel__call_seconds=1.0) == "reference"
    assert impl(kernel__call_seconds=0.1, xla__product__float32=1e-4) == "native"


def test_shares_hold_for_all_that_begins_so():
    target = targets.get("cpu")
    assert (
        target.reached("xla.depthwise.float32.float32") == target.code["xla.depthwise"]
    )
    assert target.reached("xla.unheard.of") == 1.0
    assert targets.get("tpu:v5e").reached("xla.depthwise") == 1.0


def test_it_is_the_same_eagerly_and_in_any_jit():
    x = jnp.asarray(np.random.default_rng(0).normal(size=Q.shape), "float32")
    found = [_attend(x), jax.jit(_attend)(x), tilejax.jit(_attend)(x)]
    assert all(jnp.array_equal(found[0], each) for each in found)
    assert all("tilejax_attention" in f.lower(x).as_text("stablehlo") for f in
               (jax.jit(_attend), tilejax.jit(_attend)))  # fmt: skip
    with tilejax.options(kernels="reference"):
        assert "tilejax_" not in jax.jit(_attend).lower(x).as_text()


def test_exported_programs_have_the_reference_unless_asked_otherwise():
    x = jnp.asarray(np.random.default_rng(0).normal(size=Q.shape), "float32")
    f = tilejax.jit(_attend)
    here = f(x)
    exported = export.export(f)(x)
    assert "tilejax_" not in exported.mlir_module()
    again = export.deserialize(exported.serialize(vjp_order=1))
    np.testing.assert_allclose(again.call(x), here, atol=1e-5)
    assert "tilejax_attention" in f.lower(x).as_text("stablehlo")  # still, afterwards
    with tilejax.options(kernels="native"):
        with pytest.raises(ValueError, match="tilejax_attention"):
            export.export(tilejax.jit(_attend))(x)
        several = export.export(tilejax.jit(_attend), platforms=["cpu", "cuda"])(x)
    assert "tilejax_" not in several.mlir_module()
