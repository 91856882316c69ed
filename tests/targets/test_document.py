"""The page of targets is what the records say."""

from pathlib import Path

import pytest

from tilejax import targets
from tilejax.targets.document import markdown, shown

PAGE = Path(__file__).parents[2] / "docs/targets.md"


@pytest.mark.checkout
def test_the_page_is_in_step_with_the_records():
    assert PAGE.read_text() == markdown(), (
        "run: python -m tilejax.targets.document > docs/targets.md"
    )


def test_the_page_has_every_figure_of_every_record():
    page = markdown()
    for name in targets.names()[1:]:
        _, _, section = page.partition(f"\n## `{name}`\n")
        section = section.partition("\n## ")[0]
        for path, value in targets.get(name).figures().items():
            assert f"| `{path}` | {shown(path, value)} |" in section


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("memories.vmem.bytes", 16 * 2**20, "16 MiB"),
        ("memories.hbm.bytes", 95 * 10**9, "95 GB"),
        ("memories.hbm.align", 512, "512 B"),
        ("memories.hbm.bandwidth", 3.35e12, "3.35 TB/s"),
        ("units.mxu.bfloat16", 197e12, "197 Tops/s"),
        ("units.mxu.tile", (8, 128, 128), "8 x 128 x 128"),
        ("limits.step_seconds", 3.5e-7, "0.35 us"),
        ("limits.threads", 1024, "1024"),
        ("limits.launch_seconds", None, "unknown"),
    ],
)
def test_figures_are_shown_with_their_unit(path, value, text):
    assert shown(path, value) == text
