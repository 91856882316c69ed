"""Every run starts with an empty disk cache of its own."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def objects_of_this_run(tmp_path_factory) -> Iterator[None]:
    before = os.environ.get("TILEJAX_CACHE_DIR")
    os.environ["TILEJAX_CACHE_DIR"] = str(tmp_path_factory.mktemp("objects"))
    yield
    del os.environ["TILEJAX_CACHE_DIR"]
    if before is not None:
        os.environ["TILEJAX_CACHE_DIR"] = before
