"""The host's processor: against lscpu, and from other machines' files."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tilejax import targets
from tilejax.targets.cpu import cpu_record, vector_bits
from tilejax.targets.host import Host, cpu_quota, parse_cpu_list, read_host
from tilejax.targets.microarch import fma_pipes


def _known(value):
    assert value is not None
    return value


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")

XEON = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
cpu MHz\t\t: 2700.000
flags\t\t: sse4_2 avx avx2 fma avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 \
amx_tile amx_int8

processor\t: 1
vendor_id\t: Nobody
"""
GRAVITON = """\
processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd asimdhp asimddp sve i8mm bf16
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
"""


def _write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def _machine(root, cpuinfo, cpus, threads=1):
    """A made-up machine's files: two threads of a core are neighbours."""
    _write(root, "proc/cpuinfo", cpuinfo)
    _write(root, "proc/meminfo", "MemTotal:       1000 kB\nMemFree: 10 kB\n")
    base = "sys/devices/system/cpu"
    _write(root, f"{base}/online", f"0-{cpus - 1}\n")
    for cpu in range(cpus):
        first = cpu - cpu % threads
        core = f"{first}-{first + threads - 1}" if threads > 1 else str(cpu)
        _write(root, f"{base}/cpu{cpu}/topology/core_cpus_list", core)
    own = f"0-{threads - 1}"
    for index, (level, kind, size, shared) in enumerate(
        [
            (1, "Data", "48K", own),
            (1, "Instruction", "32K", own),
            (2, "Unified", "2048K", own),
            (3, "Unified", "105M", f"0-{cpus - 1}"),
        ]
    ):
        folder = f"{base}/cpu0/cache/index{index}"
        _write(root, f"{folder}/level", f"{level}\n")
        _write(root, f"{folder}/type", kind)
        _write(root, f"{folder}/size", size)
        _write(root, f"{folder}/coherency_line_size", "64")
        _write(root, f"{folder}/shared_cpu_list", shared)
    return root


def _lscpu():
    if shutil.which("lscpu") is None:
        pytest.skip("no lscpu here")
    text = subprocess.run(
        ["lscpu"], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    ).stdout
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


@linux
def test_the_host_is_what_lscpu_says():
    said, host = _lscpu(), read_host()
    cpu = targets.get("cpu")
    if "Model name" in said and host.model:
        assert host.model == said["Model name"]
    assert host.logical == len(parse_cpu_list(said["On-line CPU(s) list"]))
    if said.get("Core(s) per socket", "-").isdigit():
        cores = int(said["Core(s) per socket"]) * int(said["Socket(s)"])
        assert host.physical == cores
        assert 1 <= _known(cpu.cores) <= cores
    if "Flags" in said:
        assert host.features == frozenset(said["Flags"].split())
    for level, label in (("l1", "L1d cache"), ("l2", "L2 cache"), ("l3", "L3 cache")):
        match = re.match(r"([\d.]+) ([KMG]iB) \((\d+) instance", said.get(label, ""))
        if match and level in [memory.name for memory in cpu.memories]:
            unit = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[match[2]]
            one = float(match[1]) * unit / int(match[3])
            assert cpu.memory(level).bytes == pytest.approx(one, rel=0.01), level


