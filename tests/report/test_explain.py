"""`explain` counts what runs, says why and where, for every kind of function."""

import functools
import inspect
import json
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import tilejax
from tilejax import targets
from tilejax.errors import TargetError
from tilejax.report.explain import explain

A = jax.ShapeDtypeStruct((8, 16), jnp.float32)
B = jax.ShapeDtypeStruct((16, 4), jnp.float32)
PRODUCT = 2 * 8 * 16 * 4
SCALED = PRODUCT + 8 * 4  # or with something added to it


def multiply(a, b):
    return a @ b


class Scaled:
    @tilejax.jit
    def method(self, a, b):
        return a @ b * 2

    def plain(self, a, b):
        return a @ b


jax.tree_util.register_static(Scaled)

KINDS = {
    "a function": lambda: explain(multiply, A, B),
    "arrays": lambda: explain(multiply, jnp.ones(A.shape), jnp.ones(B.shape)),
    "keywords": lambda: explain(multiply, A, b=B),
    "jax.jit": lambda: explain(jax.jit(multiply), A, B),
    "tilejax.jit": lambda: explain(tilejax.jit(multiply), A, B),
    "tilejax.filter_jit": lambda: explain(tilejax.filter_jit(multiply), A, B),
    "a partial": lambda: explain(functools.partial(multiply, b=jnp.ones(B.shape)), A),
    "a jitted method": lambda: explain(Scaled().method, A, B),
    "a method": lambda: explain(Scaled().plain, A, B),
    "a static argument": lambda: explain(
        tilejax.jit(lambda a, b, f: f(a) @ b, static_argnums=2), A, B, jnp.sin
    ),
    "what is no array": lambda: explain(lambda a, b, f: f(a) @ b, A, B, jnp.sin),
    "a nested jit": lambda: explain(lambda a, b: tilejax.jit(multiply)(a, b), A, B),
    "checkpoint": lambda: explain(jax.checkpoint(multiply), A, B),
    "a module": lambda: explain(
        eqx.nn.Linear(16, 4, use_bias=False, key=jax.random.key(0)),
        jax.ShapeDtypeStruct((16,), jnp.float32),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_explain_takes(kind):
    (kernel,) = KINDS[kind]().kernels
    assert kernel.primitive == "matmul" and kernel.part == "forward"
    others = {"a module": 2 * 16 * 4, "a jitted method": SCALED}
    assert kernel.flops == others.get(kind, PRODUCT)
    assert kernel.times == 1
    assert kernel.source is not None


def test_bytes_are_those_of_operands_and_results():
    (kernel,) = explain(multiply, A, B).kernels
    assert kernel.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert kernel.intensity == kernel.flops / kernel.bytes


def test_a_loop_counts_each_turn():
    def fn(a, b):
        return jax.lax.scan(lambda c, _: (jnp.sin(c @ b @ b.T), None), a, length=5)[0]

    kernels = explain(fn, A, B).kernels
    assert [k.times for k in kernels] == [5, 5]
    assert sum(k.flops for k in kernels) == 5 * 2 * PRODUCT


def test_loops_in_loops_multiply():
    def fn(a, b):
        def inner(c, _):
            return c + a @ b, None

        def outer(c, _):
            return jax.lax.scan(inner, c, length=3)[0], None

        return jax.lax.scan(outer, jnp.zeros((8, 4)), length=4)[0]

    assert sum(k.flops for k in explain(fn, A, B).kernels) in (12 * SCALED, SCALED)


def test_a_while_runs_an_unknown_number_of_times():
    def fn(a, b):
        return jax.lax.while_loop(
            lambda c: jnp.sum(c) < 9, lambda c: jnp.sin(c @ b @ b.T), a
        )

    kernels = explain(fn, A, B).kernels
    assert {k.times for k in kernels} == {None}
    assert "x?" in str(explain(fn, A, B))


def test_members_of_a_map_count_together():
    many = jax.ShapeDtypeStruct((7, 8, 16), jnp.float32)
    for fn in (
        jax.vmap(multiply, (0, None)),
        jax.vmap(tilejax.jit(multiply), (0, None)),
    ):
        assert sum(k.flops for k in explain(fn, many, B).kernels) == 7 * PRODUCT
    batched = jax.ShapeDtypeStruct((7, 8, 3), jnp.float32)
    one = explain(jax.nn.softmax, jax.ShapeDtypeStruct((8, 3), jnp.float32)).kernels
    all_ = explain(jax.vmap(tilejax.jit(jax.nn.softmax)), batched).kernels
    assert [k.flops * 7 for k in one] == [k.flops for k in all_]


def test_a_gradient_has_a_backward_and_counts_both():
    def loss(a, b):
        return jnp.sum(jnp.sin(a @ b))

    kernels = explain(jax.grad(tilejax.jit(loss), (0, 1)), A, B).kernels
    assert sum(k.flops for k in kernels) == 3 * PRODUCT
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
    soft = explain(jax.grad(lambda x: jnp.sum(jax.nn.softmax(x)[0])), x)
    assert soft.kernels == () or all(k.part for k in soft.kernels)


def test_attention_counts_its_two_products_and_half_of_them_when_causal():
    q = jax.ShapeDtypeStruct((2, 32, 4, 16), jnp.float32)
    whole, causal = (
        explain(
            functools.partial(jax.nn.dot_product_attention, is_causal=c), q, q, q
        ).kernels
        for c in (False, True)
    )
    products = 2 * 2 * 32 * 32 * 16 * 2 * 4
    assert [k.primitive for k in whole] == ["attention"]
    assert products <= whole[0].flops < 1.5 * products
    assert causal[0].flops < 0.7 * whole[0].flops


def test_other_heavy_equations_are_there_with_a_reason():
    def fn(a):
        return jnp.fft.fft(a), jnp.sort(a), jnp.linalg.cholesky(a[:, :8] @ a[:, :8].T)

    found = {k.primitive: k for k in explain(fn, A).kernels}
    assert {"fft", "sort", "cholesky", "matmul"} <= set(found)
    assert found["fft"].reason == "no tiled primitive yet"
    assert found["fft"].impl == "reference"


def test_the_source_is_the_users_line():
    (kernel,) = explain(multiply, A, B).kernels
    line = inspect.getsourcelines(multiply)[1] + 1
    assert kernel.source == f"{__file__}:{line} (multiply)"


def test_the_source_in_a_library_is_the_line_that_calls_it():
    linear = eqx.nn.Linear(16, 4, key=jax.random.key(0))

    def fn(x):
        return linear(x)

    (kernel,) = explain(fn, jax.ShapeDtypeStruct((16,), jnp.float32)).kernels
    line = inspect.getsourcelines(fn)[1] + 1
    assert kernel.source is not None
    assert kernel.source.startswith(f"{__file__}:{line} ")


def test_a_kernel_of_the_target_is_named_with_its_config():
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    found = explain(multiply, x, x, target="tpu:v5e")
    (kernel,) = found.kernels
    assert (found.target, kernel.impl) == ("tpu:v5e", "native")
    assert kernel.config is not None
    assert re.fullmatch(
        r"native: [\d.]+ us modelled, reference [\d.]+ us; best of \d+ configs",
        kernel.reason,
    )
    assert kernel.seconds is not None and kernel.seconds > 0
    assert found.seconds == kernel.seconds
    with tilejax.options(kernels="reference"):
        (kernel,) = explain(multiply, x, x, target="tpu:v5e").kernels
    assert (kernel.impl, kernel.config) == ("reference", None)
    assert "options" in kernel.reason


def test_a_target_without_a_kernel_says_so():
    (kernel,) = explain(multiply, A, B, target="gpu:h100").kernels
    assert kernel.impl == "reference"
    assert kernel.reason == "no forward kernel for gpu:h100"


@pytest.mark.parametrize("target", targets.names())
def test_every_target_can_be_explained_for(target):
    found = explain(jax.nn.softmax, A, target=target)
    for kernel in found.kernels:
        assert kernel.at_least >= 0
        assert kernel.seconds is None or kernel.seconds >= kernel.at_least * 0.999
    assert found.to_dict()["target"] == target
    json.dumps(found.to_dict())


def test_an_unknown_figure_makes_no_time_but_a_least_one():
    half = jax.ShapeDtypeStruct((8, 16), jnp.float64)
    unknown = []
    for target in targets.names():
        with jax.enable_x64(True):
            found = explain(lambda a: a @ a.T, half, target=target)
        if found.seconds is None:
            unknown.append(target)
            assert found.kernels[0].at_least > 0
            assert ">=" in str(found)
    assert unknown, "some target has no known rate for float64"


def test_an_unknown_target_is_an_error():
    with pytest.raises(TargetError, match="tpu:v9"):
        explain(multiply, A, B, target="tpu:v9")


def test_to_dict_is_plain_data():
    found = explain(multiply, A, B, target="tpu:v5e")
    again = json.loads(json.dumps(found.to_dict()))
    assert again == found.to_dict() or again["kernels"][0]["shapes"] == [
        "f32[8,16]",
        "f32[16,4]",
    ]
    assert again["name"] == "multiply"
    assert again["kernels"][0]["flops"] == PRODUCT
    assert {p["name"] for p in again["passes"]} <= {p.name for p in found.passes}


def test_the_passes_say_what_they_left_alone_and_why():
    def fn(a):
        p = jax.nn.softmax(a @ a.T)
        return p @ a, p

    notes = [what for record in explain(fn, A).passes for what in record.notes]
    assert any("used elsewhere" in what for what in notes)
    assert f"{__file__}" in " ".join(notes)


def test_nothing_heavy_is_an_empty_table():
    found = explain(lambda a: a + 1, A)
    assert list(found.kernels) == []
    assert found.seconds == 0
    assert "together 0 operations" in str(found)
