"""Whole functions, lowered for TPUs that need not be there."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, PartitionSpec as P

import tilejax
from tilejax.primitives.attention import attention
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.embedding import embedding
from tilejax.primitives.norms import layer_norm, rms_norm
from tilejax.primitives.softmax import softmax

S = jax.ShapeDtypeStruct


@pytest.fixture(params=["TPU v5 lite", "TPU v6 lite"])
def kernels(request):
    """Lower for a TPU, and name the kernels in the module."""
    device = AbstractDevice(request.param, 1, "tpu")

    def kernels(f, *avals, platforms=("tpu",)):
        mesh = AbstractMesh((), (), abstract_device=device)
        wish = tilejax.options(kernels="native")
        with jax.sharding.use_abstract_mesh(mesh), wish:
            text = jax.export.export(f, platforms=list(platforms))(*avals).mlir_module()
        names = re.findall(r'kernel_name = "(\w+)"', text)
        assert len(names) == text.count("tpu_custom_call")
        return sorted(names)

    return kernels


X = S((64, 256), "float32")
IMAGES = S((2, 16, 16, 8), "bfloat16")
HEADS = S((2, 128, 4, 64), "bfloat16")


def _attends(q):
    return jax.nn.dot_product_attention(q, q, q, is_causal=True)


def _convolves(x, w):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


WHOLE = [
    (lambda a, b: jnp.tanh(a @ b.T), (X, X), ["matmul"]),
    (lambda x: jax.nn.softmax(x), (X,), ["softmax"]),
    (_attends, (HEADS,), ["attention"]),
    (_convolves, (IMAGES, S((3, 3, 8, 16), "bfloat16")), ["conv"]),
    (lambda t, i: t[i], (X, S((32,), "int32")), ["embedding"]),
    (lambda x, s: layer_norm(x, s), (X, S((256,), "float32")), ["layer_norm"]),
    (lambda x: rms_norm(x), (X,), ["rms_norm"]),
    (lambda x, i: cross_entropy(x, i), (X, S((64,), "int32")), ["cross_entropy"]),
    # where no kernel is legal, none is lowered
    (lambda a: a @ a.T, (S((64, 64), "float16"),), []),
    (lambda a: a @ a.T, (S((64, 64), "complex64"),), []),
    (lambda a: a.T @ a, (S((0, 64), "float32"),), []),
    (lambda x: jax.nn.softmax(x), (S((0, 64), "float32"),), []),
    (lambda t, i: t[i], (S((8, 4), bool), S((32,), "int32")), []),
]


@pytest.mark.parametrize(("f", "avals", "want"), WHOLE)
def test_whole_functions_lower_to_kernels_where_they_are_legal(kernels, f, avals, want):
    assert kernels(tilejax.jit(f), *avals) == want


GRADIENTS = [
    (lambda x: jax.nn.softmax(x), (X,), ["softmax", "softmax_backward"]),
    (_attends, (HEADS,), ["attention", "attention_dkv", "attention_dq"]),
    (lambda t, i: t[i], (X, S((32,), "int32")), ["embedding_add_rows"]),
    (lambda a, b: a @ b, (X, S((256, 8), "float32")), ["matmul"]),
    (lambda x: layer_norm(x), (X,), ["layer_norm", "layer_norm_backward"]),
]


@pytest.mark.parametrize(("f", "avals", "want"), GRADIENTS)
def test_the_gradient_of_a_tiled_function_keeps_kernels(kernels, f, avals, want):
    tiled = tilejax.jit(f)

    def loss(*operands):
        return jnp.sum(tiled(*operands).astype("float32"))

    assert kernels(jax.jit(jax.grad(loss)), *avals) == want


def test_the_gradient_of_a_filter_is_a_kernel(kernels):
    tiled, w = tilejax.jit(_convolves), S((3, 3, 8, 16), "bfloat16")

    def loss(x, w):
        return jnp.sum(tiled(x, w).astype("float32"))

    found = kernels(jax.jit(jax.grad(loss, (0, 1))), IMAGES, w)
    assert found == ["conv", "conv_filter_grad"]


MAPPED = [
    (jax.vmap(lambda x: softmax(x)), ((2, 8, 128),), "softmax"),
    (jax.vmap(jax.vmap(lambda x: softmax(x))), ((2, 8, 128),), "softmax"),
    (jax.vmap(lambda a, b: a @ b, (0, None)), ((3, 8, 128), (128, 8)), "matmul"),
    (jax.vmap(lambda q: attention(q, q, q)), ((3, 1, 2, 32, 64),), "attention"),
    (jax.vmap(lambda t: embedding(t, jnp.arange(4))), ((3, 9, 8),), "embedding"),
]


@pytest.mark.parametrize(("f", "avals", "want"), MAPPED)
def test_kernels_under_vmap(kernels, f, avals, want):
    assert kernels(tilejax.jit(f), *(S(a, "float32") for a in avals)) == [want]


def test_a_program_for_two_platforms_has_kernels_for_one(kernels):
    f = tilejax.jit(lambda a, b: jax.nn.softmax(a @ b))
    y = S((256, 8), "float32")
    assert kernels(f, X, y, platforms=("cpu", "tpu")) == ["matmul", "softmax"]
    exported = jax.export.export(f, platforms=["cpu", "tpu"])(X, y)
    again = jax.export.deserialize(exported.serialize())
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s.shape).astype("float32") for s in (X, y))
    np.testing.assert_allclose(again.call(a, b), jax.nn.softmax(a @ b), 1e-3)


def test_kernels_inside_shard_map(kernels):
    device = AbstractDevice("TPU v5 lite", 1, "tpu")
    auto = (AxisType.Auto,)
    mesh = AbstractMesh((4,), ("x",), axis_types=auto, abstract_device=device)

    def body(x):
        return softmax(x @ x.T)

    def f(x):
        mapped = jax.shard_map(
            tilejax.jit(body),
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P("x"),
            check_vma=True,
        )
        return mapped(x)

    assert kernels(jax.jit(f), X) == ["matmul", "softmax"]
    found = kernels(jax.jit(jax.grad(lambda x: jnp.sum(f(x)))), X)
    assert found == ["matmul", "matmul", "matmul", "softmax", "softmax_backward"]
