"""The little of ELF files that is needed to see what an object wants."""

import struct
from collections.abc import Iterator

MACHINES = {62: "x86-64", 183: "aarch64"}

_SYMBOLS, _RELOCATIONS = 2, 4
_CALL_THROUGH_STUB = 4


def machine(data: bytes) -> str:
    """Return the CPU family that an object file is for, "" if it is not ELF."""
    if data[:4] != b"\x7fELF":
        return ""
    (number,) = struct.unpack_from("<H", data, 18)
    return MACHINES.get(number, str(number))


def undefined_symbols(data: bytes) -> list[str]:
    """Return the names that a 64-bit object file uses and does not define.

    **Arguments:**

    - `data`: the file's bytes; of another format than ELF, nothing is known.
    """
    return sorted({name for name in _undefined(data).values() if name})


def stub_calls(data: bytes) -> list[str]:
    """Return the undefined names that x86-64 code calls other than through a table.

    **Arguments:** as of `undefined_symbols`.
    """
    if machine(data) != "x86-64":
        return []
    undefined, found = _undefined(data), set()
    for kind, offset, length, _ in _sections(data):
        if kind == _RELOCATIONS:
            for at in range(offset, offset + length, 24):
                how, symbol = struct.unpack_from("<II", data, at + 8)
                if how == _CALL_THROUGH_STUB and symbol in undefined:
                    found.add(undefined[symbol])
    return sorted(found)


def _sections(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield each section's kind, offset, length and link."""
    if data[:4] != b"\x7fELF":
        return
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for at in range(start, start + count * size, size):
        section = struct.unpack_from("<IIQQQQI", data, at)
        yield section[1], section[4], section[5], section[6]


def _undefined(data: bytes) -> dict[int, str]:
    """Return the names that have no home, by their number."""
    sections, found = list(_sections(data)), {}
    for kind, offset, length, link in sections:
        if kind != _SYMBOLS:
            continue
        strings = sections[link][1]
        for number in range(length // 24):
            name, _, home = struct.unpack_from("<IHH", data, offset + 24 * number)
            if home == 0 and name:
                end = data.index(b"\0", strings + name)
                found[number] = data[strings + name : end].decode()
    return found
