"""`tilejax cache`: what the disk cache of compiled kernels holds, and emptying it."""

import argparse
import json

from tilejax.lowering.cpu import cache


def run(arguments: argparse.Namespace) -> int:
    """Print what the cache holds, or clear it; see `tilejax cache --help`."""
    if arguments.action == "clear":
        removed = cache.clear()
        print(f"removed {_bytes(removed)}")
        return 0
    found = cache.contents()
    if arguments.json:
        print(json.dumps(vars(found) | {"folder": str(found.folder or "")}))
        return 0
    if found.folder is None:
        print("turned off (TILEJAX_CACHE_DIR is empty)")
        return 0
    count = f"{found.objects} object{'' if found.objects == 1 else 's'}"
    aside = f", {found.set_aside} set aside as corrupt" if found.set_aside else ""
    print(found.folder)
    print(f"{count}, {_bytes(found.size)} of {_bytes(found.limit)}{aside}")
    return 0


def _bytes(number: int) -> str:
    """Spell a number of bytes.

    >>> _bytes(512), _bytes(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    size, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"
