"""Known-wrong operations, each of which the shared tests must refuse."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from tests.primitives import shardings, transforms, vmaps
from tests.primitives.harness import Case
from tilejax._jax import primitives as rules
from tilejax.primitives import call
from tilejax.primitives.define import define

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def _swish(x, scale):
    return x * jax.nn.sigmoid(x) * scale


def _swish_backward(operands, saved, cotangents):
    x, scale = operands
    (y,), (dy,) = saved, cotangents
    gate = jax.nn.sigmoid(x)
    slope = gate + x * gate * (1 - gate)
    return dy * slope * scale, jnp.sum(dy * y / scale, 0)


def _declare(name, **changed):
    declared = {
        "reference": _swish,
        "sharding": "m n, n -> m n",
        "backward": _swish_backward,
        "saves": (0,),
    }
    return define(name, **{**declared, **changed})


right_op = _declare("swish_right")

CASE = Case(
    "swish",
    right_op,
    _swish,
    lambda rng: [rng.normal(size=(4, 6)), rng.uniform(1, 2, 6)],
    layouts=((("x", "y"), ("y",)), (("x", None), (None,))),
    dtypes=("float32",),
)


def _with(fun) -> Case:
    return replace(CASE, fun=fun)


def _transformed(case: Case) -> None:
    transforms.check_values(case, "float32")
    transforms.check_first(case, "float32")
    transforms.check_second(case, "float32")
    vmaps.check_vmap(case, "float32")


def _sharded(case: Case) -> None:
    for layout in case.layouts:
        shardings.check_auto(case, layout, 4, "float32")
        shardings.check_explicit(case, layout, 8, "float32")
        shardings.check_manual(case, layout, 8, "float32")


def test_a_right_operation_passes():
    transforms.check_special(CASE)
    transforms.check_remat(CASE, "float32")
    _transformed(CASE)
    _sharded(CASE)


def test_a_wrong_value_is_caught():
    wrong = _declare("swish_value", reference=lambda x, s: _swish(x, s) + 1e-3)
    with pytest.raises(AssertionError, match="swish float32"):
        transforms.check_values(_with(wrong), "float32")


def test_a_wrong_oracle_is_caught():
    case = replace(CASE, oracle=lambda x, scale: x * scale)
    with pytest.raises(AssertionError, match="swish float32"):
        transforms.check_values(case, "float32")


def test_a_wrong_dtype_is_caught():
    wrong = _with(lambda x, s: _swish(x, s).astype(jnp.float32))
    with pytest.raises(AssertionError, match="types"):
        transforms.check_values(wrong, "bfloat16")


def test_hidden_nan_is_caught():
    wrong = _declare("swish_nan", reference=lambda x, s: jnp.nan_to_num(_swish(x, s)))
    with pytest.raises(AssertionError, match="swish float32"):
        transforms.check_special(_with(wrong))


def test_a_wrong_gradient_is_caught():
    def backward(operands, saved, cotangents):
        dx, dscale = _swish_backward(operands, saved, cotangents)
        return dx, dscale * 1.001

    wrong = _with(_declare("swish_gradient", backward=backward))
    with pytest.raises(AssertionError, match="vjp"):
        transforms.check_first(wrong, "float32")
    with pytest.raises(AssertionError, match="swish float32"):
        transforms.check_remat(wrong, "float32")


def test_a_gradient_with_saved_results_held_still_is_caught():
    def backward(operands, saved, cotangents):
        return _swish_backward(operands, map(jax.lax.stop_gradient, saved), cotangents)

    wrong = _with(_declare("swish_saved", backward=backward))
    transforms.check_first(wrong, "float32")
    with pytest.raises(AssertionError, match="reverse"):
        transforms.check_second(wrong, "float32")


def test_a_wrong_vmap_is_caught():
    @jax.custom_batching.custom_vmap
    def wrong(x, scale):
        return right_op(x, scale)

    @wrong.def_vmap
    def _(size, mapped, x, scale):
        axes = [0 if m else None for m in mapped]
        found = jnp.asarray(jax.vmap(right_op, axes)(x, scale))
        return jnp.roll(found, 1, axis=0), True

    # custom_vmap has no reverse mode, so only values are compared
    case = replace(_with(wrong), moving=())
    with pytest.raises(AssertionError, match="vmap"):
        vmaps.check_vmap(case, "float32")


def test_a_shared_operand_whose_gradient_is_not_summed_is_caught(monkeypatch):
    def unsummed(fun, level):
        axes = tuple(0 if m else None for m in level.ins)

        def run(*args):
            outs = jax.vmap(lambda *xs: list(fun(*xs)), in_axes=axes)(*args)
            return [o if m else o[0] for o, m in zip(outs, level.outs, strict=True)]

        return run

    monkeypatch.setattr(call, "_mapped", unsummed)
    with pytest.raises(AssertionError, match="gradient of vmap"):
        vmaps.check_vmap(_with(_declare("swish_unsummed")), "float32")


def test_a_wrong_factor_rule_is_caught():
    wrong = _with(_declare("swish_rule", sharding="m n, n -> 1 n"))
    with pytest.raises(AssertionError, match="types"):
        shardings.check_explicit(wrong, CASE.layouts[1], 4, "float32")


def test_an_operation_that_takes_what_cannot_be_sharded_is_caught():
    loose = _with(_declare("swish_loose", sharding="m n, k -> m n"))
    with pytest.raises(AssertionError, match="refuses"):
        shardings.check_explicit(loose, ((None, "x"), ("y",)), 4, "float32")


def test_results_that_forget_that_they_vary_are_caught(monkeypatch):
    monkeypatch.setattr(rules, "varying_of", lambda avals: frozenset())
    # by the comparison of values' types, or by JAX where a cotangent comes back
    with pytest.raises((AssertionError, ValueError), match=r"varies|cotangent type"):
        shardings.check_manual(
            _with(_declare("swish_hidden")), CASE.layouts[1], 4, "float32"
        )


def test_results_that_leave_as_if_they_did_not_vary_are_caught():
    def hiding(x, scale):
        return jax.lax.psum(right_op(x, scale), "x")

    mesh = shardings.mesh_of(4, jax.sharding.AxisType.Auto)
    with pytest.raises(AssertionError, match="P\\(\\)"):
        shardings.must_not_hide(
            _with(hiding), CASE.operands("float32"), mesh, CASE.layouts[1], [("x",)]
        )


def test_a_gathered_operand_is_caught():
    def gathering(x, scale):
        whole = shardings.mesh_of(4, jax.sharding.AxisType.Auto)
        everywhere = jax.sharding.NamedSharding(whole, jax.sharding.PartitionSpec())
        return right_op(jax.lax.with_sharding_constraint(x, everywhere), scale)

    with pytest.raises(AssertionError, match="all-gather"):
        shardings.check_auto(_with(gathering), CASE.layouts[1], 4, "float32")


@pytest.mark.parametrize("ours", [0, 2])
def test_other_collectives_than_those_named_are_caught(ours):
    """Fewer than a case says, and more."""
    named = {(1, "auto", "gradient"): ({"all-reduce": ours}, {"all-reduce": 1})}
    with pytest.raises(AssertionError, match="named are"):
        case = replace(CASE, fewer=named)
        shardings.check_auto(case, CASE.layouts[1], 4, "float32")


def test_fewer_collectives_than_the_reference_has_are_caught():
    def summed_twice(x, scale):
        return _swish(x, scale) + 0.0 * jnp.sum(x) + jnp.max(x) * 0.0

    with pytest.raises(AssertionError, match="where the reference has"):
        case = replace(CASE, collectives=summed_twice)
        shardings.check_auto(case, CASE.layouts[1], 4, "float32")
