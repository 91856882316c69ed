"""What goes into a jitted function and how: static, donated, nested, by keyword."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.front.agreement import check_agreement, check_same, counted

X = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)


class Pair(NamedTuple):
    left: object
    right: object


@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, inside, label):
        self.inside, self.label = inside, label

    def tree_flatten(self):
        return (self.inside,), self.label

    @classmethod
    def tree_unflatten(cls, label, children):
        (inside,) = children
        return cls(inside, label)


def test_a_decorator_works_with_and_without_arguments():
    @tilejax.jit
    def plain(x):
        """Double."""
        return x * 2

    @tilejax.jit(static_argnames="k")
    def with_options(x, k):
        return x * k

    assert (plain(3), with_options(3, k=4)) == (6, 12)
    assert (plain.__name__, plain.__doc__) == ("plain", "Double.")
    assert plain.__wrapped__(3) == 6


def test_methods_of_all_kinds_agree():
    def case(jit):
        class Model:
            def __init__(self, w):
                self.w = w

            @functools.partial(jit, static_argnums=0)
            def call(self, x):
                return self.w * x

            @classmethod
            @functools.partial(jit, static_argnums=0)
            def make(cls, x):
                return x + len(cls.__name__)

            @staticmethod
            @jit
            def free(x):
                return x - 1

        m = Model(3.0)
        bound = jit(m.call)
        return m.call(X), Model.call(m, X), m.make(X), m.free(X), bound(X), bound(2)

    check_agreement(case)


def test_two_jits_of_one_method_outlive_each_other():
    class Model:
        def double(self, x):
            return x * 2

    model = Model()
    first, second = tilejax.jit(model.double), tilejax.jit(model.double)
    assert first(1) == 2
    del first
    assert second(X).shape == X.shape


def test_callables_of_all_kinds_agree():
    class Scale:
        def __call__(self, x, by=2):
            return x * by

    def case(jit):
        partial = functools.partial(jnp.multiply, 3.0)
        kinds = [Scale(), partial, jnp.add, len, jax.nn.relu, jax.grad(jnp.sin)]
        args = [(X,), (X,), (X, X), (X,), (X,), (2.0,)]
        return [jit(f)(*a) for f, a in zip(kinds, args, strict=True)]

    check_agreement(case)


def test_pytrees_none_and_custom_nodes_agree():
    def f(tree, box, pair, none):
        assert none is None
        assert isinstance(box, Box) and box.label == "b"
        assert isinstance(pair, Pair)
        out = jax.tree.map(lambda a: a + 1, tree)
        return out, Box(box.inside * 2, "new"), Pair(pair.right, None), None, [], ()

    def case(jit):
        tree = {"z": (X, [1, None]), "a": 2.5}
        out = jit(f)(tree, Box(X, "b"), Pair(1, X), None)
        return out[0], out[1].inside, out[1].label, out[2:]

    check_agreement(case)


def test_keyword_and_default_arguments_agree():
    def f(x, y=2, *rest, z, w=None, **others):
        total = x + y + z + sum(rest) + sum(others.values())
        return total if w is None else total * w

    def case(jit):
        g = jit(f)
        return (
            g(X, z=1),
            g(X, 3, z=1.5),
            g(X, 1, 2, X, z=X, w=2, extra=X, more=1),
            jax.grad(lambda x: g(x, z=x, q=x).sum())(X),
        )

    check_agreement(case)


def test_static_arguments_agree_and_arrive_untouched():
    marker = (1, {"not": "hashable"}.keys().__class__, "text")

    def f(x, n, how, *, mode="a", extra=None):
        assert isinstance(n, int)
        assert how is marker
        return x * n if mode == "a" else x + n, extra

    def case(jit):
        by_number = jit(f, static_argnums=(1, 2), static_argnames="mode")
        by_name = jit(f, static_argnames=("n", "how", "mode"))
        negative = jit(lambda x, k: x * k, static_argnums=-1)
        return (
            by_number(X, 2, marker),
            by_number(X, 3, marker, mode="b", extra=X),
            by_name(X, n=2, how=marker),
            jax.vmap(lambda x: by_number(x, 2, marker)[0])(X),
            negative(X, 5),
        )

    check_agreement(case)


def test_a_static_pytree_arrives_as_the_very_object():
    class Hashed(dict):
        def __hash__(self):
            return 1

    def unflatten(keys, values) -> Hashed:
        raise AssertionError("a static argument was taken apart")

    jax.tree_util.register_pytree_node(
        Hashed, lambda h: (tuple(h.values()), tuple(h)), unflatten
    )
    given = Hashed(a=1)
    seen = []
    f = tilejax.jit(lambda x, h: seen.append(h) or x, static_argnums=1)
    f(X, given)
    assert seen[0] is given


def test_a_static_value_chooses_the_trace():
    def case(jit):
        f, calls = counted(lambda x, k: x * k)
        g = jit(f, static_argnums=1)
        values = [g(X, k) for k in (1, 1, 2, 1, True, 1.0)]
        return values, len(calls)

    check_agreement(case)


@pytest.mark.parametrize("how", [{"donate_argnums": 0}, {"donate_argnames": "x"}])
def test_donated_arguments_are_deleted(how):
    def case(jit):
        x, y = X + 0, X + 1
        out = jit(lambda x, y: x + y, **how)(x, y)
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(x)
        return out, x.is_deleted(), y.is_deleted()

    assert case(tilejax.jit)[1:] == (True, False)
    check_agreement(case)


def test_a_donated_pytree_is_deleted_and_a_useless_donation_warned_of():
    def case(jit):
        state = {"m": X + 0, "v": [X + 1]}
        jit(lambda s: jax.tree.map(lambda a: a * 2, s), donate_argnums=0)(state)
        with pytest.warns(UserWarning, match="donated buffers were not usable"):
            jit(lambda x: x.sum().astype(int), donate_argnums=0)(X + 0)
        return [a.is_deleted() for a in jax.tree.leaves(state)]

    check_agreement(case)


def test_unused_arguments_are_dropped_or_kept_as_asked():
    def case(jit):
        kept = jit(lambda x, y: x, keep_unused=True).lower(X, X).as_text()
        dropped = jit(lambda x, y: x).lower(X, X).as_text()
        return kept.count("%arg1"), dropped.count("%arg1")

    check_agreement(case)


def test_inline_and_compiler_options_agree():
    def case(jit):
        inner = jit(lambda x: jnp.sin(x) * 2, inline=True)
        kept = jit(lambda x: jnp.sin(x) * 2)
        names = [
            [e.primitive.name for e in jax.make_jaxpr(f)(X).jaxpr.eqns]
            for f in (inner, kept)
        ]
        fast = jit(jnp.exp, compiler_options={"xla_cpu_enable_fast_math": True})
        return names, fast(X)

    check_agreement(case)


@pytest.mark.parametrize(
    "value",
    [
        3,
        2.5,
        True,
        1 + 2j,
        np.float64(1.5),
        np.int16(7),
        np.arange(3),
        np.ones((2, 2), np.float64),
        np.zeros((0, 3), np.float32),
        jnp.zeros((3, 0)),
        jnp.bfloat16(2),
        jnp.arange(3, dtype=jnp.uint8) + 254,
        jnp.array([True, False]),
        jnp.array(2**31 - 1),
    ],
    ids=repr,
)
def test_a_kind_of_value_agrees(value):
    def f(x):
        return x, x + 1, x * 2, 2 * x + x, jnp.asarray(x)

    check_agreement(lambda jit: (jit(f)(value), jit(lambda: value)()))


def test_empty_arrays_agree_in_heavy_operations():
    a, b = jnp.zeros((0, 3)), jnp.zeros((3, 0))

    def f(a, b):
        return a @ b, b @ a, jax.nn.softmax(a), jnp.sum(b), jnp.take(b, a[:, 0] > 0)

    check_agreement(lambda jit: (jit(f)(a, b), jit(lambda: ())()))


def test_results_that_are_arguments_or_constants_agree():
    def f(x, y):
        return y, x, x, 1, 2.0, np.float32(3), jnp.ones(2), np.arange(2)

    check_same(tilejax.jit(f)(X, 1), jax.jit(f)(X, 1))
