"""Run benchmarks in processes of their own: all, or those named.

python -m benchmarks [name ...] [--tiny]
"""

import argparse
import subprocess
import sys
from pathlib import Path


def names() -> list[str]:
    """Return the names of all benchmarks."""
    paths = Path(__file__).parent.glob("[!_]*.py")
    return sorted(path.stem for path in paths)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(names()))
    parser.add_argument("--tiny", action="store_true", help="only see that they run")
    options = parser.parse_args()
    if unknown := sorted({*options.names} - {*names()}):
        parser.error(
            f"no benchmark {', '.join(unknown)}; there is {', '.join(names())}"
        )
    failed = 0
    for name in options.names or names():
        print(f"# {name}", file=sys.stderr)
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        failed |= subprocess.run([*command, *["--tiny"] * options.tiny]).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
