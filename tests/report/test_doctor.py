"""The doctor sees what is there, what is not, and what is wrong."""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import pytest
from rich.console import Console

from tilejax import cli
from tilejax.report import doctor, toolchains
from tilejax.report.toolchains import Found, Toolchain, find

ANY = Toolchain("any", "adds x", "pip install 'any[x]=={jax}'", "MIT")


def _program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def _shown(diagnosis: doctor.Diagnosis, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    doctor.show(diagnosis, console)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_machine_that_runs_the_tests_is_healthy():
    diagnosis = doctor.diagnose()
    values = {finding.topic: finding.value for finding in diagnosis.findings}
    assert diagnosis.healthy
    assert values["JAX"] == jax.__version__
    assert values["Devices"] == "8 x cpu (target cpu)"
    assert re.match(r"\d+ usable, ", values["Cores"])


def test_json_says_what_the_tables_say(capsys):
    assert cli.main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert data["healthy"] is True
    for entry in data["toolchains"]:
        assert entry["name"] in text
        assert (entry["where"] is not None) == entry["present"]
        if not entry["present"]:
            assert entry["install"] in text
            assert entry["licence"] in text


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("0.10.1", False),
        ("0.10.2", True),
        ("0.11.2", True),
        ("0.12.0.1", True),
        ("0.12.1.dev20260101+abc", True),
        ("0.13.0", False),
        ("1.0", False),
    ],
)
def test_a_version_is_a_problem_exactly_outside_the_range(
    version, supported, monkeypatch, capsys
):
    monkeypatch.setattr(jax, "__version__", version)
    assert cli.main(["doctor"]) == (0 if supported else 1)
    text = capsys.readouterr().out
    assert ("PROBLEM" in text) != supported
    assert ('pip install "jax>=0.10.2,<0.13"' in text) != supported


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_a_python_outside_the_range_is_a_problem(version, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert not doctor.diagnose().healthy


@pytest.mark.checkout
def test_the_supported_ranges_are_those_of_the_package():
    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"]
    low, high = (".".join(map(str, version)) for version in doctor.JAX)
    assert f"jax>={low},<{high}" in project["dependencies"]
    assert f"jaxlib>={low},<{high}" in project["dependencies"]
    assert project["requires-python"] == ">=" + ".".join(map(str, doctor.PYTHON[0]))
    named = [c for c in project["classifiers"] if "Python :: 3." in c]
    assert len(named) == doctor.PYTHON[1][1] - doctor.PYTHON[0][1]


def test_a_platform_that_does_not_start_is_a_problem_and_no_crash():
    done = subprocess.run(
        [sys.executable, "-m", "tilejax.cli", "doctor", "--json"],
        env={**os.environ, "JAX_PLATFORMS": "no_such"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    (problem,) = [f["problem"] for f in data["findings"] if f["problem"]]
    assert "JAX_PLATFORMS='no_such'" in problem


def test_a_package_is_found_by_its_metadata():
    found = find(Toolchain("x", "", "", "", packages=("no-such-thing", "numpy")))
    assert found.where == "package numpy"
    assert found.version == toolchains.package_version("numpy")


@pytest.mark.parametrize(
    ("body", "version"),
    [
        ("echo 'Copyright 2005'; echo 'release 13.0, V13.0.88'", "13.0"),
        ("exit 3", None),
        (r"printf '\377\376'", None),
    ],
)
def test_a_program_on_path_is_found_whatever_it_answers(
    body, version, tmp_path, monkeypatch
):
    path = _program(tmp_path, "compile-x", body)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    toolchain = Toolchain("x", "", "", "", programs=("compile-x",))
    assert find(toolchain) == Found(toolchain, version, str(path))


def test_a_program_that_cannot_run_is_found_without_a_version(tmp_path, monkeypatch):
    path = tmp_path / "compile-x"
    path.write_bytes(b"\x7fELF not really")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchain = Toolchain("x", "", "", "", programs=("compile-x",))
    assert find(toolchain) == Found(toolchain, None, str(path))


def test_a_missing_toolchain_comes_with_its_unbroken_install_line():
    text = _shown(doctor.Diagnosis((), (Found(ANY),)), width=20)
    assert f"pip install 'any[x]=={jax.__version__}'\n" in text
    assert "any: MIT\n" in text


def test_a_present_toolchain_is_not_offered():
    text = _shown(doctor.Diagnosis((), (Found(ANY, "1.2", "package any"),)), width=80)
    assert "1.2" in text
    assert "missing" not in text


def test_every_toolchain_says_what_it_adds_how_to_get_it_and_its_terms():
    for toolchain in toolchains.TOOLCHAINS:
        assert toolchain.adds and toolchain.install and toolchain.licence
        assert toolchain.packages or toolchain.programs
