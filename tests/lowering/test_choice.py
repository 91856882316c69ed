"""A kernel or the reference, and which config: by modelled seconds and nothing else."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import tilejax
from tilejax import targets
from tilejax.lowering import rules
from tilejax.primitives.attention import attention
from tilejax.primitives.call import Call
from tilejax.primitives.define import define
from tilejax.primitives.embedding import embedding_op
from tilejax.primitives.matmul import matmul
from tilejax.primitives.norms import layer_norm
from tilejax.targets import Cost, Tiling

S = jax.ShapeDtypeStruct
V5E = targets.get("tpu:v5e")
TPUS = ["tpu:v5e", "tpu:v6e", "tpu:v5p", "tpu:tpu7x"]


def _op(name, *tilings):
    op = define(name, reference=lambda x: jnp.sin(x) * 2.0, sharding="... -> ...")
    rules.register_kernel(
        op, "tpu", lambda x, *, config: x, configs=lambda target, x: list(tilings)
    )
    return op


def _choose(op, *avals, target=V5E, **params):
    call = Call((True,) * len(avals))
    return rules.choose(op, "forward", target, avals, call, params)


def _with_bandwidth(factor):
    bandwidth = V5E.main.bandwidth
    assert bandwidth is not None
    return V5E.with_figure("memories.hbm.bandwidth", bandwidth * factor, "planted")


X = S((4096, 1024), "float32")


def test_the_config_with_the_least_seconds_is_taken_wherever_it_stands():
    slow = Tiling("slow", Cost(bytes_read=1e8))
    fast = Tiling("fast", Cost(bytes_read=1e6))
    op = _op("choice_order", slow, fast, slow)
    assert _choose(op, X).config == "fast"
    assert _choose(op, X).seconds == pytest.approx(1e6 / 819e9 + 1.35e-6)


def test_the_choice_turns_with_a_record_of_another_bandwidth():
    # 12 us of moving, or 1 us and 9 us of arithmetic
    moves = Tiling("moves", Cost(bytes_read=1e7, elementwise={"float32": 1.0}))
    computes = Tiling("computes", Cost({}, 1e6, elementwise={"float32": 5.5e7}))
    op = _op("choice_bandwidth", moves, computes)
    assert _choose(op, X).config == "computes"
    assert _choose(op, X, target=_with_bandwidth(2)).config == "moves"


def test_it_turns_between_kernel_and_reference_too():
    # The reference moves 33.6 MB with some sines; the kernel less, computing more.
    work = Cost({}, 1.2e7, 1.2e7, elementwise={"float32": 2e8})
    op = _op("choice_reference", Tiling(0, work, steps=16, blocks=16))
    assert _choose(op, X).impl == "native"
    assert _choose(op, X, target=_with_bandwidth(8)).impl == "reference"


def test_equal_seconds_are_no_matter_of_luck():
    same = Cost(bytes_read=1e5)
    op = _op("choice_ties", *(Tiling(name, same) for name in "cab"))
    assert [_choose(op, X).config for _ in range(3)] == ["c"] * 3


def test_reasons_give_both_times_and_how_many_there_were():
    cheap, dear = Cost(bytes_read=1e4), Cost(bytes_read=1e9)
    op = _op("choice_reason", Tiling(1, cheap), Tiling(2, dear))
    choice = _choose(op, X)
    assert choice.reason.startswith("native: 1.36 us modelled, reference ")
    assert choice.reason.endswith("; best of 2 configs")
    op = _op("choice_reason_not", Tiling(1, dear))
    choice = _choose(op, X)
    assert (choice.kernel, choice.config) == (None, None)
    assert choice.reason.startswith("reference: ")
    assert choice.reason.endswith(" us modelled, native 1.22 ms; one legal config")
    assert choice.seconds is not None and choice.reference_seconds is not None
    assert choice.reference_seconds < choice.seconds


def test_a_kernel_runs_wherever_it_is_legal_if_that_is_wished():
    op = _op("choice_native", Tiling(1, Cost(bytes_read=1e9)))
    assert _choose(op, X).impl == "reference"
    with tilejax.options(kernels="native"):
        choice = _choose(op, X)
    assert (choice.impl, choice.config) == ("native", 1)
    assert "options(kernels='native')" in choice.reason
    with tilejax.options(kernels="native"):
        assert _choose(op, S((0,), "float32")).impl == "reference"


def test_what_the_record_lacks_is_assumed_and_told():
    work = Cost({}, 1e6, 1e6, elementwise={"float32": 1e6}, transcendentals=1e3)
    op = _op("choice_assumed", Tiling(0, work))
    told = _choose(op, X).assumed
    assert (
        "limits.launch_seconds 1 us" in told and "limits.step_seconds 0.35 us" in told
    )
    assert not any("vpu.float32" in text for text in told)  # v5e has it
    told = _choose(op, X, target=targets.get("tpu:v6e")).assumed
    assert any(text.startswith("units.vpu.float32 ") for text in told)
    known = V5E.with_figure("limits.step_seconds", 1e-6, "measured")
    assert not any("step" in text for text in _choose(op, X, target=known).assumed)


@pytest.mark.parametrize("name", targets.names())
def test_every_target_has_a_time_for_every_dtype(name):
    full = targets.assumed(targets.get(name))
    for dtype in ("float64", "bfloat16", "int8", "int64", "complex64", "float8_e5m2"):
        work = Cost({dtype: 1e9}, 1e6, elementwise={dtype: 1e6}, transcendentals=1e6)
        found = targets.seconds(work, full.target, blocks=8, steps=8)
        assert found.missing == () == found.omitted and found.seconds
    for path, value in targets.get(name).figures().items():
        if value is not None:  # what is known stays as it is
            assert full.target.figures()[path] == value
    assert targets.assumed(full.target).values == {}


def test_a_second_process_makes_the_same_choices():
    code = (
        "import jax, tilejax; S = jax.ShapeDtypeStruct\n"
        "attend = jax.nn.dot_product_attention\n"
        "f = lambda q, w: jax.nn.softmax(attend(q, q, q)[0] @ w)\n"
        "q, w = S((2, 256, 4, 64), 'bfloat16'), S((64, 64), 'bfloat16')\n"
        "found = tilejax.explain(f, q, w, target='tpu:v6e')\n"
        "print([(k.impl, k.config, k.reason) for k in found.kernels])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu", "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] and "native" in runs[0]


def _gain(record):
    assert record.reference_seconds is not None and record.kernel_seconds is not None
    return record.reference_seconds / record.kernel_seconds


def _of(found, primitive, part="forward"):
    return [k for k in found.kernels if (k.primitive, k.part) == (primitive, part)]


@pytest.mark.parametrize("target", TPUS)
def test_long_attention_is_native_with_large_tiles(target):
    q = S((2, 8, 4096, 128), "bfloat16")

    def loss(q):
        return jnp.sum(attention(q, q, q, causal=True).astype("float32"))

    found = tilejax.explain(jax.grad(loss), q, target=target)
    kernels = _of(found, "attention") + _of(found, "attention", "backward")
    assert len(kernels) == 2
    for k in kernels:
        assert k.impl == "native" and min(k.config.queries, k.config.keys) >= 256
        # the reference writes and reads the scores several times
        assert _gain(k) > 5


@pytest.mark.parametrize("target", TPUS)
def test_large_products_and_rows_have_large_tiles(target):
    a = S((4096, 4096), "bfloat16")
    (k,) = tilejax.explain(lambda a: matmul(a, a), a, target=target).kernels
    assert k.impl == "native" and min(k.config.m, k.config.n, k.config.k) >= 512
    (k,) = tilejax.explain(lambda x: jax.nn.softmax(x), a, target=target).kernels
    assert k.impl == "native" and k.config.rows >= 64 and k.config.columns == 4096
    (k,) = tilejax.explain(lambda x: layer_norm(x), a, target=target).kernels
    assert k.impl == "native" and k.config.rows >= 64


def test_an_epilogue_is_what_a_product_gains_by():
    a, bias = S((4096, 4096), "bfloat16"), S((4096,), "bfloat16")

    def times(f, *avals):
        (k,) = tilejax.explain(f, *avals, target="tpu:v5e").kernels
        return _gain(k)

    assert times(lambda a: matmul(a, a), a) == pytest.approx(1)
    fused = times(lambda a, b: matmul(a, a, bias=b, activation="gelu"), a, bias)
    assert fused > 1.1  # the result is not written, read and written


def test_rows_that_are_fetched_in_groups_are_left_to_the_reference():
    table, ids = S((50000, 1024), "float32"), S((16384,), "int32")
    params = {"out_of_range": "fill", "out_sharding": None}
    choice = _choose(embedding_op, table, ids, **params)
    assert choice.impl == "reference"
    assert choice.seconds is not None and choice.reference_seconds is not None
    assert choice.seconds > 4 * choice.reference_seconds  # eight rows for one


def test_choosing_again_costs_next_to_nothing():
    traced = []

    def reference(x):
        traced.append(x.shape)
        return jnp.sin(x)

    op = define("choice_once", reference=reference)
    one = [Tiling(0, Cost(bytes_read=1.0))]
    rules.register_kernel(
        op, "tpu", lambda x, *, config: x, configs=lambda target, x: one
    )
    for _ in range(3):
        _choose(op, X)
    assert len(traced) == 1
