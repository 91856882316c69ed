"""Which kernel runs where, and why none does."""

import jax
import jax.numpy as jnp
import pytest

import tilejax
from tilejax import targets
from tilejax.errors import DeclarationError, TargetError
from tilejax.lowering import rules
from tilejax.primitives.call import Call
from tilejax.primitives.define import define

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
    with tilejax.options(kernels="auto"):
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
