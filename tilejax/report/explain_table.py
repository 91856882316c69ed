"""An explanation as tables for a terminal."""

import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tilejax.report.explain import Explanation, KernelRecord

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    console.print(_summary(found))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _passes(found: Explanation) -> Table:
    table = Table("pass", "equations", "did", title="Passes", title_justify="left")
    for record in found.passes:
        did = "; ".join(f"{what} ({times})" for what, times in record.notes.items())
        table.add_row(record.name, f"{record.before} -> {record.after}", did)
    return table


@dataclass(frozen=True)
class _Column:
    """A column: its heading, its cell, and the least width of a table that has it."""

    title: str
    cell: Callable[[KernelRecord, int], str]
    least: int = 0
    right: bool = False


_COLUMNS = (
    _Column("operation", lambda k, n: _operation(k, n)),
    _Column("runs as", lambda k, n: _runs_as(k)),
    _Column("operands", lambda k, n: _cut(" ".join(k.shapes)), least=100),
    _Column("operations", lambda k, n: number(k.flops * n), right=True),
    _Column("bytes", lambda k, n: number(k.bytes * n), right=True),
    _Column("op/B", lambda k, n: f"{k.intensity:.3g}", least=90, right=True),
    _Column("modelled", lambda k, n: _modelled(k.seconds, k.at_least, n), right=True),
    _Column("bound", lambda k, n: k.bound or "?", least=120),
    _Column("source", lambda k, n: _short(k.source)),
)


def _kernels(kernels: Sequence[KernelRecord], width: int) -> Table:
    """The heavy equations; equal ones share a row, reasons stand below."""
    table = Table(title="Heavy equations", title_justify="left")
    columns = [c for c in _COLUMNS if width >= c.least]
    for c in columns:
        table.add_column(
            c.title,
            justify="right" if c.right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for record, times in Counter(kernels).items():
        table.add_row(*(c.cell(record, times) for c in columns))
    return table


def _reasons(kernels: Sequence[KernelRecord]) -> str:
    """Why what runs, each reason once with the operations it holds for."""
    found: dict[str, list[str]] = {}
    for record in kernels:
        names = found.setdefault(f"{record.impl}: {record.reason}", [])
        name = f"{record.primitive}{_part(record)}"
        if name not in names:
            names.append(name)
    return "\n".join(f"{why} ({', '.join(names)})" for why, names in found.items())


def _operation(record: KernelRecord, times: int) -> str:
    runs = times * (record.times or 1)
    again = f" x{runs}" if runs > 1 else ""
    return f"{record.primitive}{_part(record)}{again}" + " x?" * (record.times is None)


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _part(record: KernelRecord) -> str:
    return "" if record.part == "forward" else f" {record.part}"


def _runs_as(record: KernelRecord) -> str:
    if record.config is None:
        return record.impl
    tile = " ".join(f"{name}={value}" for name, value in vars(record.config).items())
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
    for step, letter in _STEPS:
        if value >= step:
            return f"{value / step:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time with its unit.

    >>> duration(1.5e-5)
    '15 us'
    """
    for step, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= step:
            return f"{seconds / step:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _short(source: str | None) -> str:
    return "" if source is None else source.rsplit("/", 1)[-1].split(" ")[0]
