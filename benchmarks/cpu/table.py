"""Results as a table for people: a row a family, dtype and kind of case."""

import json
from collections.abc import Iterable
from pathlib import Path

_HEAD = (
    "| case | dtype | times as fast as `jax.jit` | as the faster peer | of the limit |",
    "| --- | --- | --- | --- | --- |",
)


def table(path: Path) -> str:
    """Return the results in a file as Markdown; a range where there are several."""
    rows: dict[tuple[str, str], list[dict]] = {}
    found = list(map(json.loads, path.read_text().splitlines()))
    for line in found:
        if line["family"] in ("machine", "compile") or "error" in line:
            continue
        # Sizes come first in a name, and how it was done after them, if it matters.
        kind = [line["family"].replace("_", " "), *line["case"].split(", ")[1:]]
        kind = kind[: 1 if line["family"] in ("matvec", "depthwise_conv") else None]
        words = [w for w in kind if not w[0].isdigit()]
        rows.setdefault((", ".join(words), line["dtype"]), []).append(line)
    lines = [*_HEAD]
    for (what, dtype), lines_of_it in rows.items():
        cells = [
            _range(each.get(key) for each in lines_of_it)
            for key in ("ratio_jax", "ratio_peer", "of_limit")
        ]
        lines.append(f"| {' | '.join([what, dtype, *cells])} |")
    return "\n".join([*lines, *(_compiling(e) for e in found if "p95_s" in e)])


def _range(values: Iterable[float | None]) -> str:
    there = sorted({f"{v:.2f}" for v in values if v is not None}, key=float)
    return " to ".join(there[:: max(len(there) - 1, 1)]) or "-"


def _compiling(line: dict) -> str:
    if line["p95_s"] is None:
        return f"\nCompiling a kernel, {line['case']}: there was none."
    median, late = line["median_s"]["tilejax"], line["p95_s"]
    return (
        f"\nCompiling a kernel, {line['case']}: {1000 * median:.0f} ms, 95 % of "
        f"{line['kernels']} within {1000 * late:.0f} ms."
    )
