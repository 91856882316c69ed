import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from tilejax._jax.jaxprs import evaluate, trace
from tilejax._jax.values import scope
from tilejax.ir import as_text, source
from tilejax.passes.inline import inline_calls
from tilejax.passes.record import collecting


@jax.jit
def square(x):
    return x * x


def test_inline_puts_the_body_in_the_place_of_the_call(after, golden):
    def f(x):
        y, _ = jax.lax.scan(lambda c, a: (square(c) + a, None), x[0], x)
        return square(square(y))

    golden("inline", as_text(after(inline_calls, f, jnp.arange(3.0))))


def test_inline_hoists_a_constant_once(after):
    table = np.arange(3, dtype=np.float32)
    look = jax.jit(lambda x: x + table)
    program = after(inline_calls, lambda x: look(x) * look(x + 1), jnp.ones(3))
    assert len(program.constvars) == 1


def test_inline_leaves_a_call_with_constants_inside_a_loop(after, names):
    table = jnp.arange(3.0)
    look = jax.jit(lambda x: x + table)

    def f(x):
        return jax.lax.scan(lambda c, _: (look(c), None), x, length=2)[0]

    with collecting() as notes:
        program = after(inline_calls, f, jnp.ones(3))
    assert names(program.eqns[0].params["jaxpr"]) == ["jit"]
    assert notes["kept a call that has constants, inside a loop"] > 0


def test_inline_leaves_a_call_with_shardings(after, names, eight_devices):
    mesh = jax.sharding.Mesh(np.array(eight_devices), ("x",))
    whole = NamedSharding(mesh, PartitionSpec())
    placed = jax.jit(lambda x: x + 1, in_shardings=whole, out_shardings=whole)
    program, _ = trace(lambda x: placed(square(x)), jnp.ones(8))
    assert names(inline_calls(program)) == ["mul", "jit"]


def test_inline_never_turns_off_a_custom_derivative(names):
    @jax.custom_vjp
    def f(x):
        return square(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 100.0,))

    @jax.custom_jvp
    def g(x):
        return square(x)

    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * 10.0))
    for fn, slope in ((f, 100.0), (g, 10.0)):
        program, _ = trace(jax.jit(fn), 3.0)
        program = inline_calls(program)
        (name,) = names(program)
        assert name.startswith("custom_")
        assert jax.grad(lambda x, p=program: evaluate(p, x)[0])(3.0) == slope


def test_inline_leaves_checkpoints(after, names):
    program = after(inline_calls, jax.checkpoint(lambda x: square(jnp.sin(x))), 1.0)
    assert names(program) == ["remat2"]
    assert names(program.eqns[0].params["jaxpr"]) == ["sin", "mul"]


def test_inline_keeps_scopes_and_the_users_line():
    def f(x):
        with jax.named_scope("outer"):
            return named(x)

    @jax.jit
    def named(x):
        with jax.named_scope("inner"):
            return jnp.sin(x)

    before, _ = trace(f, 1.0)
    (eqn,) = inline_calls(before).eqns
    assert scope(eqn) == "outer/jit(named)/inner"
    found = source(eqn)
    assert found is not None and found.function.endswith("named")
    text = (
        jax.jit(lambda x: evaluate(inline_calls(before), x))
        .lower(1.0)
        .as_text(debug_info=True)
    )
    assert "outer/jit(named)/inner/sin" in text


def test_inline_keeps_the_effects_of_what_it_renames(one_by_one):
    bump = jax.jit(lambda ref, by: ref.__setitem__(..., ref[...] + by))

    def f(x):
        ref = jax.new_ref(x)
        bump(ref, 1.0)
        bump(ref, x)
        return ref[...]

    program = inline_calls(trace(f, 3.0)[0])
    kinds = [eqn.primitive.name for eqn in program.eqns]
    assert "jit" not in kinds and kinds.count("swap") == 2
    assert jax.jit(lambda x: evaluate(program, x))(3.0) == [7.0]


def test_inline_keeps_weak_types_from_spreading(after):
    halve = jax.jit(lambda x: x * 0.5)

    def f(x):
        return halve(2.0), halve(x), halve(jnp.float16(1))

    after(inline_calls, f, jnp.ones(2, jnp.bfloat16))
