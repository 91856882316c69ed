import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tilejax._jax.jaxprs import trace, with_
from tilejax.ir import count, rewrite, total, walk


def _nest(x):
    def outer(c, a):
        return lax.scan(lambda d, b: (d * b, None), c + a, jnp.ones(3))[0], None

    y = lax.scan(outer, x, jnp.ones(5))[0]
    y = lax.while_loop(lambda c: c < 1, lambda c: c * 2, y)
    return lax.cond(y > 0, lambda c: jnp.sin(c) * c, lambda c: c - 1, y)


@pytest.fixture(scope="module")
def program():
    return trace(_nest, jnp.float32(1))[0]


def test_walk_multiplies_trips_and_gives_up_in_a_while(program):
    trips = {v.eqn.primitive.name: v.trips for v in walk(program) if v.path}
    assert trips["scan"] == 5
    inner = [v for v in walk(program) if v.trips == 15]
    assert [v.eqn.primitive.name for v in inner] == ["mul"]
    assert [str(step) for step in inner[0].path] == ["scan.jaxpr", "scan.jaxpr"]
    assert trips["lt"] is None


def test_walk_enters_kernels_only_when_asked():
    from jax.experimental import pallas as pl

    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sin(x_ref[...])

    call = pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32), interpret=True
    )
    program, _ = trace(call, jnp.ones((8, 128)))
    inside = [v.eqn.primitive.name for v in walk(program, kernels=True)]
    assert "sin" in inside and "sin" not in [
        v.eqn.primitive.name for v in walk(program)
    ]


def test_count_counts_what_walk_visits(program):
    assert count(program) == sum(1 for _ in walk(program))


def test_total_takes_the_dearest_branch_and_repeats_scans(program):
    def multiplications(eqn):
        if eqn.primitive.name in ("scan", "cond", "while", "jit"):
            return None
        return 1.0 if eqn.primitive.name in ("mul", "sin") else 0.0

    found = total(program, multiplications)
    assert found.value == 15 + 1 + 2  # scans, one trip of the while, the dear branch
    assert not found.is_exact
    straight = total(trace(lambda x: x * x * x, 1.0)[0], multiplications)
    assert straight.value == 2 and straight.is_exact


def test_rewrite_keeps_the_very_object_where_nothing_changes(program):
    assert rewrite(program, lambda body, has_room: body) is program


def test_rewrite_reaches_every_body_that_may_change():
    def f(x):
        y = jax.jit(jnp.sin)(jnp.sin(x))
        y = jax.checkpoint(jnp.sin)(y)
        y = lax.scan(lambda c, _: (jnp.sin(c), None), y, length=2)[0]
        y = lax.while_loop(lambda c: jnp.sin(c) > 0, jnp.sin, y)
        y = lax.switch(jnp.int32(y), [jnp.sin, jnp.sin, jnp.sin], y)
        derived = jax.custom_jvp(jnp.sin)
        derived.defjvp(lambda p, t: (derived(*p), t[0]))
        other = jax.custom_vjp(jnp.sin)
        other.defvjp(lambda v: (other(v), None), lambda _, ct: (ct,))
        batched = jax.custom_batching.custom_vmap(jnp.sin)
        batched.def_vmap(lambda size, is_batched, v: (v, True))
        return batched(other(derived(y)))

    def to_cos(body, has_room):
        eqns = [
            e.replace(primitive=lax.cos_p) if e.primitive.name == "sin" else e
            for e in body.eqns
        ]
        return with_(body, eqns=eqns)

    program, _ = trace(f, 1.0)
    names = [v.eqn.primitive.name for v in walk(rewrite(program, to_cos))]
    assert names.count("cos") == 12 and names.count("sin") == 0


def test_rewrite_does_shared_bodies_once():
    f = jax.jit(jnp.sin)
    program, _ = trace(lambda x: f(f(f(x))), 1.0)
    seen = []
    new = rewrite(program, lambda body, has_room: seen.append(body) or with_(body))
    assert len(seen) == 2
    assert len({id(eqn.params["jaxpr"]) for eqn in new.eqns}) == 1
