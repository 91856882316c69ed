"""Square transposition of vectors in registers."""

from tilejax.lowering.cpu.nest import Nest


def transpose(n: Nest, rows: list[str], ty: str) -> list[str]:
    """Transpose as many vectors as each has lanes, a power of two of them.

    One bit of the row's number is exchanged with that bit of the lane's at a time.
    """
    size = len(rows)
    whole = f"<{size} x {ty}>"
    bit = size // 2
    while bit:
        new = list(rows)
        low = ", ".join(
            f"i32 {lane if not lane & bit else size + lane - bit}"
            for lane in range(size)
        )
        high = ", ".join(
            f"i32 {lane + bit if not lane & bit else size + lane}"
            for lane in range(size)
        )
        for i in (i for i in range(size) if not i & bit):
            pair = f"shufflevector {whole} {rows[i]}, {whole} {rows[i + bit]}"
            new[i] = n.emit(f"{pair}, <{size} x i32> <{low}>", rows[i], rows[i + bit])
            new[i + bit] = n.emit(
                f"{pair}, <{size} x i32> <{high}>", rows[i], rows[i + bit]
            )
        rows, bit = new, bit // 2
    return rows


def interleave(n: Nest, parts: list[str], ty: str, lanes: int) -> str:
    """Put lane i of each part next to one another, for all i: 1, 2 or 4 parts."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left = interleave(n, parts[0::2], ty, lanes)
    right = interleave(n, parts[1::2], ty, lanes)
    size = lanes * half
    order = ", ".join(f"i32 {i // 2 + size * (i % 2)}" for i in range(2 * size))
    whole = f"<{size} x {ty}>"
    shuffle = f"shufflevector {whole} {left}, {whole} {right}"
    return n.emit(f"{shuffle}, <{2 * size} x i32> <{order}>", left, right)


def join(n: Nest, parts: list[str], ty: str, lanes: int) -> str:
    """Put vectors one after another: 1, 2 or 4 of them."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = join(n, parts[:half], ty, lanes), join(n, parts[half:], ty, lanes)
    size = lanes * half
    order = ", ".join(f"i32 {i}" for i in range(2 * size))
    whole = f"<{size} x {ty}>"
    shuffle = f"shufflevector {whole} {left}, {whole} {right}"
    return n.emit(f"{shuffle}, <{2 * size} x i32> <{order}>", left, right)


def split(n: Nest, vector: str, ty: str, lanes: int, part: int) -> list[str]:
    """Cut a vector into vectors of `part` lanes."""
    if part == lanes:
        return [vector]
    whole = f"<{lanes} x {ty}>"
    pieces = []
    for start in range(0, lanes, part):
        order = ", ".join(f"i32 {i}" for i in range(start, start + part))
        right = f"shufflevector {whole} {vector}, {whole} poison, "
        pieces.append(n.emit(f"{right}<{part} x i32> <{order}>", vector))
    return pieces
