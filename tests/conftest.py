"""Where every test runs: on eight virtual CPU devices, seeded, without deadlines."""

import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before JAX is imported: it reads both when it starts. Of equal flags the last counts.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import hypothesis
import jax
import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden"

# Tracing and compiling take as long as they take on a shared machine, so neither a
# deadline nor slow generation says anything about the code.
hypothesis.settings.register_profile(
    "local",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "fixed", hypothesis.settings.get_profile("local"), derandomize=True, database=None
)
hypothesis.settings.load_profile("fixed" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden anew"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Workers of pytest-xdist each collect, and stop where their names differ: an
    # object's address in a name would be seen only when two workers run.
    addressed = [item.nodeid for item in items if re.search(r"\bat 0x", item.nodeid)]
    if addressed:
        raise pytest.UsageError(f"these tests' names change at each run: {addressed}")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's name alone."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit types for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def eight_devices() -> list[Any]:
    """The virtual devices for tests that shard."""
    devices = jax.devices()
    assert len(devices) == 8, f"expected 8 virtual CPU devices, found {devices}"
    return devices


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a stored file; `--update-golden` writes the file anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text + "\n")
        assert path.exists(), f"{path} is missing; run with --update-golden"
        assert text + "\n" == path.read_text()

    return check


@pytest.fixture(autouse=True, scope="session")
def kernels_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start with an empty disk cache of compiled kernels, of this run's own."""
    before = os.environ.get("TILEJAX_CACHE_DIR")
    os.environ["TILEJAX_CACHE_DIR"] = str(tmp_path_factory.mktemp("kernels"))
    yield
    del os.environ["TILEJAX_CACHE_DIR"]
    if before is not None:
        os.environ["TILEJAX_CACHE_DIR"] = before


@pytest.fixture(scope="module")
def quick_to_compile() -> Iterator[None]:
    """LLVM is told to hurry, for `jax.jit` as for `tilejax.jit`.

    Not for tests that ask two programs for the same bits. What was compiled meanwhile,
    JAX's own operations among it, is forgotten, so that such tests may follow.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
