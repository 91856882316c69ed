"""Saving a run so that a kill loses nothing, and checking what is read back."""

import hashlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx

from tilejax.errors import CheckpointError

_MAGIC = "tilejax-demo-1"


def save(path: Path, state: Any, about: dict) -> None:
    """Write the arrays of `state`, under a temporary name first.

    **Arguments:**

    - `path`: where.
    - `state`: a pytree.
    - `about`: plain data to go with it.

    **Raises:** `CheckpointError` if it cannot be written; what was there stays.
    """
    body = io.BytesIO()
    eqx.tree_serialise_leaves(body, state)
    data = body.getvalue()
    head = {
        "magic": _MAGIC,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "about": about,
    }
    try:
        _write(path, json.dumps(head).encode() + b"\n" + data)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error}") from error


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_head(path: Path) -> tuple[dict, bytes]:
    """Read and check a checkpoint.

    **Returns:** what was said about it, and its arrays as bytes.

    **Raises:** `CheckpointError` if it is no checkpoint, truncated or damaged.
    """
    try:
        line, _, data = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    try:
        head = json.loads(line)
        magic, size, digest, about = (
            head[k] for k in ("magic", "bytes", "sha256", "about")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _bad(path, "it does not start as a checkpoint does") from error
    if magic != _MAGIC:
        raise _bad(path, f"it is of another kind, {magic!r}")
    if len(data) != size:
        raise _bad(path, f"it is truncated: {len(data)} of {size} bytes")
    if hashlib.sha256(data).hexdigest() != digest:
        raise _bad(path, "its contents do not match their checksum")
    return about, data


def restore(path: Path, data: bytes, like: Any) -> Any:
    """Return the state whose arrays `read_head` gave.

    **Arguments:**

    - `like`: a state of the same structure and shapes.

    **Raises:** `CheckpointError` if the arrays are others.
    """
    try:
        return eqx.tree_deserialise_leaves(io.BytesIO(data), like)
    except (RuntimeError, ValueError, TypeError, EOFError) as error:
        raise _bad(path, f"its arrays are of another model ({error})") from error


def _bad(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be used as a checkpoint: {why}. It was left as it is; delete "
        "it or start with --fresh"
    )
