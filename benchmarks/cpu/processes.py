"""Speaking with the process of an implementation."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent


class Process:
    """A worker; one that died is started again when it is next asked for something.

    **Arguments:**

    - `name`: of the implementation.
    - `environment`: what it has beside this process's own.
    """

    def __init__(self, name: str, environment: Mapping[str, str] | None = None):
        self.name = name
        self.environment = {**os.environ, **(environment or {})}
        self._running: subprocess.Popen | None = None

    def ask(self, do: str, **command) -> dict:
        """Send a command and wait for its answer."""
        running = self._started()
        assert running.stdin is not None and running.stdout is not None
        try:
            running.stdin.write(json.dumps({"do": do, **command}) + "\n")
            running.stdin.flush()
            line = running.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        code = running.wait()
        self.stop()
        return {"error": f"its process ended with code {code}"}

    def _started(self) -> subprocess.Popen:
        if self._running is None:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.cpu.worker", self.name],
                cwd=_ROOT,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._running

    def stop(self) -> None:
        """End the process, if there is one."""
        running, self._running = self._running, None
        if running is None:
            return
        assert running.stdin is not None and running.stdout is not None
        try:
            running.stdin.close()
        except BrokenPipeError:
            pass
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stdout.close()


@contextmanager
def processes(names) -> Iterator[dict[str, Process]]:
    """Have a process for each name, inside of the `with`."""
    found = {name: Process(name) for name in names}
    try:
        yield found
    finally:
        for each in found.values():
            each.stop()
