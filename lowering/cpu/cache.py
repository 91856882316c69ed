"""Compiled objects on disk: found again by what they were made from.

A file holds a mark, a checksum and the object. It is written under another name and
renamed, so that readers see all of it or nothing, whoever is killed when. Whatever goes
wrong here costs a compilation and at most one warning, never a result.
"""

import hashlib
import os
import platform
import secrets
import threading
import time
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from tilejax.lowering.cpu.host import Host

_MARK = b"tilejax object 1\n"
_DIGEST = 32
_LIMIT = 2**30
_STALE = 3600.0


class CacheWarning(UserWarning):
    """The disk cache is out of order; programs run as they would without it."""


@dataclass(frozen=True)
class Contents:
    """What the disk cache holds.

    **Arguments:**

    - `folder`: where it is, None if it is turned off.
    - `objects`, `size`: how many there are, and their bytes.
    - `limit`: the bytes above which the least recently used are removed.
    - `set_aside`: files that were found corrupt.
    """

    folder: Path | None
    objects: int
    size: int
    limit: int
    set_aside: int


def folder() -> Path | None:
    """Return where objects are kept, None if they are not.

    The environment's `TILEJAX_CACHE_DIR` names another place than the platform's usual
    one; set but empty, it turns the cache off.
    """
    chosen = os.environ.get("TILEJAX_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) / "objects" if chosen else None
    try:
        return _platform_folder() / "tilejax" / "objects"
    except RuntimeError:  # nobody's home
        return None


def _platform_folder() -> Path:
    system = platform.system()
    if system == "Darwin":
        return Path.home() / "Library" / "Caches"
    if system == "Windows":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The standard says that a relative path is to be ignored.
    return Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"


def limit() -> int:
    """Return how many bytes may be kept: `TILEJAX_CACHE_BYTES`, else 1 GiB."""
    chosen = os.environ.get("TILEJAX_CACHE_BYTES", "")
    return int(chosen) if chosen.isdigit() else _LIMIT


def key(text: str, host: Host) -> str:
    """Return the name of a module's object: a hash of all that decides its bytes."""
    parts = [*_versions(), host.triple, host.cpu, *sorted(host.features), "", text]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    try:
        ours = metadata.version("tilejax")
    except metadata.PackageNotFoundError:  # run from a checkout
        ours = ""
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return (ours, llvmlite.__version__, llvm_version, _MARK.decode())


def read(name: str) -> bytes | None:
    """Return the object of a key, None if there is none that is whole."""
    place = _safe_folder(make=False)
    if place is None:
        return None
    path = place / name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(place, f"{path} cannot be read ({error.strerror})")
        return None
    start = len(_MARK) + _DIGEST
    if data[:start] != _MARK + hashlib.sha256(data[start:]).digest():
        _set_aside(path)
        return None
    try:
        os.utime(path)  # the time of last use, by which the oldest go
    except OSError:
        pass  # gone again, or another user's: it is read all the same
    return data[start:]


def write(name: str, data: bytes) -> None:
    """Keep the object of a key, and make room if there are too many."""
    place = _safe_folder(make=True)
    if place is None:
        return
    temporary = place / f"{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        try:
            _write_bytes(temporary, _MARK + hashlib.sha256(data).digest() + data)
            os.replace(temporary, place / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _evict(place)
    except OSError as error:
        _warn(place, f"{place} cannot be written ({error.strerror})")


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def contents() -> Contents:
    """Count what the cache holds."""
    place = folder()
    files = _files(place)
    objects = [size for _, size, path in files if not path.suffix]
    aside = sum(path.suffix == ".corrupt" for _, _, path in files)
    return Contents(place, len(objects), sum(objects), limit(), aside)


def clear() -> int:
    """Remove everything from the cache; return how many bytes that was."""
    removed = 0
    for _, size, path in _files(folder()):
        path.unlink(missing_ok=True)
        removed += size
    return removed


def _files(place: Path | None) -> list[tuple[float, int, Path]]:
    """List (time of last use, bytes, path), the least recently used first."""
    found = []
    try:
        paths = list(place.iterdir()) if place else []
    except OSError:
        return []
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:  # another process was faster
            continue
        # A folder that somebody else made here is none of the cache's business.
        if path.suffix in ("", ".tmp", ".corrupt") and path.is_file():
            found.append((status.st_mtime, status.st_size, path))
    return sorted(found)


def _evict(place: Path) -> None:
    files = _files(place)
    excess = sum(size for _, size, _ in files) - limit()
    # Down to nine tenths, so that not every write has to remove something.
    spare = excess + limit() // 10 if excess > 0 else 0
    for used, size, path in files:
        left_over = path.suffix == ".tmp"
        # A temporary file is somebody's work, unless it is too old for that.
        if left_over and time.time() - used < _STALE:
            continue
        if left_over or spare > 0:
            path.unlink(missing_ok=True)
            spare -= size


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.corrupt")
    try:
        os.replace(path, aside)
    except OSError:
        aside = path  # it will be overwritten
    warnings.warn(
        f"a compiled kernel in the cache is corrupt and is built anew; it was put "
        f"aside as {aside}",
        CacheWarning,
        stacklevel=2,
    )


def _safe_folder(*, make: bool) -> Path | None:
    """Return the folder if code may be loaded from it; made if that is wanted."""
    place = folder()
    if place is None:
        return None
    try:
        if make:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(place, f"{place} cannot be used ({error.strerror})")
        return None
    # What lies there is run, so nobody else may be able to put it there.
    if hasattr(os, "getuid") and (
        status.st_uid not in (0, os.getuid()) or status.st_mode & 0o002
    ):
        _warn(place, f"{place} can be written by other users")
        return None
    return place


_WARNED: set[Path] = set()
_WARNED_LOCK = threading.Lock()


def _warn(place: Path, reason: str) -> None:
    """Warn once a folder."""
    with _WARNED_LOCK:
        if place in _WARNED:
            return
        _WARNED.add(place)
    warnings.warn(
        f"compiled kernels are not kept on disk: {reason}. Set TILEJAX_CACHE_DIR to "
        "another folder, or to nothing to do without; `tilejax cache clear` makes room",
        CacheWarning,
        stacklevel=2,
    )
