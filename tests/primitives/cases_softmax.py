"""Cases of softmax and log-softmax."""

from functools import partial

import jax
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.softmax import log_softmax, softmax


def _normal(*shape):
    return lambda rng: [rng.normal(size=shape) * 2]


def _oracle(x, axis=-1, log=False):
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return shifted - np.log(total) if log else np.exp(shifted) / total


_SOFT = {"fun": softmax, "reference": jax.nn.softmax, "oracle": _oracle}
_LOG = {
    "fun": log_softmax,
    "reference": jax.nn.log_softmax,
    "oracle": partial(_oracle, log=True),
}

CASES = [
    Case(
        "softmax rows",
        **_SOFT,
        make=_normal(4, 6),
        layouts=((("x", None),), ((None, "y"),), ((None, None),)),
        local=(0, 2),
    ),
    Case(
        "softmax middle axis",
        **_SOFT,
        make=_normal(4, 5, 6),
        params={"axis": 1},
        layouts=((("x", None, "y"),),),
    ),
    Case(
        "softmax of two axes", **_SOFT, make=_normal(3, 4, 5), params={"axis": (0, -1)}
    ),
    Case(
        "softmax log rows",
        **_LOG,
        make=_normal(8, 6),
        layouts=((("x", None),), ((("x", "y"), None),), (("x", "y"),)),
        local=(0, 1),
    ),
    Case("softmax log first axis", **_LOG, make=_normal(5, 3), params={"axis": 0}),
    Case("softmax of a vector", **_SOFT, make=_normal(7), thin=True),
    Case("softmax of no rows", **_SOFT, make=_normal(0, 5), thin=True),
    Case("softmax of empty rows", **_SOFT, make=_normal(3, 0), thin=True),
    Case("softmax of single columns", **_SOFT, make=_normal(3, 1), thin=True),
    Case("softmax log of single rows", **_LOG, make=_normal(1, 4), thin=True),
]
