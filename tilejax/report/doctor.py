"""`tilejax doctor`: what this machine has, what is wrong, and what could be added."""

import argparse
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilejax.errors import TargetError
from tilejax.report.toolchains import TOOLCHAINS, Found, find, package_version
from tilejax.targets import detect
from tilejax.targets.host import read_host

# First version supported, and first version no longer supported.
PYTHON = ((3, 11), (3, 14))
JAX = ((0, 10, 2), (0, 13))

# The vector and matrix units that kernels can use, out of the many flags that a
# processor has: x86's as Linux names them, Arm's as Linux and macOS do.
FEATURES = (
    *("avx", "avx2", "fma", "f16c", "avx_vnni"),
    *("avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme"),
    *("neon", "feat_fp16", "feat_dotprod", "feat_bf16", "feat_i8mm", "feat_sme"),
)


@dataclass(frozen=True)
class Finding:
    """Report one fact about the machine.

    **Arguments:**

    - `topic`: What it is about.
    - `value`: What was found.
    - `problem`: Why TileJAX will not work like this and what to do; "" if it will.
    """

    topic: str
    value: str
    problem: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Hold everything that `tilejax doctor` says.

    **Arguments:**

    - `findings`: What TileJAX needs, in the order of printing.
    - `toolchains`: What it can do without.
    """

    findings: tuple[Finding, ...]
    toolchains: tuple[Found, ...]

    @property
    def healthy(self) -> bool:
        """Whether no finding is a problem."""
        return not any(finding.problem for finding in self.findings)

    def to_dict(self) -> dict:
        """Return plain dicts, lists, strings and booleans, for JSON."""
        return {
            "healthy": self.healthy,
            "findings": [vars(finding) for finding in self.findings],
            "toolchains": [_toolchain_dict(found) for found in self.toolchains],
        }


def diagnose() -> Diagnosis:
    """Look at the interpreter, JAX, the devices, the CPU and the toolchains.

    Example:

    >>> diagnosis = diagnose()
    >>> diagnosis.findings[0].topic
    'TileJAX'
    """
    return Diagnosis(
        findings=tuple(look() for look in CHECKS),
        toolchains=tuple(find(toolchain) for toolchain in TOOLCHAINS),
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the diagnosis; return 0 if nothing stands in TileJAX's way, else 1."""
    diagnosis = diagnose()
    if arguments.json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        show(diagnosis, Console())
    return 0 if diagnosis.healthy else 1


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis as two tables and, for what is missing, how to install it."""
    needed = Table("", "", box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in diagnosis.findings:
        mark = Text("PROBLEM", "bold red") if finding.problem else Text("ok", "green")
        needed.add_row(mark, Text(finding.topic), Text(finding.value))
    console.print(needed)
    for finding in diagnosis.findings:
        if finding.problem:
            line = Text(f"{finding.topic}: {finding.problem}", "red")
            console.print(line, soft_wrap=True)

    optional = Table("", "", "", box=None, show_header=False, padding=(0, 2, 0, 0))
    for found in diagnosis.toolchains:
        state = Text("missing", "dim")
        if found.where is not None:
            state = Text(found.version or "present", "green")
        optional.add_row(state, Text(found.toolchain.name), Text(found.toolchain.adds))
    console.print("\nOptional toolchains", style="bold")
    console.print(optional)

    missing = [f.toolchain for f in diagnosis.toolchains if f.where is None]
    if missing:
        console.print("\nTo add what is missing", style="bold")
    for toolchain in missing:
        # One unbroken line each, so that it can be copied whatever the width.
        for line in (
            f"{toolchain.name}: {toolchain.licence}",
            f"    {_install_line(toolchain.install)}",
        ):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _toolchain_dict(found: Found) -> dict:
    return {
        "name": found.toolchain.name,
        "present": found.where is not None,
        "version": found.version,
        "where": found.where,
        "adds": found.toolchain.adds,
        "install": _install_line(found.toolchain.install),
        "licence": found.toolchain.licence,
    }


def _install_line(template: str) -> str:
    return template.replace("{jax}", jax.__version__)


def _within(version: tuple[int, ...], limits: tuple[tuple[int, ...], ...]) -> bool:
    return limits[0] <= version < limits[1]


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def _dots(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _tilejax() -> Finding:
    folder = os.path.dirname(os.path.dirname(__file__))
    version = package_version("tilejax")
    return Finding("TileJAX", f"{version or 'not installed, run from'} {folder}")


def _python() -> Finding:
    value = f"{platform.python_version()} {sys.executable}"
    if _within(sys.version_info[:2], PYTHON):
        return Finding("Python", value)
    return Finding("Python", value, "tested with Python 3.11, 3.12 and 3.13 only")


def _library(name: str, version: str) -> Finding:
    if _within(_numbers(version), JAX):
        return Finding(name, version)
    low, high = map(_dots, JAX)
    advice = f'supported from {low} up to, not including, {high}: pip install "jax'
    return Finding(name, version, f'{advice}>={low},<{high}"')


def _devices() -> Finding:
    try:
        devices = jax.devices()
    except Exception as error:  # whatever a plugin raises, an assertion of JAX's too
        asked = os.environ.get("JAX_PLATFORMS", "")
        said = (str(error) or type(error).__name__).splitlines()[0]
        problem = (
            f"JAX does not start with JAX_PLATFORMS={asked!r} ({said}); "
            "unset it, or name platforms that this machine has"
        )
        return Finding("Devices", "none", problem)
    kinds = Counter(
        f"{device.device_kind} (target {_target(device)})" for device in devices
    )
    return Finding("Devices", ", ".join(f"{n} x {kind}" for kind, n in kinds.items()))


def _target(device: Any) -> str:
    try:
        return detect(device).name
    except TargetError:
        return "unknown"


def _cpu() -> Finding:
    return Finding("CPU", read_host().model or f"unknown {platform.machine()}")


def _cores() -> Finding:
    host = read_host()
    named = (
        ("usable", host.allowed),
        ("physical", host.physical),
        ("logical", host.logical),
    )
    return Finding("Cores", ", ".join(f"{n or 'unknown'} {word}" for word, n in named))


def _features() -> Finding:
    has = read_host().features
    return Finding("CPU features", " ".join(f for f in FEATURES if f in has) or "none")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _tilejax,
    _python,
    lambda: _library("JAX", jax.__version__),
    lambda: _library("jaxlib", package_version("jaxlib") or "missing"),
    _devices,
    _cpu,
    _cores,
    _features,
)
