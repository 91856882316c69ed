"""Examples assert their own results and benchmarks run: each one is tried here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BENCHMARKS = sorted(
    path
    for path in (ROOT / "benchmarks").iterdir()
    if path.match("[!_]*.py") or (path / "__main__.py").exists()
)


def _run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES + BENCHMARKS, ids=lambda path: path.stem)
def test_the_script_runs_to_its_end(path):
    module = f"{path.parent.name}.{path.stem}"
    if path in EXAMPLES:
        assert "assert" in path.read_text(), f"{path} asserts nothing"
        _run("-m", module)
        return
    lines = _run("-m", module, "--tiny").splitlines()
    assert lines, f"{path} prints nothing"
    for line in lines:
        assert isinstance(json.loads(line), dict), line


def test_a_benchmark_that_does_not_exist_is_refused_with_the_ones_that_do():
    command = [sys.executable, "-m", "benchmarks", "no-such"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"there is {BENCHMARKS[0].stem}" in done.stderr
