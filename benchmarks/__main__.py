"""Run benchmarks in processes of their own: all, or those named.

python -m benchmarks [name ...] [--tiny]
python -m benchmarks cpu --help

A single one may be given options of its own.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def names() -> list[str]:
    """Return the names of all benchmarks: scripts, and folders of several."""
    here = Path(__file__).parent
    scripts = [path.stem for path in here.glob("[!_]*.py")]
    return sorted(scripts + [path.parent.name for path in here.glob("*/__main__.py")])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", add_help=False)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(names()))
    parser.add_argument("--tiny", action="store_true", help="only see that they run")
    options, others = parser.parse_known_args()
    if unknown := sorted({*options.names} - {*names()}):
        parser.error(
            f"no benchmark {', '.join(unknown)}; there is {', '.join(names())}"
        )
    if others and len(options.names) != 1:
        if {*others} <= {"-h", "--help"}:
            parser.print_help()
            return 0
        parser.error(f"{' '.join(others)}: name the benchmark that this is for")
    failed = 0
    for name in options.names or names():
        print(f"# {name}", file=sys.stderr)
        command = [sys.executable, "-m", f"benchmarks.{name}", *others]
        failed |= subprocess.run([*command, *["--tiny"] * options.tiny]).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
