"""The table of targets: by name, by alias, and by the device at hand."""

import difflib
import functools
import re
from typing import Any

import jax

from tilejax.errors import DeclarationError, TargetError
from tilejax.targets import ascend, gpu, tpu
from tilejax.targets.cpu import cpu_record
from tilejax.targets.host import read_host
from tilejax.targets.records import Target

_RECORDS: dict[str, Target] = {}

# What people call them; keys as `_plain` leaves them.
_ALIASES = {
    "host": "cpu",
    "gpua10080gb": "gpu:a100",
    "sm80": "gpu:a100",
    "sm90": "gpu:h100",
    "sm90a": "gpu:h100",
    "sm100": "gpu:b200",
    "sm100a": "gpu:b200",
    "gfx942": "gpu:mi300x",
    "tpuv5lite": "tpu:v5e",
    "tpuv5": "tpu:v5p",
    "tpuv6lite": "tpu:v6e",
    "trillium": "tpu:v6e",
    "ironwood": "tpu:tpu7x",
    "tpu7x": "tpu:tpu7x",
    "tpuv7x": "tpu:tpu7x",
    "tpu7": "tpu:tpu7x",
    "ascend9109382": "ascend:910c",
    "ascend950pr9599": "ascend:950pr",
}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def register(record: Target) -> Target:
    """Add a target to the table.

    **Arguments:**

    - `record`: A `Target` whose name is `kind` or `kind:model`.

    **Returns:**

    The record.

    **Raises:**

    `tilejax.errors.DeclarationError` if the name is taken or is not of that form.
    """
    if not re.fullmatch(rf"{record.kind}(:[a-z0-9][a-z0-9_.-]*)?", record.name):
        raise DeclarationError(
            f"target name {record.name!r} must be {record.kind!r} or "
            f"'{record.kind}:model', in lower case"
        )
    # the host's own record is made on demand, so it is not in the table
    if record.name == "cpu" or record.name in _RECORDS:
        raise DeclarationError(
            f"target {record.name!r} is registered already; give the new record "
            "another name"
        )
    _RECORDS[record.name] = record
    return record


def names() -> tuple[str, ...]:
    """Return the names of all targets, the host's CPU first."""
    return ("cpu", *_RECORDS)


def get(name: str | Target) -> Target:
    """Return a target by name.

    **Arguments:**

    - `name`: A name ("tpu:v5e"), a model that only one kind has ("v5e"), an alias
      ("trillium", "sm_90a"), in any case; "cpu" is the host. A record is itself.

    **Returns:**

    The record.

    **Raises:**

    `tilejax.errors.TargetError` if there is no such target, with the names there are.

    Example:

    >>> get("h100").platform
    'cuda'
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise TargetError(
            f"a target is a name or a Target record, not {type(name).__name__}; "
            f"known: {', '.join(names())}"
        )
    found = _names_by_alias().get(_plain(name))
    if found is not None:
        return _host() if found == "cpu" else _RECORDS[found]
    kinds = [record for record in _RECORDS if record.startswith(f"{name.lower()}:")]
    if kinds:
        raise TargetError(f"target {name!r} is a family; say which: {', '.join(kinds)}")
    close = difflib.get_close_matches(_plain(name), _names_by_alias(), n=1, cutoff=0.6)
    hint = f"; did you mean {_names_by_alias()[close[0]]!r}?" if close else ""
    raise TargetError(
        f"unknown target {name!r}{hint} Known targets: {', '.join(names())}"
        if hint
        else f"unknown target {name!r}; known targets: {', '.join(names())}"
    )


def for_platform(name: str, platform: str, operation: str) -> Target:
    """Return a target by name, if programs for `platform` are for it.

    **Raises:**

    `tilejax.errors.TargetError` if there is no such target or it is of another
    platform; the message names `operation`.
    """
    record = get(name)
    if record.platform != platform:
        raise TargetError(
            f"{operation}: the target is {name} (platform {record.platform}), but the "
            f"program is lowered for {platform}; lower it for that platform "
            f"(.trace(...).lower(lowering_platforms=({record.platform!r},))) or leave "
            "the target out"
        )
    return record


def _names_by_alias() -> dict[str, str]:
    # a bare model counts only where one kind alone has it
    models: dict[str, list[str]] = {}
    for name in names():
        models.setdefault(_plain(name.rpartition(":")[2]), []).append(name)
    found = {model: owners[0] for model, owners in models.items() if len(owners) == 1}
    found.update({alias: name for alias, name in _ALIASES.items() if name in names()})
    found.update({_plain(name): name for name in names()})
    return found


def detect(device: Any = None) -> Target:
    """Return the target of a device.

    **Arguments:**

    - `device`: A JAX device; the first one if not given.

    **Returns:**

    The record whose `device_kinds` name the device; for a CPU the host's, read once.

    **Raises:**

    `tilejax.errors.TargetError` if no record names the device.

    Example:

    >>> import jax
    >>> detect(jax.devices("cpu")[0]).kind
    'cpu'
    """
    device = jax.devices()[0] if device is None else device
    if device.platform == "cpu":
        return _host()
    wanted = _plain(device.device_kind)
    for record in _RECORDS.values():
        if wanted in map(_plain, record.device_kinds):
            return record
    raise TargetError(
        f"no target describes the {device.platform} device {device.device_kind!r}; "
        f"give target= one of {', '.join(names())}, or register a record for it"
    )


@functools.cache
def _host() -> Target:
    return cpu_record(read_host())


for _record in (*gpu.RECORDS, *tpu.RECORDS, *ascend.RECORDS):
    register(_record)
