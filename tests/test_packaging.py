"""What is built and installed is what lies in the tree, under one name."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).parent.parent
LINKED = ("lowering", "primitives")
PACKAGE = ("tilejax", *LINKED)
FOLDERS = (*PACKAGE, "tests", "examples", "benchmarks", ".ci")
FILES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "pyproject.toml",
    "setup.py",
)


def _files(top: Path, *folders: str) -> set[str]:
    """Paths from `top` of the files in the folders, without walking through links."""
    found = set()
    for folder in folders:
        for at, _, names in os.walk(top / folder):
            inside = Path(at).relative_to(top)
            found |= {str(inside / n) for n in names if not (Path(at) / n).is_symlink()}
    return found


def _build(source: Path, out: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds]
    done = subprocess.run(
        [*command, "--outdir", str(out), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _wheel_files(folder: Path) -> set[str]:
    (wheel,) = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the tree, links and all, in which building leaves its traces."""
    top = tmp_path_factory.mktemp("packaging") / "tree"
    top.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.py[cod]")
    for folder in FOLDERS:
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, top / folder, symlinks=True, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, top)
    return top


@pytest.fixture(scope="module")
def expected(tree) -> set[str]:
    """What a wheel should hold: the three folders, two of them inside the first."""
    inside = {f"tilejax/{name}" for name in _files(tree, *LINKED)}
    return _files(tree, "tilejax") | inside


@pytest.fixture(scope="module")
def built(tree, expected) -> Path:
    """A folder with an sdist, and the wheel that was built from that sdist."""
    out = tree.parent / "dist"
    _build(tree, out)
    return out


def test_the_sdist_holds_the_tree(tree, built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        members = {member.name for member in opened if member.isfile()}
    names = {name.split("/", 1)[1] for name in members}
    made = {"PKG-INFO", "setup.cfg"}
    names = {n for n in names if n not in made and not n.startswith("tilejax.egg-info")}
    assert names == _files(tree, *FOLDERS) | set(FILES)


def test_a_wheel_built_without_the_links_holds_the_package(built, expected):
    assert _wheel_files(built) == expected


def test_a_wheel_built_with_the_links_holds_the_package(tree, expected, tmp_path):
    _build(tree, tmp_path, "--wheel")
    assert _wheel_files(tmp_path) == expected


@pytest.mark.parametrize("name", LINKED)
def test_the_link_is_relative_and_resolves(name):
    link = ROOT / "tilejax" / name
    assert os.readlink(link) == f"../{name}"
    assert (link / "__init__.py").samefile(ROOT / name / "__init__.py")


@pytest.mark.parametrize("name", LINKED)
def test_a_linked_folder_under_its_bare_name_is_refused(name):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: this folder was imported as '{name}'" in done.stderr
    assert f"import it as 'tilejax.{name}'" in done.stderr


def test_the_oldest_llvmlite_is_tested_too():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (spec,) = [d for d in declared["project"]["dependencies"] if "llvmlite" in d]
    oldest = re.search(r">=([\d.]+)", spec)
    assert oldest and f"'llvmlite=={oldest[1]}.*'" in (ROOT / ".ci/run").read_text()
