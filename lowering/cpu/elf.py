"""The little of ELF files that is needed to see what an object wants."""

import struct

MACHINES = {62: "x86-64", 183: "aarch64"}

_SYMBOLS, _SECTION, _SYMBOL = 2, "<IIQQQQIIQQ", "<IBBHQQ"


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
    if data[:4] != b"\x7fELF":
        return []
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from(_SECTION, data, start + k * size) for k in range(count)
    ]
    names = []
    for section in sections:
        kind, offset, length, link = section[1], section[4], section[5], section[6]
        if kind != _SYMBOLS:
            continue
        strings = sections[link][4]
        # The first symbol is a blank one by definition.
        for at in range(offset + 24, offset + length, 24):
            name, _, _, home, _, _ = struct.unpack_from(_SYMBOL, data, at)
            if home == 0:
                end = data.index(b"\0", strings + name)
                names.append(data[strings + name : end].decode())
    return sorted(set(names) - {"_GLOBAL_OFFSET_TABLE_"})
