"""What XLA's fusions move, counted by hand."""

import jax
import jax.numpy as jnp
import pytest

from tilejax import targets
from tilejax._jax.jaxprs import trace
from tilejax.lowering.fusion import seconds_of
from tilejax.targets import Target

S = jax.ShapeDtypeStruct


def _machine() -> Target:
    """One whose only limit is its memory: a byte takes a picosecond."""
    record = targets.get("tpu:v5e")
    for path in record.figures():
        if path.startswith("units") and not path.endswith("tile"):
            record = record.with_figure(path, 1e24, "planted")
    changed = {
        "memories.hbm.bandwidth": 1e12,
        "limits.launch_seconds": 0.0,
        "limits.step_seconds": 0.0,
    }
    for path, value in changed.items():
        record = record.with_figure(path, value, "planted")
    return record


MACHINE = _machine()
N = 1 << 20
X, Y = S((1024, 1024), "float32"), S((1024, 1024), "bfloat16")


def _bytes(f, *avals) -> float:
    program, _ = trace(f, *avals)
    return seconds_of(program, MACHINE) * 1e12


@pytest.mark.parametrize(
    ("f", "avals", "moved"),
    [
        (lambda x: jnp.exp(x) * 2 + x, (X,), 2 * 4 * N),
        (lambda x: x.astype("bfloat16"), (X,), 6 * N),
        (lambda x: (x + 1, x * 2), (X,), 3 * 4 * N),  # one loop reads x once
        (lambda x: jnp.sum(jnp.exp(x)), (X,), 4 * N),
        (lambda x: jnp.sum(x, 1), (X,), 4 * N),
        # maximum, sum and result each read x
        (lambda x: jax.nn.softmax(x), (X,), 4 * 4 * N),
        (lambda x: x - jnp.mean(x), (X,), 3 * 4 * N),
        # two sums over the same array are one loop
        (lambda x: (jnp.sum(x), jnp.sum(x * x)), (X,), 4 * N),
        (lambda x: x[:8] * 2, (X,), 2 * 4 * 8 * 1024),
        (lambda x: jax.jit(lambda y: y + 1)(x) * 2, (X,), 2 * 4 * N),
    ],
)
def test_loops_move_what_they_read_and_write(f, avals, moved):
    assert _bytes(f, *avals) == pytest.approx(moved, rel=0.01)


def test_what_enters_and_leaves_a_product_is_in_memory():
    alone = _bytes(lambda a: a @ a, Y)
    assert alone >= 3 * 2 * N
    # a chain before it is written and read, and one after it reads and writes
    before = _bytes(lambda a: jnp.exp(a) @ a, Y)
    after = _bytes(lambda a: jnp.exp(a @ a), Y)
    assert before - alone == pytest.approx(2 * 2 * N, rel=0.01)
    assert after - alone == pytest.approx(2 * 2 * N, rel=0.01)
    # but another order or shape of it costs nothing
    assert _bytes(lambda a: a.T @ a, Y) == pytest.approx(alone)


def test_scores_in_memory_are_counted():
    q = S((1024, 64), "bfloat16")

    def attend(q):
        return jax.nn.softmax((q @ q.T).astype("float32")).astype("bfloat16") @ q

    scores = 1024 * 1024
    # written once, read by three loops, and the weights written and read
    assert _bytes(attend, q) >= scores * (2 + 3 * 2 + 2 + 2)


def test_loops_of_the_program_count_their_trips():
    def scanned(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=7)[0]

    once = _bytes(lambda x: jnp.sin(x), X)
    assert _bytes(scanned, X) == pytest.approx(7 * once, rel=0.01)
    branches = lambda x: jax.lax.cond(True, jnp.sin, lambda y: y @ y, x)  # noqa: E731
    assert _bytes(branches, X) == pytest.approx(_bytes(lambda x: x @ x, X), rel=0.01)


def test_a_lookup_moves_the_rows_and_not_the_table():
    table, ids = S((1 << 16, 128), "float32"), S((64,), "int32")
    moved = _bytes(lambda t, i: t.at[i].get(mode="promise_in_bounds"), table, ids)
    assert 2 * 64 * 128 * 4 <= moved < 6 * 64 * 128 * 4


def test_the_updates_of_a_scatter_wait_for_one_another():
    record = MACHINE.with_figure("limits.step_seconds", 1e-6, "planted")
    rows, ids = S((1000, 8), "float32"), S((1000,), "int32")

    def add(i, r):
        return jnp.zeros((5000, 8)).at[i].add(r, mode="promise_in_bounds")

    program, _ = trace(add, ids, rows)
    assert seconds_of(program, record) > 1000 * 1e-6


def test_a_convolution_in_groups_is_padded_on_a_matrix_unit():
    x, dense = S((8, 64, 64, 256), "bfloat16"), S((3, 3, 256, 256), "bfloat16")
    single = S((3, 3, 1, 256), "bfloat16")

    def conv(groups):
        return lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    v5e = targets.get("tpu:v5e")
    times = [
        seconds_of(trace(conv(g), x, w)[0], v5e) for g, w in ((1, dense), (256, single))
    ]
    assert times[1] == pytest.approx(times[0], rel=0.1)  # 256 times the wanted work
