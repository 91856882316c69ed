"""What the operating system says about the host's processor. It runs no benchmark.

Every reader takes the root of the file system, so that tests can hand it another
machine's files; whatever cannot be read is `None` or left out.
"""

import math
import os
import platform
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_CACHE = "sys/devices/system/cpu/cpu0/cache"
_SUFFIX = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Host:
    """Hold what was read about the processor.

    **Arguments:**

    - `model`: Marketing name.
    - `vendor`, `family`, `part`: What identifies the microarchitecture: x86 vendor,
      family and model; on Arm the implementer and part number, family 0.
    - `features`: Flags, as the kernel names them.
    - `physical`, `logical`: Cores and hardware threads of the machine.
    - `allowed`: Physical cores that this process may use, after affinity and quota.
    - `frequency`: Hertz, the highest that the system names.
    - `caches`: (level, bytes, cores that share one) of data and unified caches.
    - `line`: Bytes of a cache line.
    - `memory`: Bytes of main memory.
    """

    model: str | None = None
    vendor: str | None = None
    family: int | None = None
    part: int | None = None
    features: frozenset[str] = frozenset()
    physical: int | None = None
    logical: int | None = None
    allowed: int | None = None
    frequency: float | None = None
    caches: tuple[tuple[int, int, int], ...] = field(default=())
    line: int | None = None
    memory: int | None = None


def read_host(root: Path = Path("/")) -> Host:
    """Read the host's processor.

    **Arguments:**

    - `root`: Where `proc` and `sys` are.

    **Returns:**

    A `Host`, with `None` for what this system does not tell.

    Example:

    >>> read_host().allowed >= 1
    True
    """
    if platform.system() == "Darwin":
        return _read_mac()
    info = _cpuinfo(root)
    allowed, physical = _cores(root)
    return Host(
        model=info.get("model name"),
        vendor=info.get("vendor_id") or info.get("cpu implementer"),
        family=_number(info.get("cpu family", "0")),
        part=_number(info.get("model") or info.get("cpu part")),
        features=frozenset((info.get("flags") or info.get("features", "")).split()),
        physical=physical,
        logical=os.cpu_count(),
        allowed=allowed,
        frequency=_frequency(root, info),
        caches=_caches(root),
        line=_number(_text(root / f"{_CACHE}/index0/coherency_line_size")),
        memory=_memory(root),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _cpuinfo(root: Path) -> dict[str, str]:
    """Return the first processor's lines, names in lower case."""
    first = (_text(root / "proc/cpuinfo") or "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def parse_cpu_list(text: str) -> set[int]:
    """Parse the kernel's list format.

    **Arguments:**

    - `text`: Numbers and ranges, e.g. "0-2,5".

    **Returns:**

    The numbers.

    Example:

    >>> sorted(parse_cpu_list("0-2,5"))
    [0, 1, 2, 5]
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def _siblings(root: Path, cpu: int) -> set[int]:
    """Return the hardware threads of the core that a CPU belongs to."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    text = _text(folder / "core_cpus_list") or _text(folder / "thread_siblings_list")
    return parse_cpu_list(text) if text else {cpu}


def _cores(root: Path) -> tuple[int, int]:
    """Return the physical cores that this process may use, and all there are."""
    every = _text(root / "sys/devices/system/cpu/online")
    online = parse_cpu_list(every) if every else set(range(os.cpu_count() or 1))
    affinity = getattr(os, "sched_getaffinity", lambda _: online)(0)
    cores = {min(_siblings(root, cpu)) for cpu in affinity}
    quota = cpu_quota(root)
    allowed = len(cores) if quota is None else min(len(cores), math.ceil(quota))
    return max(allowed, 1), len({min(_siblings(root, cpu)) for cpu in online})


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPUs' worth of time that control groups grant, `None` if unlimited.

    The tightest limit on the way from the process's group to the root counts, in the
    unified hierarchy (`cpu.max`) and in the old one (`cpu.cfs_quota_us`).

    **Arguments:**

    - `root`: Where `proc` and `sys` are.
    """
    quotas = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup/cpu", root / f"sys/fs/cgroup/{controllers}"]
        else:
            continue
        below = Path(path.lstrip("/"))
        # inside a container the path may not exist below the mount; its root does
        for mount in mounts:
            for group in (below, *below.parents):
                quotas.append(_group_quota(mount / group))
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_quota(group: Path) -> float | None:
    unified = _text(group / "cpu.max")
    if unified:
        quota, _, period = unified.partition(" ")
    else:
        quota = _text(group / "cpu.cfs_quota_us") or "max"
        period = _text(group / "cpu.cfs_period_us") or ""
    if quota in ("max", "-1") or not quota.isdigit():
        return None
    return int(quota) / int(period or 100_000)


def _frequency(root: Path, info: dict[str, str]) -> float | None:
    """Return the highest frequency the system names, else the current one, in hertz."""
    top = _text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    if top and top.isdigit():
        return int(top) * 1e3
    # a virtual machine shows its nominal frequency here, and often nothing else
    text = info.get("cpu mhz")
    return float(text) * 1e6 if text and re.fullmatch(r"[\d.]+", text) else None


def _caches(root: Path) -> tuple[tuple[int, int, int], ...]:
    found = set()
    for folder in sorted((root / _CACHE).glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", _text(folder / "size") or "")
        level = _number(_text(folder / "level"))
        if size and level and _text(folder / "type") != "Instruction":
            shared = parse_cpu_list(_text(folder / "shared_cpu_list") or "0")
            cores = len({min(_siblings(root, cpu)) for cpu in shared})
            found.add((level, int(size[1]) * _SUFFIX[size[2]], cores))
    return tuple(sorted(found))


def _memory(root: Path) -> int | None:
    text = _text(root / "proc/meminfo") or ""
    total = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(total[1]) * 1024 if total else None


def _sysctl(name: str) -> str | None:
    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _read_mac() -> Host:
    """Read macOS; on Apple silicon the first performance level is the fast cores."""
    features = {
        name.rpartition(".")[2].lower()
        for name in ("hw.optional.AdvSIMD", "hw.optional.arm.FEAT_FP16")
        if _sysctl(name) == "1"
    }
    features |= set((_sysctl("machdep.cpu.leaf7_features") or "").lower().split())
    features |= set((_sysctl("machdep.cpu.features") or "").lower().split())
    brand = _sysctl("machdep.cpu.brand_string")
    caches = []
    for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
        size = _number(_sysctl(f"hw.perflevel0.{name}") or _sysctl(f"hw.{name}"))
        if size:
            sharing = _number(_sysctl("hw.perflevel0.cpusperl2")) if level == 2 else 1
            caches.append((level, size, sharing or 1))
    physical = _number(_sysctl("hw.physicalcpu"))
    frequency = _number(_sysctl("hw.cpufrequency_max"))
    return Host(
        model=brand,
        vendor="Apple" if (brand or "").startswith("Apple") else "GenuineIntel",
        family=_number(_sysctl("machdep.cpu.family") or "0"),
        part=_number(_sysctl("machdep.cpu.model")),
        features=frozenset(features),
        physical=physical,
        logical=os.cpu_count(),
        allowed=physical or os.cpu_count() or 1,
        frequency=None if frequency is None else float(frequency),
        caches=tuple(caches),
        line=_number(_sysctl("hw.cachelinesize")),
        memory=_number(_sysctl("hw.memsize")),
    )
