"""Effects: what is printed, called back and written, how often, and in which order."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from tests.front.agreement import check_agreement, outcome

X = jnp.arange(3.0)


def test_prints_agree_in_text_and_order(capfd):
    def case(jit):
        @jit
        def f(x):
            jax.debug.print("first {x}", x=x.sum(), ordered=True)
            y = jax.nn.softmax(x)
            jax.debug.print("unused {}", y * 0, ordered=True)
            jax.debug.print("third", ordered=True)
            return x

        f(X)
        f(X + 1)
        jit(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0])(X)
        jax.effects_barrier()
        return capfd.readouterr().out

    check_agreement(case)
    assert case(jax.jit).count("third") == 4


def test_prints_in_batches_branches_and_derivatives_agree(capfd):
    def case(jit):
        def f(x):
            jax.debug.print("x = {}", x)
            return jnp.sin(x)

        g = jit(f)
        jax.vmap(g)(X)
        jax.grad(g)(1.0)
        jax.jvp(g, (1.0,), (1.0,))
        jit(lambda p: jax.lax.cond(p, g, lambda x: x, 5.0))(True)
        jit(
            lambda: jax.lax.while_loop(lambda c: c < 2, lambda c: g(c) * 0 + c + 1, 0.0)
        )()
        jax.effects_barrier()
        return sorted(capfd.readouterr().out.splitlines())

    check_agreement(case)


def test_callbacks_are_called_as_often_and_with_the_same():
    def case(jit):
        seen = []

        def note(tag, x):
            seen.append((tag, np.asarray(x).tolist()))

        @jit
        def f(x):
            jax.debug.callback(partial(note, "debug"), x, ordered=True)
            io_callback(partial(note, "io"), None, x + 1, ordered=True)
            io_callback(partial(note, "again"), None, x + 1, ordered=True)
            return x * 2

        out = f(X), f(X)
        jax.effects_barrier()
        return out, seen

    check_agreement(case)


def test_a_pure_callback_agrees_in_batches_and_derivatives():
    def case(jit):
        @jax.custom_jvp
        def host_sin(x):
            type_ = jax.ShapeDtypeStruct(jnp.shape(x), x.dtype)
            return jax.pure_callback(np.sin, type_, x, vmap_method="expand_dims")

        host_sin.defjvp(lambda p, t: (host_sin(*p), jnp.cos(p[0]) * t[0]))
        f = jit(lambda x: jnp.sum(host_sin(x) @ jnp.eye(3)))
        return (
            f(X),
            jax.grad(f)(X),
            jax.vmap(jit(host_sin))(X),
            outcome(jit(_raises), X),
        )

    check_agreement(case)


def _raises(x):
    return jax.pure_callback(lambda x: 1 / 0, x, x)


def test_results_of_ordered_callbacks_feed_each_other():
    def case(jit):
        counter = iter(range(10))

        def draw(_=None):
            return np.float32(next(counter))

        @jit
        def f():
            type_ = jax.ShapeDtypeStruct((), np.float32)
            a = io_callback(draw, type_, ordered=True)
            b = io_callback(draw, type_, ordered=True)
            return (
                b - a,
                a,
                jax.lax.fori_loop(
                    0,
                    2,
                    lambda _, c: c * 10 + io_callback(draw, type_, ordered=True),
                    0.0,
                ),
            )

        return f(), f()

    check_agreement(case)


def test_references_made_inside_agree():
    def f(x):
        ref = jax.new_ref(jnp.zeros(3))

        def step(i, _):
            ref[...] += x * i
            ref[0] = ref[1] * 2
            return None

        jax.lax.fori_loop(0, 3, step, None)
        return ref[...], jax.freeze(ref)

    def case(jit):
        g = jit(f)
        return g(X), jax.grad(lambda x: g(x)[0].sum())(X), jax.vmap(g)(jnp.eye(3))

    check_agreement(case)


def test_references_given_and_closed_over_agree():
    def case(jit):
        total, log = jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.zeros((), int))

        @jit
        def f(ref, x):
            before = ref[...]
            ref[...] = before + x
            log[...] += 1
            after = ref[...]
            ref[1] = 7.0
            return before, after, before + x

        out = f(total, X), f(total, X)
        jit(lambda: jax.lax.scan(lambda c, x: (c, f(total, x)), None, X)[1])()
        return out, jax.freeze(total), jax.freeze(log)

    check_agreement(case)


def test_a_write_between_two_equal_reads_is_seen():
    def case(jit):
        @jit
        def f(ref):
            a = jnp.sin(ref[0])
            ref[0] = 2.0
            b = jnp.sin(ref[0])
            ref[0] = 2.0
            return a, b

        ref = jax.new_ref(jnp.ones(2))
        return f(ref), ref[...]

    check_agreement(case)
    a, b = case(jax.jit)[0]
    assert a != b
