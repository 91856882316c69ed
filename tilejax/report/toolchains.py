"""Optional compilers and back ends: what each one adds, and under which terms.

None of them is needed, shipped or installed by TileJAX. Finding one neither imports nor
loads it: Python packages are looked up by their metadata, programs on PATH are asked
for their version.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Toolchain:
    """Describe an optional toolchain.

    **Arguments:**

    - `name`: How people call it.
    - `adds`: What it makes possible, as the end of "with it one ...".
    - `install`: A shell line; `{jax}` stands for the installed version of JAX.
    - `licence`: The terms that whoever installs it accepts.
    - `packages`: Names of Python distributions, any of which is enough.
    - `programs`: Names of programs on PATH, any of which is enough.
    """

    name: str
    adds: str
    install: str
    licence: str
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """Say whether a toolchain is there.

    **Arguments:**

    - `toolchain`: The one that was looked for.
    - `version`: Its version; `None` if it is missing, or present and will not tell.
    - `where`: The Python distribution or the path of the program; `None` if missing.
    """

    toolchain: Toolchain
    version: str | None = None
    where: str | None = None


TOOLCHAINS = (
    Toolchain(
        name="llvmlite",
        adds="turns LLVM IR into native code for this CPU",
        install="pip install llvmlite",
        licence="BSD-2-Clause, and Apache-2.0 with LLVM exception",
        packages=("llvmlite",),
    ),
    Toolchain(
        name="libtpu",
        adds="compiles for every TPU generation, on any Linux machine",
        install='pip install "jax[tpu]=={jax}"',
        licence="proprietary, under the Google Cloud Platform terms",
        packages=("libtpu",),
    ),
    Toolchain(
        name="JAX CUDA plugin",
        adds="compiles for NVIDIA GPUs, and runs on one with its CUDA libraries",
        install='pip install "jax[cuda13-local]=={jax}"',
        licence="Apache-2.0 (the CUDA libraries: NVIDIA's EULA)",
        packages=("jax-cuda13-plugin", "jax-cuda12-plugin"),
    ),
    Toolchain(
        name="ptxas",
        adds="assembles GPU code for the JAX CUDA plugin",
        install="pip install nvidia-cuda-nvcc",
        licence="proprietary, under NVIDIA's CUDA EULA",
        packages=("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"),
        programs=("ptxas",),
    ),
    Toolchain(
        name="nvcc",
        adds="compiles CUDA C++",
        install="see https://developer.nvidia.com/cuda-downloads",
        licence="proprietary, under NVIDIA's CUDA EULA",
        programs=("nvcc",),
    ),
    Toolchain(
        name="Triton",
        adds="compiles Triton source for NVIDIA and AMD GPUs, without one",
        install="pip install triton",
        licence="MIT (it bundles NVIDIA's ptxas, under NVIDIA's CUDA EULA)",
        packages=("triton",),
    ),
    Toolchain(
        name="AscendNPU IR",
        adds="compiles linalg for Ascend NPUs up to HIVM, without one",
        install="pip install ascendnpu-ir",
        licence="Apache-2.0 by its metadata; there is no licence file inside",
        packages=("ascendnpu-ir",),
    ),
    Toolchain(
        name="hivmc",
        adds="turns HIVM into a binary that an Ascend NPU runs",
        install="install the CANN toolkit: https://www.hiascend.com/software/cann",
        licence="proprietary, under Huawei's CANN terms",
        programs=("hivmc", "hivmc-a5"),
    ),
)


def find(toolchain: Toolchain) -> Found:
    """Look for a toolchain among the installed packages, then on PATH.

    **Arguments:**

    - `toolchain`: What to look for.

    **Returns:**

    The first package or program found, or a `Found` without a place.

    Example:

    >>> missing = Toolchain("x", "adds x", "pip install x", "MIT", ("no-such-thing",))
    >>> find(missing).where is None
    True
    """
    for package in toolchain.packages:
        version = package_version(package)
        if version is not None:
            return Found(toolchain, version, f"package {package}")
    for program in toolchain.programs:
        path = shutil.which(program)
        if path is not None:
            return Found(toolchain, _program_version(path), path)
    return Found(toolchain)


def package_version(package: str) -> str | None:
    """Return the version of an installed Python distribution, `None` if it is missing.

    Example:

    >>> package_version("no-such-thing") is None
    True
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _program_version(path: str) -> str | None:
    """Ask a program; whatever goes wrong with it is not the reader's trouble."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\d+(\.\d+)+", done.stdout)
    return match[0] if match else None
