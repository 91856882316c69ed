"""Which kernel runs where, why none does, and whole functions lowered for TPUs."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, PartitionSpec as P

import tilejax
from tilejax import targets
from tilejax.errors import DeclarationError, TargetError
from tilejax.lowering import rules
from tilejax.primitives.attention import attention
from tilejax.primitives.call import Call
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.define import define
from tilejax.primitives.embedding import embedding
from tilejax.primitives.norms import layer_norm, rms_norm
from tilejax.primitives.softmax import softmax

S = jax.ShapeDtypeStruct
V5E, V6E = targets.get("tpu:v5e"), targets.get("tpu:v6e")
CPU = targets.get("cpu")


def _configs(*found):
    return lambda target, *avals, **params: list(found)


def _scaled(factor):
    return lambda x, *, config: x * factor


def _op(name):
    return define(name, reference=lambda x: x * 1.0, sharding="... -> ...")


def _choose(op, target, *avals, part="forward", **params):
    avals = avals or (S((2, 3), "float32"),)
    return rules.choose(op, part, target, avals, Call((True,) * len(avals)), params)


def test_a_kernel_for_a_target_goes_before_one_for_its_kind():
    op = _op("rules_specific")
    for target in ("tpu", "tpu:v6e"):
        rules.register_kernel(op, target, _scaled(2), configs=_configs(target))
    assert _choose(op, V6E).config == "tpu:v6e"
    assert _choose(op, V5E).config == "tpu"
    assert _choose(op, CPU).impl == "reference"
    assert "no forward kernel for cpu" in _choose(op, CPU).reason
    assert "no backward kernel" in _choose(op, V5E, part="backward").reason


def test_a_kind_of_target_may_have_several_platforms():
    op = _op("rules_gpu")
    assert rules.platforms_of("gpu") == ("cuda", "rocm")
    rules.register_kernel(op, "gpu", _scaled(2), configs=_configs("gpu"))
    rules.register_kernel(op, "rocm", _scaled(2), configs=_configs("rocm"))
    found = [_choose(op, targets.get(f"gpu:{n}")).config for n in ("h100", "mi300x")]
    assert found == ["gpu", "gpu"]  # the kind goes before the platform


def test_the_first_config_is_taken():
    op = _op("rules_first")
    rules.register_kernel(op, "tpu", _scaled(2), configs=_configs("a", "b"))
    choice = _choose(op, V5E)
    assert (choice.impl, choice.config) == ("native", "a")
    assert choice.reason == "first of 2 legal configs"


def test_options_say_whether_kernels_run():
    op = _op("rules_options")
    rules.register_kernel(op, "tpu", _scaled(2), configs=_configs("a"))
    with tilejax.options(kernels="reference"):
        choice = _choose(op, V5E)
    assert choice.impl == "reference"
    assert choice.reason == "options(kernels='reference')"
    with tilejax.options(kernels="native"):
        assert _choose(op, V5E).impl == "native"


def test_what_keeps_a_kernel_away_is_the_reason():
    op = _op("rules_reasons")

    def configs(target, x):
        return "too odd" if x.shape[0] % 2 else []

    rules.register_kernel(op, "tpu", _scaled(2), configs=configs)
    assert _choose(op, V5E, S((3,), "float32")).reason == "too odd"
    assert "memory" in _choose(op, V5E, S((4,), "float32")).reason
    assert _choose(op, V5E, S((0,), "float32")).reason == "an operand is empty"


def test_configs_see_parameters_and_operands_that_are_missing():
    op = define(
        "rules_optional",
        reference=lambda x, y, *, power: x if y is None else x * y**power,
    )
    seen = []

    def configs(target, x, y, *, power):
        seen.append((target.name, x.shape, y, power))
        return [None]

    rules.register_kernel(op, "tpu", lambda *xs, **_: xs[0], configs=configs)
    call = Call((True, False))
    choice = rules.choose(op, "forward", V5E, [S((2,), "float32")], call, {"power": 3})
    assert choice.impl == "native"
    assert seen == [("tpu:v5e", (2,), None, 3)]


def test_mistakes_in_registering_are_refused():
    op = _op("rules_mistakes")
    rules.register_kernel(op, "tpu", _scaled(2), configs=_configs())
    with pytest.raises(DeclarationError, match=r"forward kernel for tpu already"):
        rules.register_kernel(op, "tpu", _scaled(2), configs=_configs())
    with pytest.raises(DeclarationError, match="part='sideways'"):
        rules.register_kernel(
            op, "tpu", _scaled(2), configs=_configs(), part="sideways"
        )
    for target in ("tpux", "tpu:v1", ""):
        with pytest.raises(TargetError, match=r"targets are .*tpu:v5e.* kinds are"):
            rules.register_kernel(op, target, _scaled(2), configs=_configs())


def test_a_target_of_another_platform_is_refused_with_the_remedy():
    op = _op("rules_elsewhere")
    rules.register_kernel(op, "cpu", _scaled(2), configs=_configs("a"))
    assert float(jax.jit(op)(1.0)) == 2.0
    with pytest.raises(TargetError, match=r"lowering_platforms=\('tpu',\)"):
        with tilejax.options(target="tpu:v5e"):
            jax.jit(op)(1.0)
    with pytest.raises(TargetError, match=r"gpu:h100 .*'cuda'.*leave the target out"):
        tilejax.jit(lambda x: op(x), target="gpu:h100")(1.0)


def test_the_kernel_runs_eagerly_too_and_the_reference_when_asked():
    op = _op("rules_eager")
    rules.register_kernel(op, "cpu", _scaled(2), configs=_configs("a"))
    assert float(op(1.0)) == 2.0
    with tilejax.options(kernels="reference"):
        assert float(op(1.0)) == 1.0
        assert float(jax.jit(op)(1.0)) == 1.0
    assert float(jax.jit(op)(1.0)) == 2.0


def test_a_backward_kernel_runs_in_gradients():
    op = define(
        "rules_backward",
        reference=lambda x: jnp.sin(x),
        backward=lambda operands, saved, cts: (cts[0] * jnp.cos(operands[0]),),
    )

    def run(operands, saved, cotangents, *, config):
        return (cotangents[0] * config,)

    rules.register_kernel(op, "cpu", run, configs=_configs(7.0), part="backward")
    assert float(jax.jit(jax.grad(op))(0.0)) == 7.0
    assert float(jax.grad(tilejax.jit(lambda x: op(x)))(0.0)) == 7.0
    found = jax.vmap(jax.grad(op))(jnp.zeros(3))
    assert found.tolist() == [7.0] * 3


def test_a_wrong_gradient_of_a_kernel_is_refused():
    op = define(
        "rules_wrong_backward",
        reference=lambda x: jnp.sin(x),
        backward=lambda operands, saved, cts: (cts[0],),
    )
    rules.register_kernel(
        op, "cpu", lambda o, s, c, *, config: (c[0][None],), configs=_configs(0),
        part="backward",
    )  # fmt: skip
    with pytest.raises(DeclarationError, match="gradient of shape"):
        jax.jit(jax.grad(op))(0.0)


# Whole functions, lowered for TPUs that need not be there.


@pytest.fixture(params=["TPU v5 lite", "TPU v6 lite"])
def kernels(request):
    """Lower for a TPU, and name the kernels in the module."""
    device = AbstractDevice(request.param, 1, "tpu")

    def kernels(f, *avals, platforms=("tpu",)):
        mesh = AbstractMesh((), (), abstract_device=device)
        with jax.sharding.use_abstract_mesh(mesh):
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
        specs = {"in_specs": P("x"), "out_specs": P("x")}
        return jax.shard_map(tilejax.jit(body), mesh=mesh, check_vma=True, **specs)(x)

    assert kernels(jax.jit(f), X) == ["matmul", "softmax"]
    found = kernels(jax.jit(jax.grad(lambda x: jnp.sum(f(x)))), X)
    assert found == ["matmul", "matmul", "matmul", "softmax", "softmax_backward"]
