"""The records: complete, sourced, and equal to what the vendors state elsewhere."""

import pickle

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from tilejax import targets
from tilejax.errors import DTypeError, TargetError

NAMES = targets.names()
DATASHEET = [name for name in NAMES if name != "cpu"]
KIB, MIB, GIB = 2**10, 2**20, 2**30


def _every_name(parametrised):
    return pytest.mark.parametrize("name", parametrised)


def _faults(target):
    """What is wrong with a record, in words."""
    return [*_unsound_figures(target), *_unsound_parts(target)]


def _unsound_figures(target):
    found = []
    for path, value in target.figures().items():
        if value is None:
            continue
        if not target.source(path):
            found.append(f"{path} has no source")
        parts = value if isinstance(value, tuple) else (value,)
        if not all(part > 0 for part in parts):
            found.append(f"{path} is {value}")
    for path in target.sources:
        if not any(f"{one}.".startswith(f"{path}.") for one in target.figures()):
            found.append(f"a source for {path}, which there is not")
    return found


def _unsound_parts(target):
    found = []
    if target.fast not in [memory.name for memory in target.memories]:
        found.append(f"no memory {target.fast}")
    if len({memory.name for memory in target.memories}) < len(target.memories):
        found.append("two memories of one name")
    if len({unit.name for unit in target.units}) < len(target.units):
        found.append("two units of one name")
    room, size = target.limits.fast_bytes, target.fast_memory.bytes
    if room and size and room > size:
        found.append("a block may use more than there is")
    if target.cores and target.cores % target.devices:
        found.append("devices that do not share the cores evenly")
    return found


def test_all_the_targets_are_there():
    assert set(NAMES) >= {
        *("cpu", "gpu:a100", "gpu:h100", "gpu:b200", "gpu:mi300x", "tpu:v4", "tpu:v5e"),
        *("tpu:v5p", "tpu:v6e", "tpu:tpu7x", "ascend:910b1", "ascend:910c"),
        "ascend:950pr",
    }


@_every_name(NAMES)
def test_every_known_figure_is_positive_and_has_a_source(name):
    assert _faults(targets.get(name)) == []


@_every_name(NAMES)
def test_unknown_lists_exactly_the_figures_that_are_none(name):
    target = targets.get(name)
    expected = [] if target.cores else ["cores"]
    for memory in target.memories:
        for part in ("bytes", "align", "bandwidth"):
            if getattr(memory, part) is None:
                expected.append(f"memories.{memory.name}.{part}")
    for unit in target.units:
        rates = [f"units.{unit.name}.{d}" for d, rate in unit.rates.items() if not rate]
        expected += rates + ([] if unit.tile else [f"units.{unit.name}.tile"])
    for limit, value in vars(target.limits).items():
        if value is None and limit not in target.absent:
            expected.append(f"limits.{limit}")
    assert sorted(target.unknown()) == sorted(expected)


@_every_name(NAMES)
def test_a_record_is_a_value(name):
    target = targets.get(name)
    copy = pickle.loads(pickle.dumps(target))
    assert copy == target and hash(copy) == hash(target)
    other = target.with_figure("limits.launch_seconds", 1e-5, "measured")
    assert other != target
    with pytest.raises(AttributeError):
        target.cores = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        target.sources["cores"] = "me"  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("cores", 0, "cores is 0"),
        ("memories.hbm.bandwidth", 0.0, "memories.hbm.bandwidth is 0.0"),
        ("limits.fast_bytes", 2**40, "a block may use more than there is"),
    ],
)
def test_the_check_of_records_sees_a_planted_fault(path, value, fault):
    broken = targets.get("tpu:v5e").with_figure(path, value, "planted")
    assert _faults(broken) == [fault]


# What vendors state elsewhere than where the records take it from: counts of units,
# operations a clock and clocks; totals of pods and boards. (dtype, product, tolerance)
STATED = {
    # SMs x multiply-adds a clock and SM x 2 x boost clock
    "gpu:a100": [("bfloat16", 108 * 1024 * 2 * 1.41e9), ("float32", 6912 * 2 * 1.41e9)],
    "gpu:h100": [
        ("bfloat16", 132 * 2048 * 2 * 1.83e9),
        ("float32", 16896 * 2 * 1.98e9),
        ("float64", 528 * 32 * 2 * 1.98e9),
    ],
    # a DGX B200 has eight: 72 PFLOPS of FP8 with sparsity
    "gpu:b200": [("float8", 72e15 / 2 / 8), ("float16", 72e15 / 4 / 8)],
    # operations a clock and compute unit
    "gpu:mi300x": [
        ("bfloat16", 304 * 2048 * 2.1e9),
        ("float8", 304 * 4096 * 2.1e9),
        ("float64", 304 * 256 * 2.1e9),
        ("tf32", 304 * 1024 * 2.1e9),
    ],
    # arrays x rows x columns x 2 x clock; pods
    "tpu:v4": [("bfloat16", 2 * 4 * 128 * 128 * 2 * 1.05e9)],
    "tpu:v5e": [("bfloat16", 50.63e15 / 256), ("int8", 100e15 / 256)],
    "tpu:v5p": [("bfloat16", 2 * 4 * 128 * 128 * 2 * 1.75e9)],
    "tpu:v6e": [("bfloat16", 234.9e15 / 256)],
    # a superpod of 9216: 42.5 exaflops of FP8
    "tpu:tpu7x": [("float8", 42.5e18 / 9216), ("bfloat16", 42.5e18 / 2 / 9216)],
    # rounded in the compilers' notes, and the press on a package of two dies
    "ascend:910b1": [("float16", 364e12), ("int8", 728e12)],
    "ascend:910c": [("float16", 2 * 354e12), ("int8", 2 * 708e12)],
    "ascend:950pr": [("float16", 487e12), ("int8", 973e12)],
}


