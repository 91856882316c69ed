"""Run a file of JAX's own tests with `jax.jit` replaced by `tilejax.jit`.

    python tests/conformance/driver.py jax-checkout api_test

`jax-checkout` holds JAX's `tests` folder and `pyproject.toml`, of the version that is
installed. What fails is run again with `jax.jit` itself, since only a test that passes
there says anything. Prints the names of those, and the counts.
"""

import importlib
import os
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import pytest


class Outcomes:
    """A pytest plugin that remembers how each test went."""

    def __init__(self):
        self.of: dict[str, str] = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            if self.of.get(report.nodeid) != "failed":
                self.of[report.nodeid] = report.outcome


def replace_jit() -> None:
    """Make `jax.jit` ours, for all but the module that is built on the true one."""
    import jax

    import tilejax

    built_on_it = importlib.import_module("tilejax.front.jit")
    built_on_it.jax = types.SimpleNamespace(jit=jax.jit)  # pyright: ignore
    jax.jit = tilejax.jit


def run(folder: Path, tests: list[str]) -> dict[str, str]:
    """Run tests in this process, and return the outcome of each."""
    sys.path.insert(0, str(folder / "tests"))
    outcomes = Outcomes()
    options = ["-qq", "--tb=no", "-rN", "-p", "no:cacheprovider", "--rootdir", folder]
    options += ["-c", folder / "pyproject.toml"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*map(str, options), *tests], plugins=[outcomes])
    return outcomes.of


def main() -> None:
    """Run the file under both, and say where they differ."""
    folder, name, *failed = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    os.environ["JAX_PLATFORMS"] = "cpu"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = flags + " --xla_force_host_platform_device_count=8"
    if failed:  # the second run, in a process of its own, with the true `jax.jit`
        for test, outcome in run(folder, failed).items():
            print(outcome, test)
        return
    sys.path.insert(0, str(Path(__file__).parents[2]))
    replace_jit()
    outcomes = run(folder, [str(folder / "tests" / f"{name}.py")])
    counts = Counter(outcomes.values())
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    if failed:
        places = [str(folder / test) for test in failed]
        command = [sys.executable, __file__, str(folder), name, *places]
        again = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = again.stdout.splitlines()
        failed = [line.split()[-1] for line in lines if line.startswith("passed ")]
    print(f"\n{name}: {counts['passed'] + len(failed)} pass with jax.jit, of those")
    print(f"{counts['passed']} with tilejax.jit; not so:", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