@linux
def test_affinity_is_respected():
    allowed = sorted(os.sched_getaffinity(0))
    script = (
        "import os; os.sched_setaffinity(0, {%d});"
        "from tilejax.targets.host import read_host; print(read_host().allowed)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script % allowed[-1]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "1"


@linux
def test_cores_outside_the_affinity_are_not_counted(tmp_path, monkeypatch):
    root = _machine(tmp_path, XEON, cpus=8, threads=2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    host = read_host(root)
    # two threads of one core, one each of two others
    assert (host.allowed, host.physical) == (3, 4)


@linux
def test_a_quota_is_respected(tmp_path, monkeypatch):
    root = _machine(tmp_path, XEON, cpus=8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert read_host(root).allowed == 8
    _write(root, "proc/self/cgroup", "0::/a/b\n")
    _write(root, "sys/fs/cgroup/a/cpu.max", "250000 100000\n")
    _write(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert cpu_quota(root) == 2.5
    assert read_host(root).allowed == 3


@pytest.mark.parametrize(
    ("group", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/gone/elsewhere\n", {"cpu.max": "400000 100000"}, 4.0),
        (
            "4:cpu,cpuacct:/\n",
            {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"},
            1.5,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1"}, None),
        ("7:pids:/\n", {"cpu.max": "1 100000"}, None),
        ("", {}, None),
    ],
)
def test_both_hierarchies_of_control_groups_are_read(tmp_path, group, files, quota):
    _write(tmp_path, "proc/self/cgroup", group)
    for name, text in files.items():
        _write(tmp_path, f"sys/fs/cgroup/{name}", text)
    assert cpu_quota(tmp_path) == quota


@linux
def test_a_server_with_matrix_tiles_is_derived_by_the_formula(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    cpu = cpu_record(read_host(_machine(tmp_path, XEON, cpus=4)))
    assert cpu.cores == 4
    assert cpu.rate("float32") == 4 * 2 * 16 * 2 * 2.7e9
    assert cpu.rate("float64") == 4 * 2 * 8 * 2 * 2.7e9
    assert cpu.rate("float16") == 2 * _known(cpu.rate("float32"))
    assert cpu.rate("bfloat16") == 4 * 1024 * 2.7e9
    assert cpu.rate("int8") == 4 * 2048 * 2.7e9
    assert _known(cpu.unit_for("int8")).granularity("int8") == (16, 16, 64)
    assert [(memory.name, memory.bytes) for memory in cpu.memories] == [
        ("ram", 1024000),
        ("l3", 105 * 2**20),
        ("l2", 2**21),
        ("l1", 48 * 2**10),
    ]
    assert {memory.align for memory in cpu.memories} == {64}
    assert [memory.scope for memory in cpu.memories[1:]] == ["chip", "core", "core"]
    assert "avx512f" in cpu.details["features"] and "derived" in _known(
        cpu.source("units.amx")
    )
    assert "memories.ram.bandwidth" in cpu.unknown()


@linux
def test_an_arm_server_without_a_named_frequency_has_unknown_rates(tmp_path):
    host = read_host(_machine(tmp_path, GRAVITON, cpus=2))
    assert (host.vendor, host.part) == ("0x41", 0xD40)
    cpu = cpu_record(host)
    assert cpu.details["vector_bits"] == 256
    assert {"units.vector.float32", "units.dot.int8"} <= set(cpu.unknown())
    top = "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"
    _write(tmp_path, top, "2600000\n")
    cpu = cpu_record(read_host(tmp_path))
    assert cpu.rate("float32") == _known(cpu.cores) * 2 * 8 * 2 * 2.6e9


@linux
def test_a_system_that_tells_nothing_gives_unknowns_not_guesses(tmp_path):
    host = read_host(tmp_path)
    assert (host.model, host.frequency, host.memory, host.caches) == (None,) * 3 + ((),)
    cpu = cpu_record(host)
    assert _known(cpu.cores) >= 1
    assert {"memories.ram.bytes", "memories.l2.bytes", "units.vector.float32"} <= set(
        cpu.unknown()
    )
    assert cpu.block_bytes is None


@pytest.mark.parametrize(
    ("vendor", "family", "part", "features", "bits"),
    [
        ("AuthenticAMD", 0x17, 0x01, {"avx2"}, 128),
        ("AuthenticAMD", 0x17, 0x31, {"avx2"}, 256),
        ("AuthenticAMD", 0x19, 0x11, {"avx2", "avx512f"}, 256),
        ("AuthenticAMD", 0x1A, 0x02, {"avx512f"}, 512),
        ("GenuineIntel", 6, 0x8F, {"avx512f"}, 512),
        ("GenuineIntel", 6, 0x8F, {"avx2"}, 256),
        ("GenuineIntel", 6, 0x97, {"avx2"}, 256),
        ("0x41", 0, 0xD0C, {"asimd"}, 128),
        ("0x61", 0, 0x22, {"asimd"}, 128),
    ],
)
def test_the_width_of_a_pipe_is_the_core_s(vendor, family, part, features, bits):
    host = Host(vendor=vendor, family=family, part=part, features=frozenset(features))
    assert _known(fma_pipes(host)).bits == bits


def test_a_core_that_no_guide_covers_has_no_pipes():
    assert fma_pipes(Host(vendor="GenuineIntel", family=6, part=0x1C)) is None
    assert fma_pipes(Host(vendor="Loongson")) is None
    assert vector_bits(Host()) is None


def test_a_mac_is_read_through_sysctl(monkeypatch):
    said = {
        "machdep.cpu.brand_string": "Apple M2",
        "hw.physicalcpu": "8",
        "hw.memsize": str(8 * 2**30),
        "hw.perflevel0.l1dcachesize": "131072",
        "hw.perflevel0.l2cachesize": "16777216",
        "hw.perflevel0.cpusperl2": "4",
        "hw.optional.AdvSIMD": "1",
        "hw.optional.arm.FEAT_FP16": "1",
    }
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setitem(read_host.__globals__, "_sysctl", said.get)
    host = read_host()
    assert (host.model, host.allowed, host.memory) == ("Apple M2", 8, 8 * 2**30)
    assert host.caches == ((1, 131072, 1), (2, 16777216, 4))
    assert _known(fma_pipes(host)).count == 4 and vector_bits(host) == 128
    # Apple names no frequency, so there is no rate either
    assert cpu_record(host).rate("float16") is None


def test_detection_runs_once():
    assert targets.get("cpu") is targets.get("host")
