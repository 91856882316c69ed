"""An explanation as tables for a terminal."""

import io
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tilejax.report.explain import Explanation, KernelRecord

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def render(found: Explanation, width: int = 140) -> str:
    """Return the tables as text of at most `width` columns."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    console.print(f"{found.name} on {found.target}")
    console.print(_passes(found))
    if found.kernels:
        console.print(_kernels(found.kernels))
    console.print(_summary(found))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _passes(found: Explanation) -> Table:
    table = Table("pass", "equations", "did", title="Passes", title_justify="left")
    for record in found.passes:
        did = "; ".join(f"{what} ({times})" for what, times in record.notes.items())
        table.add_row(record.name, f"{record.before} -> {record.after}", did)
    return table


def _kernels(kernels: Sequence[KernelRecord]) -> Table:
    table = Table(title="Heavy equations", title_justify="left")
    for name in ("operation", "runs as", "operands", "operations", "bytes", "op/B"):
        table.add_column(
            name, justify="right" if name in ("operations", "bytes", "op/B") else "left"
        )
    table.add_column("modelled", justify="right")
    table.add_column("bound")
    table.add_column("why")
    table.add_column("source", overflow="fold")
    for record, times in Counter(kernels).items():
        part = "" if record.part == "forward" else f" {record.part}"
        runs = times * (record.times or 1)
        again = f" x{runs}" if runs > 1 else ""
        again += " x?" if record.times is None else ""
        config = "" if record.config is None else f" {record.config}"
        table.add_row(
            f"{record.primitive}{part}{again}",
            record.impl + config,
            " ".join(record.shapes),
            number(record.flops * times),
            number(record.bytes * times),
            f"{record.intensity:.3g}",
            _modelled(record.seconds, record.at_least, times),
            record.bound or "?",
            record.reason,
            _short(record.source),
        )
    return table


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
