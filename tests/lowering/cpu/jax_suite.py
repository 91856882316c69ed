"""Run JAX's own Pallas tests, unmodified, against compiled kernels.

    python tests/lowering/cpu/jax_suite.py CHECKOUT [FILE ...] [--json OUT]
        [--against tests/lowering/cpu/jax_suite_passing.txt]

CHECKOUT is a folder of JAX's repository at the version that is installed. Each test
file is run twice, in processes of its own: interpreted, as it is, and with every call
that says `interpret=True` compiled. Of the tests that pass interpreted, the ones that
pass compiled are counted; what `UnsupportedKernel` refuses by name is listed apart.

Some tests ask for what only the interpreter gives, and fail by design: that indices out
of bounds are clamped, that a block past the array's end reads NaN, that sums and
functions have XLA's very last bit. Integers of 2 and 4 bits are refused.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(HERE)]

import jax_suite_plugin as plugin  # noqa: E402

FILES = (
    "pallas_test.py",
    "ops_test.py",
    "indexing_test.py",
    "pallas_vmap_test.py",
    "pallas_shape_poly_test.py",
    "pallas_error_handling_test.py",
    "einshape_test.py",
    "gpu_ops_test.py",
    "gpu_attention_test.py",
    "gpu_paged_attention_test.py",
    "triton_pallas_test.py",
    "tpu_ops_test.py",
    "tpu_pallas_test.py",
    "tpu_pallas_pipeline_test.py",
    "tpu_gmm_test.py",
    "tpu_splash_attention_kernel_test.py",
    "tpu_fusible_matmul_test.py",
)
"""The test files that hold tests which run on a CPU."""


def run_file(
    path: Path, *, native: bool, limit: float, only: set[str] | None = None
) -> dict[str, dict]:
    """Run the tests of a file; start again after each one that ends the process.

    **Arguments:**

    - `limit`: the seconds that a test may take.
    - `only`: the names of the tests to run; None for all.

    **Returns:** for each test's name its outcome and what is known of it.
    """
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        log, done = Path(folder, "log"), Path(folder, "done")
        wanted = Path(folder, "only")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
            "JAX_PLATFORMS": "cpu",
            plugin.CHECKOUT: str(path.resolve().parents[2]),
            plugin.LOG: str(log),
            plugin.DONE: str(done),
            plugin.LIMIT: str(limit),
            plugin.NATIVE: "1" if native else "",
        }
        if only is not None:
            wanted.write_text("\n".join(sorted(only)))
            environment[plugin.ONLY] = str(wanted)
        while True:
            done.write_text("\n".join(found))
            log.write_text("")
            ended = subprocess.run(
                [*PYTEST, path.name],
                cwd=path.parent,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
            )
            running = _read(log, found)
            if running is None:
                if ended.returncode in (2, 3, 4):
                    output = (ended.stdout + ended.stderr)[-2000:]
                    found[f"{path.name}::"] = {"outcome": "failed", "message": output}
                return found
            what = _ending(ended)
            found[running] = {"outcome": "failed", "message": what, "calls": 1}


PYTEST = (
    *(sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=1000000"),
    *(
        "-p",
        "no:cacheprovider",
        "-p",
        "jax_suite_plugin",
        "--rootdir",
        ".",
        "--tb=line",
    ),
    *("-c", os.devnull),
)


def _read(log: Path, found: dict[str, dict]) -> str | None:
    """Add what a log says to what is found; return the test that did not end."""
    running = None
    for line in log.read_text().splitlines():
        record = json.loads(line)
        if "start" in record:
            running = record["start"]
            continue
        name = record.pop("test")
        if found.get(name, {}).get("outcome") not in ("failed", "unsupported"):
            found[name] = record
        running = None
    return running


def _ending(ended: subprocess.CompletedProcess) -> str:
    if "Timeout" in ended.stderr:
        return "the test took too long"
    return f"the process ended with {ended.returncode}: {ended.stderr[-600:]}"


def compare(baseline: dict, native: dict) -> dict[str, list[str]]:
    """Sort the tests that pass interpreted by how they end compiled."""
    groups: dict[str, list[str]] = {}
    for name, record in baseline.items():
        if record["outcome"] != "passed":
            continue
        outcome = native.get(name, {"outcome": "missing"})["outcome"]
        groups.setdefault(outcome, []).append(name)
    return groups


def summary(groups: dict[str, list[str]], native: dict) -> str:
    """Put the counts in a line."""
    counts = Counter({k: len(v) for k, v in groups.items()})
    total, passed = sum(counts.values()), counts["passed"]
    calling = [n for g in groups.values() for n in g if native.get(n, {}).get("calls")]
    right = [n for n in groups.get("passed", ()) if native[n].get("calls")]
    share = f"{100 * passed / total:.1f} %" if total else "-"
    share_calling = f"{100 * len(right) / len(calling):.1f} %" if calling else "-"
    return (
        f"{total} pass interpreted; compiled: {passed} passed ({share}), "
        f"{counts['unsupported']} unsupported, "
        f"{total - passed - counts['unsupported']} failed; "
        f"with a compiled call: {len(right)} of {len(calling)} ({share_calling})"
    )


def read_passing(path: Path) -> tuple[str, list[str]]:
    """Read a committed list: the JAX version of its first line, and the names."""
    first, *names = path.read_text().splitlines()
    return first.removeprefix("# jax "), [n for n in names if not n.startswith("#")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="JAX's Pallas tests, compiled")
    parser.add_argument("checkout", type=Path, help="a folder of JAX's repository")
    parser.add_argument("files", nargs="*", default=FILES, help="test files to run")
    parser.add_argument("--limit", type=float, default=120, help="seconds a test")
    parser.add_argument("--json", type=Path, help="where to write all outcomes")
    parser.add_argument("--baseline", type=Path, help="outcomes of an earlier --json")
    parser.add_argument("--interpreted", action="store_true", help="stop after that")
    parser.add_argument("--only", help="run names that hold this text")
    parser.add_argument("--again", action="store_true", help="run what did not pass")
    parser.add_argument("--passing", type=Path, help="where to write passing names")
    parser.add_argument("--against", type=Path, help="a list of names that must pass")
    parser.add_argument("--list", action="store_true", help="print messages")
    return parser


def main() -> int:
    """Run the files; return 1 if a name of the list does not pass."""
    options = _parser().parse_args()
    known = json.loads(options.baseline.read_text()) if options.baseline else {}
    results: dict[str, dict] = dict(known)
    for name in options.files:
        results[name] = _run(name, known.get(name), options)
        _print(name, results[name], options.list)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    merged = {
        side: {k: v for r in results.values() for k, v in r[side].items()}
        for side in ("interpreted", "native")
    }
    groups = compare(merged["interpreted"], merged["native"])
    print(f"all: {summary(groups, merged['native'])}")
    passing = sorted(groups.get("passed", ()))
    if options.passing:
        import jax

        lines = [f"# jax {jax.__version__}", f"# {summary(groups, merged['native'])}"]
        options.passing.write_text("\n".join([*lines, *passing]) + "\n")
    if options.against:
        ran = set(merged["native"])
        lost = sorted((set(read_passing(options.against)[1]) & ran) - set(passing))
        for name in lost:
            print(f"no longer passes: {name}")
        return int(bool(lost))
    return 0


def _run(name: str, known: dict | None, options) -> dict[str, dict]:
    path = options.checkout / "tests" / "pallas" / name
    limit = options.limit
    if known:
        baseline, native = known["interpreted"], dict(known["native"])
    else:
        baseline, native = run_file(path, native=False, limit=limit), {}
    wanted = {n for n, r in baseline.items() if r["outcome"] == "passed"}
    if options.only:
        wanted = {n for n in wanted if options.only in n}
    if options.again:
        wanted = {n for n in wanted if native.get(n, {}).get("outcome") != "passed"}
    if wanted and not options.interpreted:
        native |= run_file(path, native=True, limit=limit, only=wanted)
    return {"interpreted": baseline, "native": native}


def _print(name: str, result: dict, is_long: bool) -> None:
    native = result["native"]
    groups = compare(result["interpreted"], native)
    print(f"{name}: {summary(groups, native)}", flush=True)
    for outcome, names in groups.items():
        if outcome == "passed":
            continue
        for each in names:
            message = native.get(each, {}).get("message", "").split("\n")
            text = f"  {outcome}: {each}"
            print(f"{text}: {' '.join(message)[:300]}" if is_long else text)


if __name__ == "__main__":
    sys.exit(main())
