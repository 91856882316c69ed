"""The neutral view of programs, on whichever JAX is here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import consts, evaluate, trace, with_
from tilejax._jax.nested import can_rewrite, nested, scan_parts, with_nested


def test_trace_takes_pytrees_and_gives_the_structure_of_the_result():
    def f(x, *, scale):
        return {"a": x["u"] * scale, "b": (x["v"],)}

    program, tree = trace(f, {"u": 1.0, "v": jnp.ones(2)}, scale=2.0)
    outs = evaluate(program, 1.0, jnp.ones(2), 2.0)
    assert jax.tree.unflatten(tree, outs)["a"] == 2.0


def test_trace_keeps_weak_types_and_structs():
    struct = jax.ShapeDtypeStruct((3,), jnp.bfloat16)
    program, _ = trace(lambda x, y, z: (x, y, z), 1.0, np.float32(1), struct)
    avals = [v.aval for v in program.invars]
    assert [a.weak_type for a in avals] == [True, False, False]
    assert avals[2].shape == (3,) and avals[2].dtype == jnp.bfloat16


def test_trace_names_the_users_function_and_arguments():
    def my_function(alpha, beta):
        return alpha + beta

    program, _ = trace(my_function, 1.0, 2.0)
    info = getattr(program, "jaxpr", program).debug_info
    assert info.arg_names == ("alpha", "beta")
    assert info.func_name.endswith("my_function")
    kept = with_(program, eqns=program.eqns)
    assert getattr(kept, "jaxpr", kept).debug_info.arg_names == ("alpha", "beta")


def test_trace_makes_outer_values_constants():
    def outer(y):
        program, _ = trace(lambda x: x * y, 1.0)
        assert len(consts(program)) == 1
        return evaluate(program, 3.0)[0]

    assert jax.grad(outer)(2.0) == 3.0
    assert jax.jit(outer)(2.0) == 6.0
    np.testing.assert_array_equal(jax.vmap(outer)(jnp.arange(2.0)), [0.0, 3.0])


def test_trace_takes_keys_and_references():
    ref = jax.new_ref(jnp.zeros(2))

    def f(key, ref):
        ref[...] = ref[...] + 1
        return jax.random.bits(key)

    program, _ = trace(f, jax.random.key(0), ref)
    assert len(program.effects) == 2
    assert evaluate(program, jax.random.key(0), ref) == [
        jax.random.bits(jax.random.key(0))
    ]
    np.testing.assert_array_equal(ref[...], [1, 1])


def test_trace_refuses_what_is_no_array():
    with pytest.raises(TypeError):
        trace(lambda x: x, "text")


def test_trace_keeps_varying_axes(eight_devices):
    mesh = jax.sharding.Mesh(np.array(eight_devices), ("x",))
    spec = jax.sharding.PartitionSpec("x")

    def f(x):
        program, _ = trace(lambda v: lax.psum(v, "x"), x)
        assert program.invars[0].aval == jax.typeof(x)
        return x * evaluate(program, x)[0]

    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    np.testing.assert_array_equal(jax.jit(mapped)(jnp.ones(8)), 8 * np.ones(8))


def test_evaluate_keeps_scopes_and_contexts():
    def f(x):
        with jax.named_scope("mine"):
            return jnp.sin(x)

    program, _ = trace(f, 1.0)
    lowered = jax.jit(lambda x: evaluate(program, x)).lower(1.0)
    assert "mine/sin" in lowered.as_text(debug_info=True)


def test_a_body_may_not_change_what_it_takes_and_gives():
    program, _ = trace(lambda x: lax.scan(lambda c, a: (c + a, c), 0.0, x), jnp.ones(3))
    eqn = program.eqns[-1]
    ((_, body),) = nested(eqn)
    with pytest.raises(ValueError, match=r"scan: a body of 2 inputs and 2 outputs"):
        with_nested(eqn, [with_(body, outvars=body.outvars[:1])])


def test_bodies_of_unknown_primitives_are_read_but_not_replaced():
    def solve(matvec, b):
        return b / 2

    def f(x):
        return lax.custom_linear_solve(lambda v: v * 2, x, solve, solve)

    eqn = trace(f, jnp.ones(2))[0].eqns[-1]
    assert not can_rewrite(eqn) and len(nested(eqn)) >= 2
    with pytest.raises(ValueError, match="may not be replaced"):
        with_nested(eqn, [body for _, body in nested(eqn)])


def test_scan_says_how_its_operands_divide():
    def f(x, y):
        return lax.scan(lambda c, a: ((c[0] + y, c[1] + c[0]), a), (x, x), jnp.ones(3))

    program, _ = trace(f, 1.0, 2.0)
    assert scan_parts(program.eqns[-1]) == (1, 2)
