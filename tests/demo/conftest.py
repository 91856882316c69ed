"""A demo small enough to run many times."""

import argparse
import functools
import json

import pytest

from tilejax.demo import run
from tilejax.demo.model import Size

SMALL = functools.partial(Size, width=16, heads=2, layers=1, length=16)


@pytest.fixture
def demo(whole_demo, monkeypatch):
    """The demo without what it says before and after the training."""
    monkeypatch.setattr(run, "_compare", lambda *given: None)
    monkeypatch.setattr(run, "_report", lambda *given: 0)
    return whole_demo


@pytest.fixture
def whole_demo(tmp_path, monkeypatch):
    """Run the demo with a small model; `whole_demo.losses()` are those in its file."""
    monkeypatch.setattr(run, "Size", SMALL)
    monkeypatch.setattr(run, "ROWS", 2)

    class Demo:
        path = tmp_path / "folder" / "demo.checkpoint"

        def __call__(self, steps: int, fresh: bool = False, path=None) -> int:
            given = argparse.Namespace(
                steps=steps, checkpoint=str(path or self.path), fresh=fresh
            )
            return run.run(given)

        def losses(self, path=None) -> list[float]:
            head = (path or self.path).read_bytes().partition(b"\n")[0]
            return json.loads(head)["about"]["losses"]

    return Demo()
