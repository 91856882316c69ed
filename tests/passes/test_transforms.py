"""Programs after the passes, under JAX's transformations, against the function."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from tilejax._jax.jaxprs import evaluate, trace
from tilejax.passes import run


def rewritten(fn):
    """Trace and rewrite `fn` at each call, in whatever trace the call is."""

    def call(*args):
        program, tree = trace(fn, *args)
        program, _ = run(program)
        return jax.tree.unflatten(tree, evaluate(program, *jax.tree.leaves(args)))

    return call


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, -1.0, 1.0)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, ct: (ct * 1.5,))


@jax.custom_jvp
def swish(x):
    return x * jax.nn.sigmoid(x)


swish.defjvp(lambda ps, ts: (swish(*ps), 2.0 * ts[0]))


def plain(x):
    y = jax.jit(lambda v: v * 1.0 + jnp.sqrt(4.0))(x)
    return jnp.sin(y) * jnp.sin(y) + (x - 0.0).T.T


def loops(x):
    y, ys = lax.scan(lambda c, a: (jnp.sin(c) * 1.0 + a, lax.neg(lax.neg(c))), x[0], x)
    z = lax.fori_loop(0, 3, lambda i, c: c * jnp.cos(c), y)
    return lax.cond(z > 0, lambda v: v * ys.sum(), lambda v: v - ys.max(), z) + x


def custom(x):
    return clipped(x * 2.0) + swish(x) + jax.nn.relu(x) + jax.nn.logsumexp(x)


def remat(x):
    policy = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(lambda v: jnp.sin(plain(v)) * v, policy=policy)(x)


def switch(x):
    which = jnp.int32(x[0] > 0) + jnp.int32(x[1] > 0)
    return lax.switch(which, [jnp.sin, lambda v: v * 1.0, lambda v: v / 2.0], x)


FUNCTIONS = [plain, loops, custom, remat, switch]
X = np.array([0.5, -1.5, 2.0, 0.25], np.float32)
XS = np.stack([X, -X, 2 * X])

TRANSFORMS = {
    "value": lambda f, x, xs: f(x),
    "jit": lambda f, x, xs: jax.jit(f)(x),
    "grad": lambda f, x, xs: jax.grad(lambda v: f(v).sum())(x),
    "grad of jit": lambda f, x, xs: jax.grad(lambda v: jax.jit(f)(v).sum())(x),
    "vjp": lambda f, x, xs: jax.vjp(f, x)[1](x),
    "vmap": lambda f, x, xs: jax.vmap(f)(xs),
    "vmap of grad": lambda f, x, xs: jax.vmap(jax.grad(lambda v: f(v).sum()))(xs),
    "hessian": lambda f, x, xs: jax.jacrev(jax.jacrev(f))(x),
    "scan": lambda f, x, xs: lax.scan(lambda c, v: (f(c) + v, c), x, xs),
    "checkpoint": lambda f, x, xs: jax.grad(lambda v: jax.checkpoint(f)(v).sum())(x),
}
FORWARD = {
    "jvp": lambda f, x, xs: jax.jvp(f, (x,), (xs[1],)),
    "linearize": lambda f, x, xs: jax.linearize(f, x)[1](xs[2]),
    "jacfwd": lambda f, x, xs: jax.jacfwd(f)(x),
}
# Every function under these, and under the others those that their turn brings.
FULLY = ("jit", "grad", "vmap", "jvp")
CASES = [
    (transform, fn)
    for i, transform in enumerate(TRANSFORMS | FORWARD)
    for k, fn in enumerate(FUNCTIONS)
    if transform in FULLY or (i + k) % 3 == 0
    # JAX itself has no forward mode for a custom_vjp.
    if not (transform in FORWARD and fn is custom)
]
ALL = TRANSFORMS | FORWARD


def _assert_close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "transform, fn", CASES, ids=[f"{t} of {f.__name__}" for t, f in CASES]
)
def test_rewritten_functions_transform_as_before(transform, fn):
    # Compiled, since the many small steps of some take seconds one by one.
    want, got = (
        jax.jit(partial(ALL[transform], f))(X, XS) for f in (fn, rewritten(fn))
    )
    jax.tree.map(_assert_close, got, want)
    assert jax.tree.map(jax.typeof, got) == jax.tree.map(jax.typeof, want)


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("inside", [True, False])
def test_rewritten_functions_in_and_around_shard_map(axis_type, inside, eight_devices):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(axis_type,) * 2)
    spec = PartitionSpec("x", "y")

    def body(a):
        b = lax.psum(jnp.sin(a) * 1.0, "x") + lax.axis_index("y") * jnp.sqrt(4.0)
        return a * jax.jit(lambda v: v + lax.psum(v, "y"))(b)

    def mapped(fn):
        return jax.shard_map(fn, mesh=mesh, in_specs=spec, out_specs=spec)

    a = jax.device_put(
        np.arange(16.0, dtype=np.float32).reshape(4, 4),
        jax.sharding.NamedSharding(mesh, spec),
    )
    with jax.set_mesh(mesh):
        new = mapped(rewritten(body)) if inside else rewritten(mapped(body))
        for wrap in (
            jax.jit,
            lambda f: jax.jit(jax.grad(lambda v: (f(v) ** 2).sum())),
        ):
            got, want = wrap(new)(a), wrap(mapped(body))(a)
            _assert_close(got, want)
            assert jax.typeof(got) == jax.typeof(want)


def test_explicit_shardings_stay(eight_devices):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        a = jax.device_put(np.ones((8, 4), np.float32), PartitionSpec("x", None))

        def f(a):
            b = (a @ jnp.ones((4, 4)) * 1.0).T.T
            return b + jnp.float32(0.5) * b.sum(0, keepdims=True), b.reshape(8, 2, 2)

        got, want = jax.jit(rewritten(f))(a), jax.jit(f)(a)
        for g, w in zip(got, want, strict=True):
            _assert_close(g, w)
            assert jax.typeof(g) == jax.typeof(w)


def test_references_are_read_and_written_in_order():
    def f(x):
        ref = jax.new_ref(x * 1.0)
        first = ref[...]
        jax.jit(lambda r: r.__setitem__(..., r[...] * 2.0))(ref)
        second = ref[...]

        def body(i, carry):
            ref[...] = ref[...] + i
            return carry + ref[...].sum()

        total = lax.fori_loop(0, 3, body, 0.0)
        return first, second, ref[...], total

    for g, w in zip(jax.jit(rewritten(f))(X), jax.jit(f)(X), strict=True):
        np.testing.assert_array_equal(g, w)


def test_effects_stay_in_order():
    seen = []

    def say(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=True)

    def f(x):
        say(x * 1.0)
        jax.jit(say)(x + 1)
        lax.fori_loop(0, 2, lambda i, c: (say(c + i), c)[1], x + 2)
        say(x + 4)
        say(x + 4)
        return x

    for fn in (f, rewritten(f)):
        seen.clear()
        jax.block_until_ready(jax.jit(fn)(1.0))
        jax.effects_barrier()
        assert seen == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]


def test_random_keys_pass_through():
    def f(key):
        a, b = jax.random.split(key)
        return jax.random.normal(a, (3,)), jax.random.key_data(b), b

    got, want = rewritten(f)(jax.random.key(1)), f(jax.random.key(1))
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])
    assert got[2] == want[2]


def test_a_traceback_points_at_the_users_line():
    def guilty(x):
        return jnp.log(x)  # here

    program, _ = run(trace(jax.jit(guilty), X)[0])
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        evaluate(program, -np.abs(X))
    text = "".join(_formatted(caught.value))
    assert "# here" in text or "guilty" in text


def _formatted(error):
    import traceback

    while error is not None:
        yield from traceback.format_exception(error)
        error = error.__cause__
