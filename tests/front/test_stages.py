"""The stages of a jitted function: traced, lowered, compiled, exported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tilejax
from tests.front.agreement import check_agreement
from tilejax.errors import ParameterError

X, W = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), jnp.ones((3, 4))


def f(x, w, *, scale=1.0):
    return {"y": jnp.tanh(x @ w) * scale, "n": x.shape[0]}


def test_trees_and_types_of_the_stages_agree():
    def case(jit):
        traced = jit(f).trace(X, W, scale=2.0)
        lowered = jit(f).lower(X, W, scale=2.0)
        compiled = lowered.compile()
        found = [traced.fun_name, str(traced.out_info), str(jit(f).eval_shape(X, W))]
        for stage in (traced.lower(), lowered, compiled):
            found += [str(stage.in_tree), str(stage.out_tree), str(stage.out_info)]
            found += [str(stage.args_info), stage.donate_argnums]
        return found, compiled(X, W, scale=2.0), compiled.input_shardings

    check_agreement(case)


def test_the_stages_are_of_the_classes_of_jax():
    traced = tilejax.jit(f).trace(X, W)
    lowered = traced.lower()
    assert isinstance(tilejax.jit(f), jax.stages.Wrapped)
    assert isinstance(traced, jax.stages.Traced)
    assert isinstance(lowered, jax.stages.Lowered)
    assert isinstance(lowered.compile(), jax.stages.Compiled)


def test_stages_take_types_in_place_of_arrays():
    def case(jit):
        given = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, W)]
        return jit(f).lower(*given).compile()(X, W)

    check_agreement(case)


def test_a_compiled_function_refuses_other_types_as_in_jax():
    def case(jit):
        compiled = jit(f).lower(X, W).compile()
        with pytest.raises(TypeError, match="was compiled"):
            compiled(X.astype(int), W)
        with pytest.raises(TypeError):
            compiled(X)
        return 0

    check_agreement(case)


def test_the_lowered_text_names_the_function_its_arguments_and_results():
    lowered = tilejax.jit(f).lower(X, W)
    text = lowered.as_text()
    assert text == lowered.as_text("stablehlo")
    assert "module @jit_f" in text
    assert """jax.result_info = "result['y']\"""" in text
    assert 'loc("w")' in lowered.as_text(debug_info=True)
    assert "HloModule jit_f" in lowered.as_text("hlo")


def test_the_programs_before_and_after_the_passes_can_be_read():
    lowered = tilejax.jit(lambda x: jnp.sin(x) * 1.0).lower(jnp.ones((2, 2)))
    assert " mul " in lowered.as_text("jaxpr")
    assert " mul " not in lowered.as_text("tiled")
    assert lowered.compile()(jnp.ones((2, 2))).shape == (2, 2)


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ParameterError, match="tiled"):
        tilejax.jit(f).lower(X, W).as_text("fortran")


def test_the_memory_analysis_is_that_of_jax():
    def case(jit):
        m = jit(f).lower(X, W).compile().memory_analysis()
        return m.argument_size_in_bytes, m.output_size_in_bytes

    check_agreement(case)


@pytest.mark.parametrize("stage", ["lowered", "compiled"])
def test_the_cost_analysis_counts_the_operations_of_products(stage):
    a, b = jnp.ones((32, 48)), jnp.ones((48, 80))
    lowered = tilejax.jit(lambda a, b: a @ b).lower(a, b)
    cost = (lowered if stage == "lowered" else lowered.compile()).cost_analysis()
    assert cost["flops"] == pytest.approx(2 * 32 * 48 * 80, rel=0.01)
    convolve = tilejax.jit(
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "VALID")
    )
    x, k = jnp.ones((2, 8, 10, 10)), jnp.ones((16, 8, 3, 3))
    lowered = convolve.lower(x, k)
    cost = (lowered if stage == "lowered" else lowered.compile()).cost_analysis()
    assert cost["flops"] == pytest.approx(2 * 2 * 16 * 64 * 8 * 9, rel=0.02)


def test_a_scan_of_products_costs_what_it_costs_in_jax():
    def case(jit):
        g = jit(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, 5)[0])
        return round(g.lower(jnp.eye(16)).compile().cost_analysis()["flops"], -3)

    check_agreement(case)


def test_make_jaxpr_agrees_in_types_and_names():
    def case(jit):
        made = jax.make_jaxpr(jit(f))(X, W)
        (eqn,) = made.jaxpr.eqns
        types = [str(v.aval) for v in (*made.jaxpr.invars, *made.jaxpr.outvars)]
        return eqn.primitive.name, eqn.params["name"], types

    check_agreement(case)


def test_an_exported_function_agrees_after_a_round_trip():
    def case(jit):
        made = export.export(jit(f), platforms=["cpu", "tpu"])(X, W)
        again = export.deserialize(made.serialize(vjp_order=1))
        pulled = jax.grad(lambda x: again.call(x, W)["y"].sum())(X)
        return again.call(X, W), pulled, jit(again.call)(X, W), str(again.out_avals)

    check_agreement(case, rtol=1e-5)


def test_an_exported_function_of_unknown_sizes_agrees():
    def g(x, w):
        y = jnp.tanh(x @ w)
        return jax.nn.softmax(y), y.reshape(-1), x.shape[0] * 2, jnp.arange(x.shape[0])

    def case(jit):
        n, m = export.symbolic_shape("n, m")
        given = (
            jax.ShapeDtypeStruct((n, m), "float32"),
            jax.ShapeDtypeStruct((m, 4), "float32"),
        )
        made = export.deserialize(export.export(jit(g))(*given).serialize())
        return made.call(X, W), made.call(jnp.ones((5, 1)), jnp.ones((1, 4)))

    check_agreement(case)


def test_named_scopes_reach_the_compiled_operations():
    def g(x):
        with jax.named_scope("outer"):
            y = jnp.sin(x @ x.T)
            with jax.named_scope("inner"):
                return jax.lax.scan(lambda c, _: (jnp.cos(c), None), y, None, 3)[0]

    for text in (
        tilejax.jit(g).lower(X).as_text(debug_info=True),
        tilejax.jit(g).lower(X).compile().as_text(),
    ):
        assert "jit(g)/outer/sin" in text
        assert "jit(g)/outer/inner/while/body" in text


def test_an_ahead_of_time_text_does_not_touch_the_arguments():
    x = X + 0
    lowered = tilejax.jit(lambda x: x * 1 + 2, donate_argnums=0).lower(x)
    lowered.as_text("tiled")
    assert not x.is_deleted()
    lowered.compile()(x)
    assert x.is_deleted()
    assert "add" in lowered.as_text("tiled")
    assert np.isfinite(np.asarray(X)).all()
