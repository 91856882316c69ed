"""The records as a page, `docs/targets.md`; `python -m tilejax.targets.document`."""

from tilejax.targets import ascend, gpu, tpu
from tilejax.targets.figures import shown
from tilejax.targets.records import Target

_INTRO = """\
# Targets

Written by `python -m tilejax.targets.document`; change the records, not this page.

A target is a record: `tilejax.targets.get("tpu:v5e")`. Rates are dense (no structured
sparsity), for the whole chip, a multiply-add counting as two operations. Bandwidths are
those of all instances together; sizes are of one instance. A figure that is not public
is unknown: the record holds `None`, `target.unknown()` lists it, and the cost model
says which one it lacks and gives no answer. To fill one in, with where it comes from:

    target = target.with_figure("memories.ram.bandwidth", 40e9, "measured")

`cpu` is the host: cores from affinity and CPU quota; caches, features and frequency
from the operating system; rates derived from them where the maker's optimisation guide
says how many multiply-adds a core starts in a cycle. Nothing is measured, so the
bandwidth of its memory is unknown.
"""


def markdown() -> str:
    """Return the page: a summary of all records, then each one's figures and sources.

    **Returns:**

    Markdown, ending in a newline.

    Example:

    >>> markdown().startswith("# Targets")
    True
    """
    records = (*gpu.RECORDS, *tpu.RECORDS, *ascend.RECORDS)
    rows = [_row("target", "cores", "memory", "bandwidth", "bfloat16", "block memory")]
    rows.append(_row(*["---"] * 6))
    for target in records:
        name, number = target.main.name, target.main.bytes
        rows.append(
            _row(
                f"`{target.name}`",
                shown("cores", target.cores),
                f"{shown('bytes', number)} {name}",
                shown("bandwidth", target.main.bandwidth),
                shown("rate", target.rate("bfloat16")),
                f"{shown('bytes', target.block_bytes)} {target.fast}",
            )
        )
    parts = [_INTRO, "\n".join(rows) + "\n", *map(_section, records), "## Sources\n"]
    # each vendor's file explains the names it gives its sources
    parts += [f"{module.__doc__}" for module in (gpu, tpu, ascend)]
    return "\n".join(parts)


def _section(target: Target) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in target.device_kinds)
    lines = [
        f"## `{target.name}`",
        "",
        f"JAX device kinds: {kinds}. JAX devices a chip: {target.devices}. "
        f"Blocks are staged in {target.fast}.",
        "",
        _row("figure", "value", "source"),
        _row(*["---"] * 3),
    ]
    for path, value in target.figures().items():
        source = "" if value is None else target.source(path)
        lines.append(_row(f"`{path}`", shown(path, value), source))
    return "\n".join(lines) + "\n"


def _row(*cells: str | None) -> str:
    return f"| {' | '.join(cell or '' for cell in cells)} |"


if __name__ == "__main__":
    print(markdown(), end="")
