"""Every family with kernels registered, over 4 and 8 devices of automatic axes.

Nothing may change but what runs on each device: values, gradients and collectives are
those of the same program without kernels. Where XLA splits what a kernel needs whole,
the reference runs, with a local sum and an all-reduce, or an exchange of halos.
"""

import jax
import pytest
from jax.sharding import AxisType

from tests.lowering.standins import on_cpu
from tests.primitives.cases import CASES
from tests.primitives.harness import compare
from tests.primitives.shardings import collectives, forms, mesh_of, placed

N = None
BY_NAME = {case.name: case for case in CASES}
PLAIN, GROUPED = "attention plain", "attention causal grouped"

# The case, how its operands lie, the devices, and whether any kernel runs for the value
# and for the gradient.
USES = [
    ("softmax rows", (("x", N),), 8, True, True),
    ("softmax rows", ((N, "y"),), 8, False, False),
    ("softmax of two axes", ((N, "x", N),), 8, True, True),
    ("cross_entropy", (("x", N), ("x",)), 8, True, True),
    ("cross_entropy", (("x", "y"), ("x",)), 8, False, False),
    ("norms layer", (("x", N), (N,), (N,)), 8, True, True),
    ("norms layer", (("x", "y"), ("y",), ("y",)), 8, False, False),
    ("norms rms", ((N, "y"), ("y",)), 8, False, False),
    ("norms group", (("x", N, N, N), (N,), (N,)), 8, True, True),
    ("norms group", ((N, N, N, "y"), ("y",), ("y",)), 4, False, False),
    (PLAIN, (("x", "y", N, N),) * 3, 8, True, True),
    (PLAIN, ((N, N, "x", N), (N,) * 4, (N,) * 4), 8, True, True),
    (PLAIN, ((N,) * 4, (N, N, N, N), (N, "y", N, N)), 4, True, True),
    (GROUPED, ((N, "y", N, N),) * 3, 8, True, True),
    (GROUPED, ((N, "x", N, N), (N,) * 4, (N,) * 4), 8, False, False),
    ("matmul rows by columns", (("x", N), (N, "y")), 8, True, True),
    ("matmul rows by columns", ((N, "x"), ("x", N)), 8, True, True),
    ("conv of images", (("x", N, N, "y"), (N, N, "y", N)), 8, True, True),
    ("conv of images", ((N, N, "y", N), (N,) * 4), 8, False, False),
    ("embedding", (("y", N), (N, N)), 4, False, True),
    ("embedding", ((N, "y"), ("x", N)), 8, True, True),
    ("embedding bag", ((N, "y"), (N, N), (N, N)), 8, True, True),
    ("embedding bag", (("y", N), (N, N), (N, N)), 4, False, True),
]


def _compiled(case, operands) -> dict:
    return {
        what: jax.jit(fun).lower(*operands).compile()
        for what, fun, *_ in forms(case, lambda f: f)
    }


@pytest.mark.parametrize(
    ("name", "layout", "devices", "value", "gradient"),
    USES,
    ids=[f"{name}-{devices}-{layout}" for name, layout, devices, *_ in USES],
)
def test_collectives_stay_as_they_are(name, layout, devices, value, gradient):
    case = BY_NAME[name]
    operands = placed(case.operands("float32"), mesh_of(devices, AxisType.Auto), layout)
    theirs = _compiled(case, operands)
    ran = {}
    with on_cpu() as seen:
        ours = {}
        for what, fun, *_ in forms(case, lambda f: f):
            seen.clear()
            ours[what] = jax.jit(fun).lower(*operands).compile()
            ran[what] = bool(seen)
    assert ran == {"value": value, "gradient": gradient}
    for what, program in ours.items():
        counts = [collectives(each.as_text()) for each in (program, theirs[what])]
        assert counts[0] == counts[1], f"{what}: {counts}"
        compare(case, program(*operands), theirs[what](*operands), "float32", factor=5)
