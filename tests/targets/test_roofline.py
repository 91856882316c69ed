"""The modelled time: corners by hand, monotonic everywhere, never silent."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from tilejax import targets
from tilejax.errors import DTypeError, ParameterError, TargetError
from tilejax.targets import Cost, Limits, Memory, Target, Unit, fits, seconds


def _known(value):
    assert value is not None
    return value


# A machine of round numbers: a tera-operation, a gigabyte, four cores.
TOY = Target(
    name="gpu:toy",
    kind="gpu",
    platform="cuda",
    cores=4,
    memories=(
        Memory("hbm", 10**9, 128, 1e9, "chip"),
        Memory("fast", 1024, 32, None, "core"),
    ),
    units=(
        Unit("mma", "matrix", {"float16": 1e12}, (8, 8, 8)),
        Unit("alu", "vector", {"float32": 1e10, "transcendental": 1e9}, (32,)),
    ),
    limits=Limits(fast_bytes=1000, launch_seconds=1e-6, step_seconds=1e-7),
    fast="fast",
)
TARGETS = [TOY, *map(targets.get, targets.names())]
KNOWN = [
    target
    for target in TARGETS
    if target.rate("bfloat16") is not None and target.main.bandwidth is not None
]


def test_compute_bound_by_hand():
    made = seconds(Cost({"float16": 3e12}, bytes_read=1e9, bytes_written=1e9), TOY)
    assert (made.compute_seconds, made.memory_seconds) == (3.0, 2.0)
    assert made.seconds == 3.0 + 1e-6 and made.bound == "compute"
    assert made.intensity == 1500.0 and made.missing == () == made.omitted


def test_memory_bound_by_hand():
    made = seconds(Cost({"float16": 1e12}, bytes_read=1e9, bytes_written=1e9), TOY)
    assert made.seconds == 2.0 + 1e-6 and made.bound == "memory"


def test_launch_bound_by_hand():
    made = seconds(Cost(1e3, 1.0, dtype="float16"), TOY)
    assert made.bound == "launch" and made.overhead_seconds == 1e-6
    assert made.seconds == pytest.approx(1e-6 + 1e-9)


def test_the_ridge_is_where_compute_meets_memory():
    ridge = 1e12 / 1e9
    at = seconds(Cost({"float16": ridge * 1e9}, bytes_read=1e9), TOY)
    below = seconds(Cost({"float16": 0.99 * ridge * 1e9}, bytes_read=1e9), TOY)
    assert (at.bound, below.bound) == ("compute", "memory")


def test_the_v5e_ridge_is_at_240_operations_a_byte():
    # as "How to Scale Your Model" has it for bfloat16
    v5e = targets.get("tpu:v5e")
    assert _known(v5e.rate("bfloat16")) / _known(v5e.main.bandwidth) == pytest.approx(
        240, rel=0.01
    )


def test_without_overlap_the_terms_add_up():
    work = Cost({"float16": 3e12}, bytes_read=2e9)
    assert seconds(work, TOY, overlap=False).seconds == 5.0 + 1e-6


def test_a_pipeline_exposes_its_first_load_and_its_last_arithmetic():
    work = Cost({"float16": 3e12}, bytes_read=2e9)
    # one core: S steps of c = 3/S and m = 2/S take m + (S - 1) c + c
    for steps in (1, 2, 8):
        made = seconds(work, TOY, blocks=4, steps=4 * steps)
        expected = 2 / steps + 3 + 1e-6 + steps * 1e-7
        assert made.seconds == pytest.approx(expected)


def test_the_last_wave_takes_as_long_as_a_full_one():
    work = Cost({"float16": 1e12}, elementwise={"float32": 1e9})
    times = [
        seconds(work, TOY, blocks=blocks).compute_seconds for blocks in (1, 4, 5, 8)
    ]
    # a fourth of the machine; all of it; five blocks in two waves of four; all of it
    assert times == [4.0, 1.0, 8 / 5, 1.0]


def test_padding_is_paid_by_contractions_only():
    work = Cost({"float16": 1e12})
    assert seconds(work, TOY, efficiency=0.25).compute_seconds == 4.0
    vector = Cost(elementwise={"float32": 1e10})
    assert seconds(vector, TOY, efficiency=0.25).compute_seconds == 1.0


def test_units_run_beside_each_other():
    work = Cost({"float16": 2e12}, transcendentals=3e9, elementwise={"float32": 1e10})
    assert seconds(work, TOY).compute_seconds == 3.0
    # but work of one unit adds up
    both = Cost({"float16": 1e12, "float32": 1e10}, elementwise={"float32": 1e10})
    assert seconds(both, TOY).compute_seconds == 2.0


def test_a_device_that_is_half_a_chip_has_half_of_it():
    half = replace(TOY, devices=2)
    work = Cost({"float16": 1e12}, bytes_read=1e9)
    whole, part = seconds(work, TOY), seconds(work, half)
    assert part.compute_seconds == 2 * _known(whole.compute_seconds)
    assert part.memory_seconds == 2 * _known(whole.memory_seconds)
    # two cores left, so four blocks take two waves
    assert seconds(work, half, blocks=3).compute_seconds == pytest.approx(2 * 4 / 3)


@pytest.mark.parametrize(
    ("path", "term"),
    [
        ("units.mma.float16", "compute_seconds"),
        ("memories.hbm.bandwidth", "memory_seconds"),
    ],
)
def test_a_missing_figure_gives_no_answer_and_says_which(path, term):
    blind = TOY.with_figure(path, None, "nobody")
    made = seconds(Cost({"float16": 3e12}, bytes_read=2e9), blind)
    assert made.seconds is None and made.bound is None and made.missing == (path,)
    assert getattr(made, term) is None
    # the term that is known stands, and bounds the answer from below
    known = {"compute_seconds": 2.0, "memory_seconds": 3.0}[term]
    assert made.at_least == pytest.approx(known + 1e-6)


def test_what_the_work_does_not_need_is_not_missing():
    blind = TOY.with_figure("memories.hbm.bandwidth", None, "nobody")
    assert seconds(Cost({"float16": 1e12}), blind).seconds == 1.0 + 1e-6
    assert seconds(Cost({"int8": 0.0}), TOY).missing == ()


def test_a_dtype_that_no_unit_has_is_missing():
    made = seconds(Cost({"int8": 1.0}), TOY)
    assert made.seconds is None and made.missing == ("units.mma.int8",)
    made = seconds(Cost(elementwise={"float64": 1.0}), TOY)
    assert made.missing == ("units.alu.float64",)


def test_narrow_elementwise_work_is_widened():
    work = Cost(elementwise={"bfloat16": 1e10})
    assert seconds(work, TOY).compute_seconds == 1.0


def test_small_terms_that_are_unknown_are_named():
    blind = replace(TOY, limits=Limits())
    work = Cost({"float16": 1e12}, transcendentals=1.0)
    made = seconds(work, blind, steps=4)
    assert made.omitted == ("limits.launch_seconds", "limits.step_seconds")
    h100 = targets.get("gpu:b200")
    made = seconds(Cost(transcendentals=80e12), h100)
    # each is at least one operation of the vector unit
    assert made.compute_seconds == 1.0
    assert "units.cuda.transcendental" in made.omitted


def test_the_host_says_that_its_memory_is_the_unknown():
    made = seconds(Cost({"float32": 1e9}, bytes_read=1e6), targets.get("cpu"))
    assert "memories.ram.bandwidth" in made.missing and made.seconds is None
    filled = targets.get("cpu").with_figure("memories.ram.bandwidth", 1e10, "measured")
    filled = filled.with_figure("units.vector.float32", 1e11, "measured")
    assert seconds(Cost({"float32": 1e9}, bytes_read=1e6), filled).seconds == 0.01


AMOUNTS = st.floats(0, 1e18)
FEW = st.integers(1, 1000)


@given(st.sampled_from(KNOWN), AMOUNTS, AMOUNTS, AMOUNTS, st.floats(1, 10), FEW)
def test_more_work_never_takes_less(target, flops, read, written, factor, blocks):
    work = Cost({"bfloat16": flops}, read, written)
    base = _known(seconds(work, target, blocks=blocks).seconds)
    for more in (
        Cost({"bfloat16": flops * factor}, read, written),
        Cost({"bfloat16": flops}, read * factor, written),
        Cost({"bfloat16": flops}, read, written * factor),
        work * factor,
        work + work,
    ):
        assert _known(seconds(more, target, blocks=blocks).seconds) >= base * (
            1 - 1e-12
        )


@given(st.sampled_from(KNOWN), AMOUNTS, AMOUNTS, FEW, FEW)
def test_the_time_lies_between_the_greater_term_and_the_sum(
    target, flops, read, blocks, steps
):
    work = Cost({"bfloat16": flops}, read)
    made = seconds(work, target, blocks=blocks, steps=steps)
    terms = (_known(made.compute_seconds), _known(made.memory_seconds))
    slack = 1e-12 * sum(terms)
    busy = _known(made.seconds) - made.overhead_seconds
    assert max(terms) - slack <= busy <= sum(terms) + slack
    assert made.at_least <= _known(made.seconds) * (1 + 1e-12)


@given(st.sampled_from(KNOWN), *[st.integers(1, 3000)] * 3)
@settings(max_examples=60)
def test_a_product_is_never_faster_than_its_roofline(target, m, n, k):
    tile = (128, 128, 128)
    made = _known(targets.matmul_seconds(m, n, k, tile, target).seconds)
    ideal = seconds(targets.matmul_cost(m, n, k, "bfloat16"), target)
    assert made >= _known(ideal.seconds) * (1 - 1e-12)
    longer = targets.matmul_seconds(m, n, k + 128, tile, target)
    assert _known(longer.seconds) >= made * (1 - 1e-12)


def test_a_tiled_product_by_hand():
    # 2 x 2 blocks of 64 on four cores, 2 steps each of 64; all multiples of 8
    made = targets.matmul_seconds(128, 128, 128, (64, 64, 64), TOY, "float16")
    compute = 2 * 128**3 / 1e12
    memory = (2 * 128 * 128 * 2 + 2 * 128 * 128 * 2 + 128 * 128 * 2) / 1e9
    assert made.compute_seconds == pytest.approx(compute)
    assert made.memory_seconds == pytest.approx(memory)
    busy = memory + compute / 2
    assert made.seconds == pytest.approx(busy + 1e-6 + 2 * 1e-7)


def test_one_tile_of_output_keeps_one_core_busy():
    alone = targets.matmul_seconds(64, 64, 64, (64, 64, 64), TOY, "float16")
    assert alone.compute_seconds == pytest.approx(4 * 2 * 64**3 / 1e12)
    # a tile of 4 rows is padded to 8
    thin = targets.matmul_seconds(16, 64, 64, (4, 64, 64), TOY, "float16")
    assert thin.compute_seconds == pytest.approx(2 * 2 * 16 * 64 * 64 / 1e12)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((8, 8, 8), 1.0), ((1, 8, 8), 1 / 8), ((9, 8, 8), 9 / 16), ((12, 4, 6), 9 / 32)],
)
def test_padding_by_hand(sizes, expected):
    m, n, k = sizes
    assert targets.padding_efficiency(m, n, k, TOY, "float16") == pytest.approx(
        expected
    )


@given(*[st.integers(1, 60)] * 6)
def test_each_tile_is_padded_on_its_own(m, n, k, tm, tn, tk):
    def padded(size, tile):
        lengths = [min(tile, size - start) for start in range(0, size, tile)]
        return sum(-(-length // 8) * 8 for length in lengths)

    expected = m * n * k / (padded(m, tm) * padded(n, tn) * padded(k, tk))
    found = targets.tiled_efficiency((m, n, k), (tm, tn, tk), TOY, "float16")
    assert found == pytest.approx(expected)


def test_work_of_a_vector_unit_or_of_none_is_not_padded():
    assert targets.padding_efficiency(3, 3, 3, TOY, "float32") == 1.0
    assert targets.padding_efficiency(0, 3, 3, TOY, "float16") == 1.0


def test_costs_add_and_multiply():
    one = Cost({"bfloat16": 2.0}, 1.0, 2.0, 3.0, {"float32": 4.0})
    both = one + Cost(1, dtype="int8") + one * 2
    assert both == Cost({"bfloat16": 6, "int8": 1}, 3, 6, 9, {"float32": 12})
    assert one.operations == 9.0 and one.bytes == 3.0 and one.intensity == 3.0
    assert hash(one) == hash(one * 1)
    assert Cost().intensity == 0.0 and Cost(1, dtype="int8").intensity == math.inf
    assert replace(one, bytes_read=5.0).flops == one.flops


def test_dtypes_of_a_cost_go_by_one_name():
    given = Cost({"float8_e4m3fn": 1.0, "float8_e5m2": 2.0, "uint8": 3.0})
    assert given.flops == {"float8": 3.0, "int8": 3.0}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: Cost({"int8": -1}),
            ParameterError,
            r"flops\[int8\] is -1; it must not",
        ),
        (lambda: Cost(bytes_read=math.nan), ParameterError, "bytes_read is nan"),
        (lambda: Cost(12.0), ParameterError, r"12\.0 operations of which dtype\?"),
        (lambda: Cost({"brain": 1}), DTypeError, "'brain' is not a dtype"),
        (lambda: seconds(Cost(), TOY, efficiency=0), ParameterError, r"in \(0, 1\]"),
        (lambda: seconds(Cost(), TOY, efficiency=2), ParameterError, r"in \(0, 1\]"),
        (lambda: seconds(Cost(), TOY, blocks=0), ParameterError, "blocks 0 and steps"),
        (lambda: seconds(Cost(), TOY, steps=0), ParameterError, "steps 0 at least one"),
        (lambda: fits(TOY, {"l9": 1}), TargetError, "gpu:toy has no memory 'l9'"),
        (lambda: fits(TOY, {"hbm": -1}), ParameterError, "hbm wants -1 bytes"),
    ],
)
def test_wrong_input_says_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("wanted", "ok", "why"),
    [
        ({}, True, "nothing wanted on gpu:toy"),
        ({"fast": 992}, True, "fast: 992 bytes wanted, 1000 available on gpu:toy"),
        # the limit of a block, not the size; and rounded up to the alignment
        ({"fast": 1001}, False, "fast: 1024 bytes wanted, 1000 available on gpu:toy"),
        ({"fast": 993}, False, "fast: 1024 bytes wanted, 1000 available on gpu:toy"),
        (
            {"fast": 2000, "hbm": 128},
            False,
            "fast: 2016 bytes wanted, 1000 available; hbm: 128 bytes wanted, "
            "1000000000 available on gpu:toy",
        ),
    ],
)
def test_what_fits_fits(wanted, ok, why):
    made = fits(TOY, wanted)
    assert bool(made) is ok and made.why == why


def test_an_unknown_size_does_not_fit_and_a_device_has_its_share():
    made = fits(targets.get("ascend:910c"), {"l2": 1})
    assert not made and "l2: 512 bytes wanted, size unknown" in made.why
    tpu7x = targets.get("tpu:tpu7x")
    assert fits(tpu7x, {"hbm": 96 * 2**30}) and not fits(tpu7x, {"hbm": 97 * 2**30})
