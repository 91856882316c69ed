"""A pytest plugin that `jax_suite.py` loads into the runs of JAX's own tests.

It writes a line of JSON when a test starts and one when it has ended, ends the process
when a test takes too long, and, if asked, has every `interpret=True` call compiled.
"""

import faulthandler
import importlib
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tilejax._jax import pallas
from tilejax.errors import UnsupportedKernel
from tilejax.lowering.cpu import rule
from tilejax.lowering.tile.verify import verify

LOG = "TILEJAX_SUITE_LOG"
"""The file that lines go to."""
NATIVE = "TILEJAX_SUITE_NATIVE"
"""Whether interpreted calls are compiled."""
DONE = "TILEJAX_SUITE_DONE"
"""A file of names of tests, one a line, that are not to be run again."""
LIMIT = "TILEJAX_SUITE_LIMIT"
"""The seconds that a test may take."""
CHECKOUT = "TILEJAX_SUITE_CHECKOUT"
"""The folder of JAX's repository: wheels lack some modules that only tests use."""
ONLY = "TILEJAX_SUITE_ONLY"
"""A file of names of tests, one a line: no others are run."""


class Suite:
    """Watches the tests of a run."""

    def __init__(self):
        self.log = open(os.environ[LOG], "a", buffering=1)
        self.limit = float(os.environ.get(LIMIT, "120"))
        self.calls = 0
        self.began = 0.0

    def compile_interpreted(self) -> None:
        """Have calls with `interpret=True` lowered to compiled kernels."""

        def lower(ctx, *operands, **params):
            self.calls += 1
            verify(rule.tile_program(params))
            return rule.lower(ctx, *operands, **params)

        pallas.on_cpu(lower, lambda: True, instead_of_interpreting=True)

    def write(self, **record) -> None:
        """Append a line."""
        self.log.write(json.dumps(record) + "\n")

    def pytest_collection_modifyitems(self, config, items) -> None:
        """Leave out what is done already."""
        done, only = _names(os.environ.get(DONE)), _names(os.environ.get(ONLY))
        if only:
            items[:] = [item for item in items if short(item.nodeid) in only]
        items[:] = [item for item in items if short(item.nodeid) not in done]

    def pytest_runtest_logstart(self, nodeid, location) -> None:
        """Start the watch."""
        self.calls, self.began = 0, time.monotonic()
        self.write(start=short(nodeid))
        faulthandler.dump_traceback_later(self.limit, exit=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Write how a test ended."""
        report = yield
        if report.when == "call" or report.outcome != "passed":
            error = call.excinfo.value if call.excinfo else None
            outcome = report.outcome
            if outcome == "failed" and is_unsupported(error):
                outcome = "unsupported"
            text = "" if error is None else f"{type(error).__name__}: {error}"
            self.write(
                test=short(item.nodeid),
                outcome=outcome,
                calls=self.calls,
                seconds=round(time.monotonic() - self.began, 2),
                message=text[:2000],
            )
        return report

    def pytest_runtest_logfinish(self, nodeid, location) -> None:
        """Stop the watch."""
        faulthandler.cancel_dump_traceback_later()


def short(nodeid: str) -> str:
    """Return a test's name from the name of its file on."""
    path, _, rest = nodeid.partition("::")
    return f"{path.rsplit('/', 1)[-1]}::{rest}"


def is_unsupported(error: BaseException | None) -> bool:
    """Tell whether an error, or what it came from, is a refused kernel."""
    while error is not None:
        if isinstance(error, UnsupportedKernel) or "UnsupportedKernel" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _names(path: str | None) -> set[str]:
    if not path:
        return set()
    with open(path) as lines:
        return {line.rstrip("\n") for line in lines}


class _Off:
    """A switch that tests of an older JAX turn, and a newer one has no more."""

    value = False

    def __call__(self, value: bool) -> nullcontext:
        return nullcontext()


def find_test_modules(checkout: Path) -> None:
    """Have modules that the installed JAX lacks imported from a checkout."""
    for name in ("jax._src", "jax._src.pallas", "jax._src.internal_test_util"):
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        package.__path__.append(str(checkout / name.replace(".", "/")))
    config: Any = importlib.import_module("jax._src.config")
    if not hasattr(config, "jax_pallas_use_mosaic_gpu"):
        config.jax_pallas_use_mosaic_gpu = _Off()


def pytest_configure(config) -> None:
    """Watch the run."""
    find_test_modules(Path(os.environ[CHECKOUT]))
    suite = Suite()
    if os.environ.get(NATIVE):
        suite.compile_interpreted()
    config.pluginmanager.register(suite)
