import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tilejax._jax.jaxprs import evaluate, trace
from tilejax.ir import as_text, count
from tilejax.passes.dce import drop_dead


def test_dce_drops_what_nothing_reads(after, golden):
    def f(x):
        jnp.sin(x)
        (y, _), _ = lax.scan(
            lambda c, a: ((c[0] + a, c[1] * jnp.cos(a)), c[1]), (x[0], x[1]), x
        )
        return y

    golden("dce", as_text(after(drop_dead, f, jnp.arange(3.0))))


def test_dce_keeps_unused_inputs(after):
    assert len(after(drop_dead, lambda x, y: x + 1, 1.0, 2.0).invars) == 2


def test_dce_drops_constants_that_nothing_reads(after):
    table, other = np.ones(3, np.float32), np.zeros(3, np.float32)

    def f(x):
        jnp.sin(table)
        return jax.jit(lambda y: (y + other, y * table)[0])(x)

    program = after(drop_dead, f, table)
    assert all(count(body) for body in [program])
    assert as_text(program).count("sin") == 0
    assert len(program.constvars) <= 1


def test_dce_keeps_effects_in_their_order():
    seen = []

    def f(x):
        jax.debug.callback(lambda v: seen.append(("a", float(v))), x, ordered=True)
        jnp.sin(x)
        jax.debug.callback(lambda v: seen.append(("b", float(v))), x + 1, ordered=True)
        return x

    program = drop_dead(trace(f, 1.0)[0])
    jax.block_until_ready(jax.jit(lambda x: evaluate(program, x))(1.0))
    jax.effects_barrier()
    assert seen == [("a", 1.0), ("b", 2.0)]


def test_dce_keeps_writes_to_a_reference_that_outlives_the_program():
    ref = jax.new_ref(jnp.zeros(2))

    def f(ref, x):
        ref[...] = ref[...] + x
        jnp.sin(ref[...])
        return x

    program = drop_dead(trace(f, ref, jnp.ones(2))[0])
    jax.jit(lambda ref, x: evaluate(program, ref, x))(ref, jnp.ones(2))
    np.testing.assert_array_equal(ref[...], np.ones(2))


def test_dce_works_in_while_and_cond(after):
    def f(x):
        def body(c):
            jnp.sin(c)
            return c + 1

        y = lax.while_loop(lambda c: (jnp.cos(c), c < 3)[1], body, x)
        return lax.cond(y > 0, lambda c: (jnp.tan(c), c)[1], lambda c: -c, y)

    text = as_text(after(drop_dead, f, 0.5))
    assert not any(name in text for name in ("sin", "cos", "tan"))


def test_dce_keeps_custom_derivatives_working():
    @jax.custom_vjp
    def f(x, y):
        return x * y, jnp.sin(y)

    f.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda res, cts: (cts[0] * 10, cts[0] * 100),
    )
    program = drop_dead(trace(lambda x, y: f(x, y)[0], 2.0, 3.0)[0])
    gradients = jax.grad(lambda *xs: evaluate(program, *xs)[0], (0, 1))(2.0, 3.0)
    assert gradients == (10.0, 100.0)
