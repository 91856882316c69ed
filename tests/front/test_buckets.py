"""`tilejax.jit(bucket=...)`: few programs for many sizes, with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tilejax import errors
from tilejax.front.buckets import bucket_of


def mlp(w, x):
    return jax.nn.relu(x @ w[0]) @ w[1], jnp.mean(x, 0)


def weights(rng):
    shapes = ((4, 8), (8, 3))
    return [jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes]


@pytest.fixture
def bucketed():
    return tilejax.jit(mlp, bucket={"batch": "pow2"}, axes={"x": ("batch", None)})


def test_each_size_has_its_own_result(bucketed, rng):
    w = weights(rng)
    for size in (1, 2, 3, 5, 6, 7, 8, 9):
        x = rng.standard_normal((size, 4)).astype(np.float32)
        for found, wanted in zip(bucketed(w, x), mlp(w, x), strict=True):
            assert isinstance(found, jax.Array) and found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_program_is_compiled_for_each_bucket_only(rng):
    traced = []

    def f(x):
        traced.append(x.shape)
        return jnp.sum(x, 0)

    run = tilejax.jit(f, bucket={"n": "pow2"}, axes={"x": "n ..."})
    for size in (5, 6, 7, 8, 3, 4, 5):
        run(jnp.ones((size, 2)))
    assert len(traced) == 2


def test_gradients_go_through_padding_and_cutting(bucketed, rng):
    w = weights(rng)
    x = jnp.asarray(rng.standard_normal((5, 4)), jnp.float32)

    def loss(f):
        return lambda w, x: sum(jnp.sum(y**2) for y in f(w, x))

    ours, theirs = (jax.grad(loss(f), (0, 1))(w, x) for f in (bucketed, mlp))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), ours, theirs)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4),
        jax.jit(jax.grad(loss(bucketed), (0, 1)))(w, x),
        theirs,
    )


def test_padding_stays_out_of_gradients_that_overflow():
    def f(w, x):
        return jnp.sum(w * jnp.log(x - jnp.arange(x.shape[0])))

    run = tilejax.jit(f, bucket={"n": 8}, axes={"x": "n"})
    x = jnp.array([1.0, 2.0, 3.0])
    found = jax.grad(run, (0, 1))(2.0, x)
    for a, b in zip(found, jax.grad(f, (0, 1))(2.0, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_two_names_static_and_keyword_arguments_and_trees(rng):
    def f(tree, *, power, mask):
        x = tree["x"] ** power
        return {"y": (x * mask[..., None]).sum(1), "n": x.shape[1]}

    run = tilejax.jit(
        f,
        bucket={"b": 4, "s": (2, 6)},
        axes={"tree": ("b", "s", None), "mask": "b s"},
        static_argnames="power",
    )
    x = rng.standard_normal((3, 5, 2)).astype(np.float32)
    mask = jnp.asarray(rng.random((3, 5)) < 0.5)
    found = run({"x": x}, power=2, mask=mask)
    wanted = f({"x": x}, power=2, mask=mask)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5)
    assert found["n"] == 5


def test_it_shows_the_program_of_the_bucket(bucketed, rng):
    w = weights(rng)
    lowered = bucketed.lower(w, jnp.ones((5, 4)))
    assert "f32[8,4]" in lowered.as_text("jaxpr")
    assert "tiled_matmul" in lowered.as_text("tiled")
    types = bucketed.eval_shape(w, jnp.ones((5, 4)))
    assert [t.shape for t in types] == [(5, 3), (4,)]
    assert "buckets" in repr(bucketed)


def test_second_and_forward_derivatives_are_those_of_the_real_arrays(rng):
    def f(w, x):
        y = x @ w
        return jnp.sum(jnp.tanh(y) ** 2) / x.shape[0] + jax.nn.logsumexp(y)

    run = tilejax.jit(f, bucket={"n": "pow2"}, axes={"x": "n ..."})
    w = jnp.asarray(rng.standard_normal(4), jnp.float32)
    x = jnp.asarray(rng.standard_normal((5, 4)), jnp.float32)
    for of in (jax.hessian, lambda f: lambda *a: jax.jvp(f, a, a)[1]):
        np.testing.assert_allclose(of(run)(w, x), of(f)(w, x), rtol=1e-4, atol=1e-5)


def test_random_numbers_along_the_first_axis_are_the_same():
    def f(x, key):
        return tilejax.ops.dropout(x, key, rate=0.5).sum(1)

    run = tilejax.jit(f, bucket={"n": "pow2"}, axes={"x": "n _"})
    x = jnp.ones((5, 7))
    for key in (jax.random.key(1), jax.random.PRNGKey(2)):
        np.testing.assert_array_equal(run(x, key), f(x, key))


def test_arrays_stay_on_the_device_where_they_were_put(bucketed, rng, eight_devices):
    w, x = jax.device_put((weights(rng), jnp.ones((5, 4))), eight_devices[3])
    for found in bucketed(w, x):
        assert found.devices() == {eight_devices[3]}
    for found in bucketed(weights(rng), jnp.ones((5, 4))):
        assert not found.committed


def test_with_jit_disabled_nothing_is_padded(bucketed, rng):
    w, x = weights(rng), jnp.ones((5, 4)) * jnp.arange(5.0)[:, None]
    with jax.disable_jit():
        found = bucketed(w, x)
    np.testing.assert_allclose(found[1], mlp(w, x)[1], rtol=1e-5)


def test_it_can_be_mapped(bucketed, rng):
    w = weights(rng)
    x = jnp.asarray(rng.standard_normal((3, 5, 4)), jnp.float32)
    found = jax.vmap(bucketed, (None, 0))(w, x)
    wanted = jax.vmap(mlp, (None, 0))(w, x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_nothing_at_all_is_not_padded(bucketed, rng):
    found = bucketed(weights(rng), jnp.ones((0, 4)))
    assert found[0].shape == (0, 3)


def test_it_decorates_functions():

    @tilejax.jit(bucket={"n": lambda n: n + 3}, axes={"x": "n"})
    def double(x):
        return 2 * x

    assert double(jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]
    assert double.__name__ == "double"


@pytest.mark.parametrize(
    ("rule", "size", "bucket"),
    [
        ("pow2", 1, 1),
        ("pow2", 8, 8),
        ("pow2", 9, 16),
        (64, 65, 128),
        ([8, 32], 9, 32),
        (lambda n: 2 * n, 3, 6),
    ],
)
def test_a_rule_gives_the_bucket(rule, size, bucket):
    assert bucket_of("n", rule, size) == bucket


def _jit(**options):
    return tilejax.jit(lambda x, y: x, **options)


WRONG = [
    (lambda: _jit(bucket="pow2", axes={"x": "n"}), errors.ParameterError, "mapping"),
    (
        lambda: _jit(bucket={"n": "pow3"}, axes={"x": "n"}),
        errors.ParameterError,
        "pow3",
    ),
    (lambda: _jit(bucket={"n": 0}, axes={"x": "n"}), errors.ParameterError, "'n': 0"),
    (lambda: _jit(bucket={"n": "pow2"}), errors.ParameterError, "needs axes="),
    (lambda: _jit(axes={"x": "n"}), errors.ParameterError, "bucket=None"),
    (lambda: _jit(bucket={"n": 8}, axes={"z": "n"}), errors.ParameterError, "'z'"),
    (lambda: _jit(bucket={"n": 8}, axes={"x": "m"}), errors.ParameterError, "no axis"),
    (lambda: _jit(bucket={"n": 8}, axes={"x": "n-1"}), errors.ParameterError, "n-1"),
    (
        lambda: _jit(bucket={"n": 8}, axes={"x": "n"}, static_argnums=0),
        errors.ParameterError,
        "static_argnums",
    ),
    (
        lambda: _jit(bucket={"n": 8}, axes={"x": "n _"})(jnp.ones(3), 1),
        errors.ShapeError,
        r"x has shape \(3,\).*'n _'",
    ),
    (
        lambda: _jit(bucket={"n": 8}, axes={"x": "n", "y": "n"})(
            jnp.ones(3), jnp.ones(4)
        ),
        errors.ShapeError,
        "n is 3 in one argument and 4",
    ),
    (
        lambda: _jit(bucket={"n": [2, 4]}, axes={"x": "n"})(jnp.ones(5), 1),
        errors.BucketError,
        "n is 5",
    ),
    (
        lambda: tilejax.jit(lambda x: jnp.fft.fft(x), bucket={"n": 8}, axes={"x": "n"})(
            jnp.ones(5)
        ),
        errors.BucketError,
        r"fft of shapes \(n,\).*bucket=.*at .*test_buckets.py:\d+",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_a_mistake_is_refused_with_what_to_do(call, error, text):
    with pytest.raises(error, match=text):
        call()


CHOICES = {
    "==": lambda n: n == 6,
    "!=": lambda n: n != 6,
    "in": lambda n: n in (6, 7),
    "a remainder": lambda n: n % 2,
    "a remainder compared": lambda n: n % 4 == 0,
    "a difference": lambda n: n - 6,
    "a shape": lambda n: (n, 2) == (6, 2),
}


@pytest.mark.parametrize("case", CHOICES)
def test_a_choice_by_a_size_that_is_not_known_is_refused(case):
    def f(x):
        return x * 10 if CHOICES[case](x.shape[0]) else x

    with pytest.raises(errors.BucketError, match="another answer for another size"):
        tilejax.jit(f, bucket={"n": 8}, axes={"x": "n"})(jnp.ones(6))


def test_a_choice_that_no_size_of_the_bucket_changes_is_taken():
    def f(x):
        return x * 10 if x.shape[0] == 1 or x.shape[0] > 16 else x + 1

    run = tilejax.jit(f, bucket={"n": "pow2"}, axes={"x": "n"})
    for size, want in ((6, 2), (1, 10), (17, 10)):
        np.testing.assert_array_equal(run(jnp.ones(size)), np.full(size, want))


def test_sizes_of_two_names_are_not_compared():
    def f(x, y):
        return x.mean() - y.mean() if x.shape != y.shape else x.mean()

    bucketed = tilejax.jit(f, bucket={"n": 8, "m": 8}, axes={"x": "n", "y": "m"})
    with pytest.raises(errors.BucketError, match="another size"):
        bucketed(jnp.ones(5), jnp.ones(5))
