"""A checkpoint is whole or refused, and saving loses nothing."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from tilejax.demo import checkpoint
from tilejax.errors import CheckpointError

STATE = {"a": jnp.arange(6.0).reshape(2, 3), "b": [jnp.int32(7), jnp.ones(3, bool)]}
ABOUT = {"losses": [0.1, 2.5]}
EMPTY = {"a": jnp.zeros((2, 3)), "b": [jnp.int32(0), jnp.zeros(3, bool)]}


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "new" / "run.checkpoint"
    checkpoint.save(found, STATE, ABOUT)
    return found


def test_what_is_saved_is_read_back(path):
    about, data = checkpoint.read_head(path)
    state = checkpoint.restore(path, data, EMPTY)
    assert about == ABOUT
    assert np.array_equal(state["a"], STATE["a"])
    assert state["b"][0] == 7 and state["b"][1].dtype == bool
    assert os.listdir(path.parent) == [path.name]


def damaged(whole: bytes) -> dict[str, bytes]:
    head, _, data = whole.partition(b"\n")
    flipped = bytearray(whole)
    flipped[-9] ^= 4
    other = json.dumps({**json.loads(head), "magic": "other"}).encode()
    return {
        "nothing": b"",
        "half a head": whole[: len(head) // 2],
        "a head alone": head,
        "truncated": whole[:-1],
        "too long": whole + b"x",
        "a flipped bit": bytes(flipped),
        "another kind": other + b"\n" + data,
        "another file": b"\x89PNG\r\n\x1a\n" + data,
        "a list": b"[1]\n" + data,
        "a number": b"3\n" + data,
    }


@pytest.mark.parametrize("case", damaged(b"{}\n0123456789"))
def test_a_file_is_refused_and_left_alone_that_is(case, path):
    content = damaged(path.read_bytes())[case]
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"cannot be used.*left as it is.*--fresh"
    ):
        checkpoint.read_head(path)
    assert path.read_bytes() == content


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            checkpoint.read_head(path)


OTHERS = {
    "another shape": {**EMPTY, "a": jnp.zeros((3, 2))},
    "another dtype": {**EMPTY, "a": jnp.zeros((2, 3), jnp.int32)},
    "more arrays": {**EMPTY, "c": jnp.zeros(9)},
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_arrays_of_another_model_are_refused_with(case, path):
    before = path.read_bytes()
    _, data = checkpoint.read_head(path)
    with pytest.raises(CheckpointError, match="another model"):
        checkpoint.restore(path, data, OTHERS[case])
    assert path.read_bytes() == before


@pytest.mark.parametrize("fails", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_old_one_and_nothing_else(
    fails, error, path, monkeypatch
):
    before = path.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(os, fails, fail)
    wanted = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        checkpoint.save(path, EMPTY, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        checkpoint.save(tmp_path / "file" / "run", STATE, ABOUT)
