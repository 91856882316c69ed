"""The process of one implementation: commands come in and answers go out as lines.

    python -m benchmarks.cpu.worker NAME

- `{"do": "prepare", "case": {...}, "tiny": false}` makes a case ready and describes it;
- `{"do": "time", "calls": 3}` calls it so often, after once untimed: the median
  and the least of the seconds;
- `{"do": "compile", "cases": [...]}` times the compilation of kernels;
- `{"do": "forget"}` gives a case's memory back.

An answer is an object; one with `error` says why there is no other.
"""

import importlib
import json
import os
import statistics
import sys
import time
from typing import Any, TextIO

from benchmarks.cpu.cases import Case

SIDES = {
    "tilejax": ("ours", "Ours"),
    "jax": ("in_jax", "InJax"),
    "torch": ("in_torch", "InTorch"),
    "interpret": ("interpreted", "Interpreted"),
    "machine": ("machine", "Machine"),
}


class Worker:
    """Hold what is prepared, and answer commands."""

    def __init__(self, name: str):
        self.name = name
        self.prepared: Any = None

    def answer(self, command: dict) -> dict:
        """Carry a command out."""
        return getattr(self, f"_{command.pop('do')}")(**command)

    def _prepare(self, case: dict, tiny: bool) -> dict:
        self.prepared = None
        module, name = SIDES[self.name]
        side = getattr(importlib.import_module(f"benchmarks.cpu.{module}"), name)
        more = (tiny,) if self.name == "machine" else ()
        self.prepared = side(Case(**case), *more)
        return self.prepared.description()

    def _time(self, calls: int) -> dict:
        run = self.prepared
        run()  # caches hold what another process left there
        each = []
        for _ in range(calls):
            start = time.perf_counter()
            run()
            each.append(time.perf_counter() - start)
        return {"seconds": statistics.median(each), "least": min(each)}

    def _compile(self, cases: list[dict]) -> dict:
        from benchmarks.cpu.compile_times import compiled

        return {"seconds": compiled([Case(**each) for each in cases])}

    def _forget(self) -> dict:
        self.prepared = None
        return {}


def main() -> None:
    """Answer until there are no more commands."""
    worker, answers = Worker(sys.argv[1]), _answers()
    for line in sys.stdin:
        try:
            found = worker.answer(json.loads(line))
        except Exception as error:
            worker.prepared = None
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), file=answers, flush=True)


def _answers() -> TextIO:
    """The way back; whatever else is printed goes where errors go."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    main()