@_every_name(DATASHEET)
def test_rates_agree_with_what_the_vendor_states_elsewhere(name):
    for dtype, expected in STATED[name]:
        rate = targets.get(name).rate(dtype)
        assert rate == pytest.approx(expected, rel=0.025), dtype


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # bus width in bytes x transfers a second
        ("gpu:a100", 5120 / 8 * 2 * 1.593e9),
        ("gpu:h100", 5120 / 8 * 2 * 2.619e9),
        ("gpu:b200", 8e12),
        ("gpu:mi300x", 8192 / 8 * 5.2e9),
        ("tpu:v4", 1.23e12),
        ("tpu:v5e", 800 * GIB),
        ("tpu:v5p", 2.76e12),
        ("tpu:v6e", 1.64e12),
        ("tpu:tpu7x", 7.4e12),
        ("ascend:910b1", 1.42e12),
        ("ascend:910c", 2 * 1.6e12),
        ("ascend:950pr", 1.6e12),
    ],
)
def test_bandwidths_are_bytes_a_second(name, expected):
    bandwidth = targets.get(name).main.bandwidth
    assert bandwidth == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("name", "memory", "expected"),
    [
        ("gpu:a100", "shared", 164 * KIB),
        ("gpu:h100", "registers", 65536 * 4),
        ("gpu:b200", "hbm", 1440e9 / 8),
        ("gpu:mi300x", "l2", 8 * 4 * MIB),
        ("tpu:v5e", "vmem", 128 * MIB),
        ("tpu:v5p", "vmem", 64 * MIB),
        ("ascend:910b1", "ub", 1572864 // 8),
        ("ascend:910b1", "l0c", 1048576 // 8),
        ("ascend:910b1", "l1", 4194304 // 8),
    ],
)
def test_sizes_are_bytes_of_one_instance(name, memory, expected):
    assert targets.get(name).memory(memory).bytes == expected


@pytest.mark.parametrize(
    "name", [name for name in DATASHEET if not name.startswith("ascend")]
)
def test_an_eight_bit_product_is_not_slower_than_a_sixteen_bit_one(name):
    rates = targets.get(name).units[0].rates
    narrow = [rates.get(dtype) for dtype in ("int8", "float8")]
    assert any(narrow)
    assert all(rate >= (rates["bfloat16"] or 0) for rate in narrow if rate)


@_every_name(["tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:tpu7x"])
def test_a_tpu_agrees_with_what_jax_knows_of_it(name):
    target = targets.get(name)
    version = pltpu.ChipVersion(name.rpartition(":")[2].removeprefix("tpu"))
    info = pltpu.get_tpu_info_for_chip(version, 1)
    assert target.memory("vmem").bytes == info.vmem_capacity_bytes
    assert target.memory("smem").bytes == info.smem_capacity_bytes
    assert target.units[0].tile == (8, info.mxu_column_size, info.mxu_column_size)
    assert target.rate("bfloat16") == pytest.approx(
        info.bf16_ops_per_second * (target.cores or 0), rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "dtype", "grain"),
    [
        ("tpu:v5e", "bfloat16", (8, 128, 128)),
        ("tpu:v6e", "int8", (8, 256, 256)),
        ("gpu:a100", "bfloat16", (16, 8, 16)),
        ("gpu:a100", "int8", (16, 8, 32)),
        ("gpu:a100", "int4", (16, 8, 64)),
        ("gpu:a100", "tf32", (16, 8, 8)),
        ("ascend:910b1", np.float16, (16, 16, 16)),
        ("ascend:910b1", np.int8, (16, 16, 32)),
        ("ascend:910b1", np.float32, (16, 16, 8)),
    ],
)
def test_granularity_follows_the_dtype(name, dtype, grain):
    assert targets.get(name).units[0].granularity(dtype) == grain


def test_a_figure_can_be_filled_in_with_its_source():
    target = targets.get("tpu:v6e")
    filled = target.with_figure("units.vpu.float32", 1e13, "measured")
    assert filled.rate("float32", "vector") == 1e13
    assert filled.source("units.vpu.float32") == "measured"
    assert set(target.unknown()) - set(filled.unknown()) == {"units.vpu.float32"}
    wider = target.with_figure("units.mxu.tile", (8, 512, 512), "planned")
    assert wider.units[0].tile == (8, 512, 512)
    more = target.with_figure("memories.hbm.bytes", 64 * GIB, "planned")
    assert more.main.bytes == 64 * GIB and more.memory("vmem") == target.memory("vmem")


def test_wrong_names_say_what_there_is():
    target = targets.get("tpu:v5e")
    with pytest.raises(
        TargetError, match=r"tpu:v5e has no memory 'l2'; it has hbm, vm"
    ):
        target.memory("l2")
    with pytest.raises(
        TargetError, match=r"no figure 'memories\.hbm\.size'; it has co"
    ):
        target.with_figure("memories.hbm.size", 1, "me")
    with pytest.raises(DTypeError, match="'brain' is not a dtype"):
        target.rate("brain")
