"""The disk cache of objects: hits, misses, and everything that can go wrong."""

import errno
import os
import threading
import time
import warnings
from pathlib import Path

import pytest

from tests.lowering.cpu.processes import run_python
from tests.lowering.cpu.steps import SUM_ROWS, module_text
from tilejax import cli
from tilejax.lowering.cpu import cache, compile, runtime
from tilejax.lowering.cpu.cache import CacheWarning
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import NAMED, detect

_NAME = "0" * 64


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TILEJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_WARNED", set())
    return tmp_path / "objects"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_again(folder):
    assert cache.read(_NAME) is None
    cache.write(_NAME, b"an object")
    assert cache.read(_NAME) == b"an object"
    assert _names(folder) == [_NAME]


def test_a_key_follows_text_and_host():
    keys = {
        cache.key(text, host)
        for text in ("a", "b")
        for host in (detect(), NAMED["avx2"], NAMED["plain"])
    }
    assert len(keys) == 6
    assert cache.key("a", detect()) == cache.key("a", detect())


def test_a_cached_object_is_loaded_without_the_optimiser(monkeypatch):
    launch = Launch("cached", 1, 1, (4, 3), (True, False), arena_bytes=64)
    text = module_text(launch, SUM_ROWS.replace("COLUMNS", "3"), detect())
    cache.write(cache.key(text, detect()), compile.compile_object(text, detect()))
    runtime.start()
    monkeypatch.setattr(compile, "_optimised", None)
    before = time.perf_counter()
    assert compile.load(text, detect(), "handler")
    assert time.perf_counter() - before < 0.5  # 5 ms on an idle machine


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"\x7fELF" + data,
        lambda data: data.replace(b"object 1", b"object 0"),
    ],
)
def test_a_damaged_entry_is_set_aside_and_built_anew(folder, damage):
    cache.write(_NAME, b"an object")
    path = folder / _NAME
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(CacheWarning, match="corrupt"):
        assert cache.read(_NAME) is None
    assert _names(folder) == [f"{_NAME}.corrupt"]
    cache.write(_NAME, b"an object")
    assert cache.read(_NAME) == b"an object"
    assert cache.contents().set_aside == 1


def _age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def _refuse(number):
    def write(path, data):
        path.write_bytes(data[:5])
        raise OSError(number, os.strerror(number))

    return write


def test_a_full_disk_warns_once_and_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(cache, "_write_bytes", _refuse(errno.ENOSPC))
    with pytest.warns(CacheWarning, match=r"No space left.*TILEJAX_CACHE_DIR"):
        cache.write(_NAME, b"an object")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write(_NAME, b"an object")
    assert _names(folder) == []
    assert cache.read(_NAME) is None


def test_a_kernel_runs_when_the_disk_is_full(monkeypatch):
    runtime.start()
    monkeypatch.setattr(cache, "_write_bytes", _refuse(errno.ENOSPC))
    launch = Launch("full", 1, 1, (5, 3), (True, False), arena_bytes=64)
    text = module_text(launch, SUM_ROWS.replace("COLUMNS", "3"), detect())
    with pytest.warns(CacheWarning, match="No space left"):
        assert compile.load(text, detect(), "handler")


def test_a_folder_that_cannot_be_made_warns_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TILEJAX_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert cache.read(_NAME) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write(_NAME, b"an object")
        assert cache.read(_NAME) is None


def test_code_is_not_loaded_from_where_others_may_write(folder):
    cache.write(_NAME, b"an object")
    folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="other users"):
        assert cache.read(_NAME) is None


def test_an_empty_setting_turns_the_cache_off(monkeypatch):
    monkeypatch.setenv("TILEJAX_CACHE_DIR", "")
    cache.write(_NAME, b"an object")
    assert cache.read(_NAME) is None
    assert cache.contents().folder is None


def test_without_a_setting_the_users_cache_folder_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("TILEJAX_CACHE_DIR")
    monkeypatch.setattr(cache.platform, "system", lambda: "Linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/tilejax/objects")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache/tilejax/objects"
    monkeypatch.setattr(cache.platform, "system", lambda: "Darwin")
    assert cache.folder() == tmp_path / "Library/Caches/tilejax/objects"


def test_the_least_recently_used_make_room(folder, monkeypatch):
    monkeypatch.setenv("TILEJAX_CACHE_BYTES", "1000")
    names = [f"{k:064d}" for k in range(6)]
    for age, name in enumerate(names[:5]):
        cache.write(name, bytes(100))
        _age(folder / name, 100 - age)
    assert len(_names(folder)) == 5
    assert cache.read(names[0])  # the oldest is now the latest used
    monkeypatch.setenv("TILEJAX_CACHE_BYTES", "700")
    cache.write(names[5], bytes(100))
    assert set(_names(folder)) == {names[0], *names[4:], names[3]}
    assert cache.contents().size <= 700


def test_only_old_temporary_files_are_removed(folder):
    cache.write(_NAME, b"an object")
    fresh, old = folder / "a.1-x.tmp", folder / "b.1-x.tmp"
    for path in (fresh, old):
        path.write_bytes(b"half")
    _age(old, 7200)
    cache.write("1" * 64, b"another")
    assert _names(folder) == [_NAME, "1" * 64, fresh.name]


_KILLED = """
import os, signal, warnings
from tilejax.lowering.cpu import cache
def die_half_way(path, data):
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
cache._write_bytes = die_half_way
warnings.simplefilter("ignore")  # JAX's at a fork
if os.fork() == 0:
    cache.write("0" * 64, b"an object" * 1000)
pid, status = os.wait()
assert os.WTERMSIG(status) == signal.SIGKILL
assert cache.read("0" * 64) is None
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to kill")
def test_a_kill_in_the_middle_of_a_write_loses_nothing(folder):
    run_python(_KILLED)
    assert cache.read(_NAME) is None
    assert [path.suffix for path in folder.iterdir()] == [".tmp"]
    cache.write(_NAME, b"an object")
    assert cache.read(_NAME) == b"an object"


def test_many_writers_and_readers_see_whole_objects(monkeypatch):
    """Evicting all the while; a reader sees all of an object or none of it."""
    monkeypatch.setenv("TILEJAX_CACHE_BYTES", "5000")
    seen = []

    def work(seed):
        for k in range(60):
            name = f"{(k + seed) % 7:064d}"
            data = cache.read(name)
            seen.append(data)
            cache.write(name, name.encode() * 20)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [data for data in seen if data is not None]
    assert found
    assert all(len(data) == 1280 and data == data[:64] * 20 for data in found)


def test_the_command_counts_and_clears(folder, capsys):
    cache.write(_NAME, b"an object")
    (folder / "1.corrupt").write_bytes(b"x")
    assert cli.main(["cache", "info"]) == 0
    text = capsys.readouterr().out
    assert str(folder) in text
    assert "1 object" in text
    assert "1 set aside" in text
    assert cli.main(["cache", "info", "--json"]) == 0
    assert '"objects": 1' in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert "removed" in capsys.readouterr().out
    assert _names(folder) == []
    assert cli.main(["cache", "clear"]) == 0


def test_the_command_says_when_there_is_no_cache(monkeypatch, capsys):
    monkeypatch.setenv("TILEJAX_CACHE_DIR", "")
    assert cli.main(["cache", "info"]) == 0
    assert "turned off" in capsys.readouterr().out
