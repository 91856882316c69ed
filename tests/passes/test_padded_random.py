"""Random programs over padded arrays, and random reshapes of them."""

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.passes.padding import check_gradients, check_values
from tilejax._jax.symbolic import is_symbolic, size_at, symbols
from tilejax.passes.padded.shaping import regrouped

pytestmark = pytest.mark.usefixtures("quick_to_compile")

# From an array [b, s, 4] to one, with a weight [4].
STEPS = {
    "scale": lambda x, w: x * w,
    "squash": lambda x, w: jnp.tanh(x) + w.sum(),
    "norm": lambda x, w: (
        (x - x.mean(-1, keepdims=True)) / (1 + x.var(-1, keepdims=True))
    ),
    "over batch": lambda x, w: x - x.mean(0),
    "over length": lambda x, w: jax.nn.softmax(x, 1) * w,
    "length summed": lambda x, w: x + x.sum(1, keepdims=True) / x.shape[1],
    "attend": lambda x, w: jax.nn.softmax(jnp.einsum("bsf,btf->bst", x * w, x)) @ x,
    "flattened": lambda x, w: jnp.sin(x.reshape(-1, 4) * w).reshape(x.shape),
    "largest": lambda x, w: x - x.max((0, 1)),
    "so far": lambda x, w: jnp.cumsum(x, 1) / (1 + jnp.arange(x.shape[1]))[:, None],
    "shift": lambda x, w: jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1),
    "turned": lambda x, w: x[:, ::-1] * w[0],
    "mixed": lambda x, w: jnp.einsum("bsf,bsg->bfg", x, x).sum(2)[:, None] * x / 9,
    "relu": lambda x, w: jax.nn.relu(x - w.mean()),
    "swapped": lambda x, w: (x.swapaxes(0, 1) * w).swapaxes(0, 1),
}


@hypothesis.settings(max_examples=12)
@hypothesis.given(
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    seed=st.integers(0, 99),
)
def test_random_programs_keep_values_and_gradients(names, sizes, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*sizes, 4)).astype(np.float32)
    w = rng.standard_normal(4).astype(np.float32)

    def fun(x, w):
        for name in names:
            x = STEPS[name](x, w)
        return x, x.mean()

    args, axes = [x, w], [("b", "s", None), (None,)]
    known = dict(zip("bs", sizes, strict=True))
    buckets = {"b": 6, "s": 5}
    check_values(fun, args, axes, sizes=known, buckets=buckets, rtol=1e-3)
    check_gradients(fun, args, axes, sizes=known, buckets=buckets, rtol=5e-3)


N = symbols(["n", "m"])
REAL, PADDED = {"n": 3, "m": 2}, {"n": 5, "m": 4}


@hypothesis.given(st.data())
def test_a_reshape_says_truly_where_real_elements_are(data):
    factors = data.draw(
        st.permutations([N["n"], N["m"], 2, 3]).map(lambda f: f[: 2 + len(f) // 2])
    )

    def grouped():
        cuts = data.draw(st.sets(st.integers(1, len(factors) - 1)))
        ends = [0, *sorted(cuts), len(factors)]
        return [factors[a:b] for a, b in itertools.pairwise(ends)]

    old, new = grouped(), grouped()
    shapes = [tuple(math.prod(group) for group in groups) for groups in (old, new)]
    before = tuple(tuple(g) if any(map(is_symbolic, g)) else None for g in old)
    found = regrouped(shapes[0], before, shapes[1])
    assert found is not None
    # mark what is real, by the factors themselves, and compare with the layouts
    marks = _marks([tuple(factors)])
    np.testing.assert_array_equal(
        _marks(
            [layout or (size,) for layout, size in zip(found, shapes[1], strict=True)]
        ).ravel(),
        marks.ravel(),
    )


def _marks(layouts):
    """Which elements are real, by the factors of each axis."""
    sizes = [f for layout in layouts for f in layout]
    full = np.ones([int(size_at(f, PADDED)) for f in sizes], bool)
    for at, factor in enumerate(sizes):
        index = np.arange(full.shape[at]) < int(size_at(factor, REAL))
        full &= index.reshape(-1, *(1,) * (full.ndim - 1 - at))
    return full.reshape([-1])
