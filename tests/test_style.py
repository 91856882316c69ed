"""The rules of the source tree that no linter knows.

Each rule is a function from one parsed file to its faults, so that the tests at the
end can show it a planted fault; the first test runs them all over the tree.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).parent.parent
PACKAGE = ("tilejax", "lowering", "primitives")
FOLDERS = (*PACKAGE, "tests", "examples", "benchmarks", ".ci")
MAX_LINES = 400

# An import goes to an earlier row or stays inside its own folder.
LAYERS = (
    ("errors",),
    ("_jax",),
    ("options",),
    ("targets",),
    ("ir",),
    ("primitives",),
    ("ops", "lowering", "passes"),
    ("tune", "profile"),
    ("front",),
    ("report",),
    ("demo",),
    ("cli",),
)
LAYER = {name: row for row, names in enumerate(LAYERS) for name in names}

# Names that say nothing, so that strangers gather behind them.
VAGUE = ("utils", "util", "common", "misc", "helpers", "helper")

PRIVATE_JAX = re.compile(r"jax\.(_(?!_)\w+|core|extend|interpreters)(\.|$)")


@dataclass(frozen=True)
class Source:
    """A file: its path from the root (never through a link), and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def in_package(self) -> bool:
        return self.path.startswith(tuple(f"{name}/" for name in PACKAGE))

    @property
    def part(self) -> str:
        """The folder or file of `tilejax` that the file belongs to, as in LAYERS."""
        inner = self.path.removeprefix("tilejax/")
        return inner.split("/")[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name that an import statement asks for; relative ones have dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{a.name}") for a in node.names)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def short_file(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > MAX_LINES:
        yield f"{source.path}: {lines} lines; split it (at most {MAX_LINES})"


def telling_name(source: Source) -> Iterator[str]:
    if Path(source.path).stem in VAGUE:
        yield f"{source.path}: name the file for what it holds"


def public_jax(source: Source) -> Iterator[str]:
    if source.path.startswith(("tilejax/_jax/", "tilejax/_jax.py")):
        return
    uses = list(_imports(source.tree))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            uses.append((node.lineno, _dotted(node)))
    private = {line: name for line, name in sorted(uses) if PRIVATE_JAX.match(name)}
    for line, name in private.items():
        yield f"{source.path}:{line}: {name} belongs in tilejax/_jax"


def absolute_imports(source: Source) -> Iterator[str]:
    for line, name in _imports(source.tree):
        if name.startswith((".", "lowering.", "primitives.")):
            yield f"{source.path}:{line}: import {name} by its full name, tilejax..."


def layered_imports(source: Source) -> Iterator[str]:
    if not source.in_package or source.path == "tilejax/__init__.py":
        return
    if source.part not in LAYER:
        yield f"{source.path}: {source.part!r} has no place in LAYERS"
        return
    for line, name in _imports(source.tree):
        if name.split(".")[0] != "tilejax":
            continue
        # `import tilejax` and `from tilejax import jit` ask for the whole package,
        # which comes after every layer.
        part = (*name.split("."), "")[1]
        if part == source.part or LAYER.get(part, 99) < LAYER[source.part]:
            continue
        yield f"{source.path}:{line}: {source.part} may not import {name}"


def declared_dependencies(source: Source) -> Iterator[str]:
    """Optional packages are imported inside the function that needs them."""
    if not source.in_package:
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {re.split(r"[^\w-]", text)[0] for text in project["dependencies"]}
    known |= {"tilejax", *sys.stdlib_module_names}
    for statement in source.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for line, name in _imports(statement):
                if name.split(".")[0] not in known:
                    yield f"{source.path}:{line}: {name} is not a dependency"


RULES = (
    short_file,
    telling_name,
    public_jax,
    absolute_imports,
    layered_imports,
    declared_dependencies,
)


@cache
def _sources() -> list[Source]:
    paths = [*ROOT.glob("*.py")]
    for folder in FOLDERS:
        # By the real names: a glob does not walk through the two links.
        paths.extend((ROOT / folder).rglob("*.py"))
    return [
        Source(path.relative_to(ROOT).as_posix(), path.read_text())
        for path in sorted(paths)
        if not any(part.is_symlink() for part in path.parents)
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule):
    sources = _sources()
    assert {source.path.split("/")[0] for source in sources} >= {*PACKAGE, "tests"}
    faults = [fault for source in sources for fault in rule(source)]
    assert not faults, "\n".join(faults)


PLANTED = [
    (short_file, "tests/test_a.py", "\n" * (MAX_LINES + 1)),
    (telling_name, "tilejax/ir/utils.py", ""),
    (public_jax, "lowering/rules.py", "from jax._src import core"),
    (public_jax, "lowering/rules.py", "from jax import core"),
    (public_jax, "primitives/op.py", "import jax.interpreters.mlir as mlir"),
    (public_jax, "primitives/op.py", "def f():\n  from jax.extend import core"),
    (public_jax, "tests/test_a.py", "import jax\njax.core.eval_jaxpr"),
    (absolute_imports, "lowering/rules.py", "from .kernels import matmul"),
    (absolute_imports, "tests/test_a.py", "from lowering.rules import rule"),
    (layered_imports, "tilejax/ir/walk.py", "from tilejax.passes.cse import x"),
    (layered_imports, "tilejax/targets/cpu.py", "from tilejax.ir import walk"),
    (layered_imports, "tilejax/passes/cse.py", "from tilejax import front"),
    (layered_imports, "primitives/op.py", "def f():\n  import tilejax.cli"),
    (layered_imports, "lowering/rules.py", "import tilejax"),
    (layered_imports, "lowering/rules.py", "from tilejax import jit"),
    (layered_imports, "tilejax/errors.py", "from tilejax.options import x"),
    (layered_imports, "tilejax/new/a.py", ""),
    (declared_dependencies, "tilejax/front/torch.py", "import torch"),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_a_planted_fault_is_refused(rule, path, text):
    assert len(list(rule(Source(path, text)))) == 1


INNOCENT = [
    (short_file, "tests/test_a.py", "\n" * MAX_LINES),
    (public_jax, "tilejax/_jax/primitives.py", "from jax._src import core"),
    (
        public_jax,
        "lowering/rules.py",
        "import jax.experimental.pallas\njax.__version__",
    ),
    (absolute_imports, "lowering/rules.py", "from tilejax.primitives import op"),
    (layered_imports, "lowering/rules.py", "from tilejax.primitives.op import Op"),
    (layered_imports, "lowering/rules.py", "from tilejax.lowering.kernels import a"),
    (layered_imports, "tilejax/__init__.py", "from tilejax.cli import main"),
    (declared_dependencies, "tilejax/front/torch.py", "def f():\n  import torch"),
]


@pytest.mark.parametrize(("rule", "path", "text"), INNOCENT)
def test_what_the_rule_allows_passes(rule, path, text):
    assert not list(rule(Source(path, text)))
