import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import Eqn, evaluate, new_var, trace, with_
from tilejax.ir import as_text
from tilejax.passes.cse import merge_common


def test_cse_keeps_one_of_two_and_the_value(after, golden):
    def f(x):
        def body(c, a):
            return c + jnp.sin(a) * jnp.sin(a), jnp.cos(c) + jnp.cos(c)

        return lax.scan(body, jnp.sin(x[0]) + jnp.sin(x[0]), x)

    golden("cse", as_text(after(merge_common, f, jnp.arange(3.0))))


def test_cse_tells_signed_zeros_apart(after, names):
    program = after(merge_common, lambda x: (x / 0.0, x / -0.0, x / 0.0), 1.0)
    assert names(program) == ["div", "div"]


def test_cse_tells_one_from_true(after, names):
    def f(x):
        return lax.select_n(x > 0, 1, 0), lax.select_n(x > 0, True, False)

    assert names(after(merge_common, f, 1.0)).count("select_n") == 2


def test_cse_merges_equal_nan(after, names):
    program = after(merge_common, lambda x: (x + jnp.nan, x + jnp.nan), 1.0)
    assert names(program) == ["add"]


def test_cse_tells_weak_types_apart(after):
    def f(x):
        return lax.convert_element_type(x, jnp.float32), x * 1.0, x * jnp.float32(1)

    after(merge_common, f, 2)


def test_cse_leaves_an_equation_that_drops_a_result(names):
    program, _ = trace(lambda x: (lax.top_k(x, 2)[0], lax.top_k(x, 2)[0]), jnp.ones(4))
    eqns = []
    for eqn in program.eqns:
        kept, other = eqn.outvars
        drop = new_var(other.aval, is_dropped=True)
        eqns.append(eqn.replace(outvars=[kept, drop]))
    program = with_(program, eqns=eqns)
    assert names(merge_common(program)) == ["top_k", "top_k"]


def test_cse_leaves_a_parameter_that_cannot_be_hashed(names):
    program, _ = trace(lambda x: (jnp.sin(x), jnp.sin(x)), 1.0)
    eqns = [e.replace(params={**e.params, "extra": [np.ones(2)]}) for e in program.eqns]
    assert names(merge_common(with_(program, eqns=eqns))) == ["sin", "sin"]


def test_cse_tells_parameters_apart_that_python_holds_equal(names):
    program, _ = trace(lambda x: (jnp.sin(x), jnp.sin(x)), 1.0)

    def marked(first, second):
        a, b = program.eqns
        return with_(program, eqns=[_with(a, first), _with(b, second)])

    def _with(eqn: Eqn, value):
        return eqn.replace(params={**eqn.params, "extra": (value,)})

    for first, second in ((1, True), (1, 1.0), (0.0, -0.0)):
        assert len(merge_common(marked(first, second)).eqns) == 2
    assert len(merge_common(marked(0.5, 0.5)).eqns) == 1


def test_cse_leaves_random_numbers(names):
    def f(key):
        return jax.random.bits(key), jax.random.bits(key)

    program, _ = trace(f, jax.random.key(0))
    before = as_text(program).count("random_bits")
    assert as_text(merge_common(program)).count("random_bits") == before == 2


def test_cse_leaves_barriers_checkpoints_and_callbacks(names):
    remat = jax.checkpoint(jnp.sin)
    shape = jax.ShapeDtypeStruct((), jnp.float32)

    def f(x):
        a = [lax.optimization_barrier(x) for _ in range(2)]
        b = [remat(x) for _ in range(2)]
        return a, b, [jax.pure_callback(np.sin, shape, x) for _ in range(2)]

    program, _ = trace(f, jnp.float32(1))
    assert merge_common(program) is program


def test_cse_leaves_effects_and_references():
    def f(x):
        a, b = jax.new_ref(x), jax.new_ref(x)
        jax.debug.print("{}", x)
        jax.debug.print("{}", x)
        first = a[...]
        a[...] = first + 1
        return first, a[...], b[...]

    program, _ = trace(f, 1.0)
    assert merge_common(program) is program
    assert jax.jit(lambda x: evaluate(program, x))(1.0) == [1.0, 2.0, 1.0]


def test_cse_merges_constants_that_are_one_array(after):
    table = np.arange(3, dtype=np.float32)
    program, _ = trace(lambda x: x + table, jnp.ones(3))
    doubled, _ = trace(
        lambda x: evaluate(program, x)[0] * evaluate(program, x)[0], jnp.ones(3)
    )
    assert len(merge_common(doubled).constvars) == 1


@pytest.mark.parametrize("check_vma", [True, False])
def test_cse_merges_collectives(eight_devices, check_vma):
    mesh = jax.sharding.Mesh(np.array(eight_devices), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    mapped = jax.shard_map(
        lambda x: x * lax.psum(x, "x") + lax.psum(x, "x"),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=check_vma,
    )
    x = jnp.arange(8.0)
    program = merge_common(trace(mapped, x)[0])
    assert as_text(program).count("psum") == 1
    np.testing.assert_array_equal(
        jax.jit(lambda x: evaluate(program, x)[0])(x), mapped(x)
    )
