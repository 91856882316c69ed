"""Programs run in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_python(code: str, **settings: str) -> str:
    """Run a program under these settings of the environment; return what it printed."""
    path = [str(ROOT), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **settings},
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
