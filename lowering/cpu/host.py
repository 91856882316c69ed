"""What code is generated for: a CPU's triple, name, features and vector width."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tilejax._jax.primitives import user_context
from tilejax.errors import TargetError


@dataclass(frozen=True)
class Host:
    """A CPU to generate code for.

    **Arguments:**

    - `triple`, `cpu`: as LLVM names them.
    - `features`: LLVM's names of what the CPU can do.
    - `lanes`: elements of a vector in generated code: as many as a register holds of
      float32.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    lanes: int

    def has(self, *features: str) -> bool:
        """Tell whether the CPU has all of the features."""
        return self.features.issuperset(features)

    @property
    def is_x86(self) -> bool:
        """Whether x86's intrinsics may be used."""
        return self.triple.startswith(("x86_64", "amd64"))

    @property
    def runs_here(self) -> bool:
        """Whether this process's CPU can run code made for it."""
        here = detect()
        family = self.triple.split("-")[0] == here.triple.split("-")[0]
        return family and here.features >= self.features


@cache
def detect() -> Host:
    """Return the CPU of this process.

    AMX is left out unless the environment has `TILEJAX_AMX=1`: its code is checked in
    an interpreter of the tile instructions, and has not run on a CPU that has them.
    """
    found = llvm.get_host_cpu_features()
    features = {name for name, on in found.items() if on}
    if platform.system() == "Linux" and os.environ.get("TILEJAX_AMX") == "1":
        features |= _amx(Path("/proc/cpuinfo"))
    return _host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def _host(triple: str, cpu: str, features) -> Host:
    widest = {"avx512f": 16, "avx2": 8, "avx": 8}
    lanes = max((widest.get(feature, 4) for feature in features), default=4)
    return Host(triple, cpu, frozenset(features), lanes)


_AMX = {
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
    "amx_fp16": "amx-fp16",
}
"""LLVM's own list of the host's features leaves these out."""

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def _amx(cpuinfo: Path) -> set[str]:
    """Ask Linux for the tile registers; they stay forbidden to who has not asked."""
    try:
        flags = set(cpuinfo.read_text().split())
    except OSError:
        return set()
    if "amx_tile" not in flags:
        return set()
    # A thread gets what its process had asked for before the thread first used tiles.
    system = ctypes.CDLL(None).syscall
    if system(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) != 0:
        return set()
    return {name for flag, name in _AMX.items() if flag in flags}


_V2 = ("cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_SAPPHIRE = ("avx512vnni", "avx512bf16", "avx512fp16", "avxvnni")
_HERE = llvm.get_process_triple()
_X86 = _HERE if _HERE.startswith("x86_64") else "x86_64-unknown-linux-gnu"

NAMED = {
    "plain": _host(_X86, "x86-64", ("sse", "sse2", "fxsr", "mmx", "cx8")),
    "avx2": _host(_X86, "x86-64-v3", _V3),
    "avx512": _host(_X86, "x86-64-v4", _V4),
    "amx": _host(
        _X86,
        "sapphirerapids",
        (*_V4, *_SAPPHIRE, "amx-tile", "amx-bf16", "amx-int8"),
    ),
    "aarch64": _host("aarch64-unknown-linux-gnu", "generic", ("neon", "fp-armv8")),
}
"""CPUs by name, so that the code of each can be tested or read on another."""

_FORCED = user_context(None)


def current() -> Host:
    """Return the CPU that code is generated for here: the process's, or a forced one.

    >>> with forced("avx2"):
    ...     current().lanes
    8
    """
    name = _FORCED.value
    return detect() if name is None else NAMED[name]


@contextmanager
def forced(name: str) -> Iterator[Host]:
    """Generate code for a named CPU in everything lowered inside.

    **Arguments:**

    - `name`: a key of `NAMED`.

    **Raises:** `TargetError` for an unknown name.
    """
    if name not in NAMED:
        raise TargetError(f"no CPU is named {name!r}; there are {', '.join(NAMED)}")
    with _FORCED(name):
        yield NAMED[name]
