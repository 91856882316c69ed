"""An explanation as tables for a terminal."""

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from tilejax.report.explain import Explanation, KernelRecord, settings

_STEPS = (
    (1e18, "E"),
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
)


def render(found: Explanation, width: int = 150) -> str:
    """Return the tables as text of at most `width` columns."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=False, markup=False, highlight=False
    )
    console.print(f"{found.name} on {found.target}")
    if found.passes:
        console.print(_passes(found))
    if found.kernels:
        console.print(_kernels(found.kernels, width))
        console.print(_reasons(found.kernels))
        for line in _notes(found):
            console.print(line, soft_wrap=False)
    console.print(_summary(found))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)


def _passes(found: Explanation) -> Table:
    table = _table("Passes")
    for heading in ("pass", "equations", "did"):
        table.add_column(heading)
    for record in found.passes:
        did = "; ".join(f"{what} ({times})" for what, times in record.notes.items())
        table.add_row(record.name, f"{record.before} -> {record.after}", did)
    return table


@dataclass(frozen=True)
class _Column:
    """A column of the table of equations.

    **Arguments:**

    - `title`, `cell`: its heading, and the text for so many equal records.
    - `least`: to how many characters it may be cut; None for none.
    - `drop`: where the table is too narrow, the columns with the highest go first; the
      ones with 0 stay.
    """

    title: str
    cell: Callable[[KernelRecord, int], str]
    least: int | None = None
    drop: int = 0
    right: bool = False


_COLUMNS = (
    _Column("operation", lambda k, n: _operation(k, n)),
    _Column("runs as", lambda k, n: _runs_as(k), least=10),
    _Column("operands", lambda k, n: " ".join(k.shapes), least=16, drop=4),
    _Column("ops", lambda k, n: number(k.flops * n), right=True),
    _Column("bytes", lambda k, n: number(k.bytes * n), drop=1, right=True),
    _Column("op/B", lambda k, n: f"{k.intensity:.3g}", drop=2, right=True),
    _Column("modelled", lambda k, n: _modelled(k.seconds, k.at_least, n), right=True),
    _Column("bound", lambda k, n: k.bound or "?", drop=3),
    _Column("source", lambda k, n: _short(k.source)),
)
# Between columns.
_GAP = 3


def _kernels(kernels: Sequence[KernelRecord], width: int) -> Table:
    """The heavy equations; equal ones share a row, reasons stand below."""
    times = Counter(map(repr, kernels))  # a config of the user's may have no hash
    rows = {repr(k): k for k in kernels}
    cells = {c: [c.cell(k, times[key]) for key, k in rows.items()] for c in _COLUMNS}
    widths = _widths({c: max(map(len, (c.title, *cells[c]))) for c in cells}, width)
    table = _table("Heavy equations")
    for c, room in widths.items():
        table.add_column(
            c.title,
            justify="right" if c.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=room,
        )
    for row in zip(*(cells[c] for c in widths), strict=True):
        table.add_row(*row)
    return table


def _widths(natural: dict[_Column, int], width: int) -> dict[_Column, int]:
    """Which columns there is room for, and how much of it each gets."""
    least = {c: min(n, c.least or n) for c, n in natural.items()}
    for column in sorted(natural, key=lambda c: -c.drop):
        if column.drop and sum(least.values()) + _GAP * len(least) > width:
            del least[column]
    left = width - sum(least.values()) - _GAP * len(least)
    found = {}
    for column, room in least.items():
        more = max(0, min(natural[column] - room, left))
        found[column], left = room + more, left - more
    return found


def _reasons(kernels: Sequence[KernelRecord]) -> Table:
    """Why what runs, each reason once with the operations it holds for."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in kernels:
        names = found.setdefault((record.impl, record.reason), [])
        name = f"{record.primitive}{_part(record)}"
        if name not in names:
            names.append(name)
    table = _table("Reasons")
    for heading in ("runs as", "because", "operations"):
        table.add_column(heading)
    for (impl, why), names in found.items():
        table.add_row(impl, why, ", ".join(names))
    return table


def _notes(found: Explanation) -> list[str]:
    """How the times of the reasons differ from the table's, where there are any."""
    if all(k.kernel_seconds is None for k in found.kernels):
        return []
    notes = [
        "The reasons' times include arrays loaded again, launches and grid steps; the "
        "table's are the least for the work."
    ]
    assumed = dict.fromkeys(text for k in found.kernels for text in k.assumed)
    if assumed:
        notes.append(f"Unknown of the target and assumed: {', '.join(assumed)}.")
    return notes


def _operation(record: KernelRecord, times: int) -> str:
    runs = times * (record.times or 1)
    again = f" x{runs}" if runs > 1 else ""
    return f"{record.primitive}{_part(record)}{again}" + " x?" * (record.times is None)


def _part(record: KernelRecord) -> str:
    return "" if record.part == "forward" else f" {record.part}"


def _runs_as(record: KernelRecord) -> str:
    if record.config is None:
        return record.impl
    pairs = settings(record.config).items()
    tile = " ".join(f"{name}={value}" if name else str(value) for name, value in pairs)
    return f"{record.impl} {tile}"


def _summary(found: Explanation) -> str:
    flops = sum(k.flops for k in found.kernels)
    moved = sum(k.bytes for k in found.kernels)
    least = sum(k.at_least for k in found.kernels)
    return (
        f"together {number(flops)} operations, {number(moved)} bytes, "
        f"modelled {_modelled(found.seconds, least, 1)}"
    )


def _modelled(seconds: float | None, at_least: float, times: int) -> str:
    """A time, or what it takes at least where a figure of the target is unknown."""
    if seconds is None:
        return f">= {duration(at_least * times)}"
    return duration(seconds * times)


def number(value: float) -> str:
    """Return a count with a decimal prefix.

    >>> number(268435456)
    '268M'
    """
    value = float(f"{value:.3g}")  # first, so that 999,999 is 1M
    step, letter = next((s for s in _STEPS if value >= s[0]), (1.0, ""))
    return f"{value / step:.4g}{letter}"


def duration(seconds: float) -> str:
    """Return a time with its unit.

    >>> duration(1.5e-5)
    '15 us'
    """
    seconds = float(f"{seconds:.3g}")
    steps = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    step, unit = next((s for s in steps if seconds >= s[0]), (1e-9, "ns"))
    return f"{seconds / step:.4g} {unit}"


def _short(source: str | None) -> str:
    return "" if source is None else source.rsplit("/", 1)[-1].split(" ")[0]
