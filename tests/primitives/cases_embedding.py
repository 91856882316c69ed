"""Cases of looking up rows, and of adding up bags of them."""

import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.embedding import embedding, embedding_grad_op
from tilejax.primitives.embedding_bag import embedding_bag

_MODES = {
    "fill": {"mode": "fill"},
    "zero": {"mode": "fill", "fill_value": 0},
    "clip": {"mode": "clip"},
}


def _taken(table, ids, out_of_range="fill"):
    mode = _MODES[out_of_range]
    return table.at[ids].get(wrap_negative_indices=False, **mode)


def _bagged(table, ids, *weights, mode="sum", out_of_range="fill"):
    found = _taken(table, ids, out_of_range)
    for w in weights:
        found = found * w.reshape(*w.shape, *(1,) * (table.ndim - 1))
    return getattr(jnp, mode)(found, axis=ids.ndim - 1)


def _table(rows, *depth, ids, weighted=False):
    """A table; ids of which some repeat; perhaps a weight for each."""

    def make(rng):
        at = rng.integers(0, rows, ids) if rows else np.zeros(ids, int)
        found = [rng.normal(size=(rows, *depth)), at.astype(np.int32)]
        return [*found, rng.normal(size=ids)] if weighted else found

    return make


def _outside(*more):
    return lambda rng: [rng.normal(size=(4, 3)), np.array([[0, 9], [-1, 3]]), *more]


def _added(ids, values):
    return embedding_grad_op(ids, values, rows=6, out_sharding=None)


def _added_plainly(ids, values):
    return jnp.zeros((6, *values.shape[ids.ndim :]), values.dtype).at[ids].add(values)


_LOOKUP = {"fun": embedding, "reference": _taken}
_BAG = {"fun": embedding_bag, "reference": _bagged}

CASES = [
    Case(
        "embedding",
        **_LOOKUP,
        make=_table(8, 4, ids=(8, 3)),
        oracle=lambda table, ids: table[ids],
        layouts=(
            ((None, None), ("x", None)),
            ((None, "y"), ("x", None)),
            (("y", None), (None, None)),
        ),
        local=(0, 1),
    ),
    Case(
        "embedding of matrices",
        **_LOOKUP,
        make=_table(5, 2, 3, ids=(4,)),
        params={"out_of_range": "clip"},
    ),
    Case(
        "embedding clipped",
        **_LOOKUP,
        make=_outside(),
        params={"out_of_range": "clip"},
    ),
    Case(
        "embedding with zeros",
        **_LOOKUP,
        make=_outside(),
        params={"out_of_range": "zero"},
    ),
    Case(
        "embedding gradient",
        _added,
        _added_plainly,
        lambda rng: [rng.integers(0, 6, (2, 4)), rng.normal(size=(2, 4, 3))],
    ),
    Case(
        "embedding bag",
        **_BAG,
        make=_table(8, 4, ids=(8, 3), weighted=True),
        layouts=(
            ((None, None), ("x", None), ("x", None)),
            ((None, "y"), (None, None), (None, None)),
        ),
    ),
    Case(
        "embedding bag mean",
        **_BAG,
        make=_table(5, 2, 3, ids=(2, 2, 4)),
        params={"mode": "mean"},
    ),
    Case(
        "embedding bag with zeros",
        **_BAG,
        make=_outside(np.array([[1.5, 2.0], [3.0, -1.0]])),
        params={"mode": "mean", "out_of_range": "zero"},
    ),
    Case("embedding of one id", **_LOOKUP, make=_table(3, 2, ids=()), thin=True),
    Case("embedding of numbers", **_LOOKUP, make=_table(3, ids=(2, 1)), thin=True),
    Case("embedding of no ids", **_LOOKUP, make=_table(3, 2, ids=(0, 4)), thin=True),
    Case("embedding bag of one", **_BAG, make=_table(1, 1, ids=(1, 1)), thin=True),
    Case("embedding bag of no ids", **_BAG, make=_table(3, 2, ids=(2, 0)), thin=True),
]
