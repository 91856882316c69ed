"""The command `python -m benchmarks cpu`; its results are lines of JSON."""

import argparse
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from benchmarks.cpu import compile_times, rounds
from benchmarks.cpu.cases import FAMILIES, Case
from benchmarks.cpu.processes import processes
from benchmarks.cpu.table import table

_PEERS = ("jax", "torch")


def main() -> int:
    """Measure, and print; return 1 if something of ours failed."""
    options = _options()
    if options.table:
        print(table(options.table))
        return 0
    effort = rounds.FULL
    if options.quick or options.tiny:
        effort = rounds.TINY if options.tiny else rounds.QUICK
    failed = False
    for line in _lines(options, effort):
        text = json.dumps(line)
        print(text, flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(text + "\n")
        failed |= "error" in line
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks cpu")
    add = parser.add_argument
    known = (*FAMILIES, "compile")
    add("--against", default="jax,torch", help="of jax, torch; by default both")
    add("--only", default=",".join(known), help=f"families, of {', '.join(known)}")
    add("--match", default="", help="only cases with this in their name or dtype")
    add("--json", type=Path, metavar="FILE", help="write the lines there as well")
    add("--table", type=Path, metavar="FILE", help="measure nothing: sum a FILE up")
    add("--quick", action="store_true", help="a tenth of the time")
    add("--tiny", action="store_true", help="only see that it runs")
    options = parser.parse_args()
    for name, all_of_it in (("against", _PEERS), ("only", known)):
        given = list(filter(None, getattr(options, name).split(",")))
        if unknown := sorted({*given} - {*all_of_it}):
            parser.error(f"--{name} {unknown[0]}: there is {', '.join(all_of_it)}")
        setattr(options, name, given)
    if options.json:
        options.json.write_text("")
    return options


def _lines(options: argparse.Namespace, effort: rounds.Effort) -> Iterator[dict]:
    against = list(options.against)
    if "torch" in against and importlib.util.find_spec("torch") is None:
        against.remove("torch")
        what = "PyTorch is not installed, so its results are null: see the extra bench"
        print(f"# {what}", file=sys.stderr)
    yield _machine(against)
    cases = {
        family: [
            c for c in make(options.tiny) if options.match in f"{c.name} {c.dtype}"
        ]
        for family, make in FAMILIES.items()
        if family in options.only
    }
    with processes((rounds.OURS, rounds.MACHINE, "interpret", *against)) as sides:
        for case in (case for each in cases.values() for case in each):
            print(f"# {case.family} {case.name} {case.dtype}", file=sys.stderr)
            yield rounds.measure(case, sides, effort)
    if "compile" in options.only:
        kernels = _few(options.tiny)
        yield from compile_times.measure(kernels, 3 if effort is rounds.FULL else 1)


def _few(tiny: bool) -> list[Case]:
    """What is compiled to see how long that takes: every case, or one a family."""
    each = [list(make(tiny)) for make in FAMILIES.values()]
    return [case for cases in each for case in (cases[:1] if tiny else cases)]


def _machine(against: list[str]) -> dict:
    """The line that says what the others were measured on, and with."""
    from tilejax.targets.host import read_host

    host = read_host()
    packages = ("tilejax", "jax", "jaxlib", "llvmlite", "numpy", "torch")
    return {
        "family": "machine",
        "case": host.model,
        "cores": host.allowed,
        "caches": host.caches,
        "python": platform.python_version(),
        "against": against,
        "versions": {name: _version(name) for name in packages},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
