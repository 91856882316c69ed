"""What is measured: a table a family."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

FLOATS = ("float32", "bfloat16")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    **Arguments:**

    - `family`, `name`, `dtype`, `direction`: what it is called in the results.
    - `sizes`: what the family's inputs and functions are made from.
    - `limit`: what of the machine bounds it: `"read"`, `"update"` (memory read, and
      read and written in place), or a dtype, for the products of that dtype.
    - `work`: bytes or operations, as the limit is counted in.
    - `buffers`: where the result goes: `"fresh"`: to new memory, `"reused"`: to that of
      the result before, `"donated"`: where the input was, to be the next input.
    - `cycle`: so many copies of the first input are used in turn.
    - `peers`: what there is to compare with.
    """

    family: str
    name: str
    dtype: str
    sizes: dict
    limit: str | None = None
    work: float = 0.0
    buffers: str = "fresh"
    cycle: int = 1
    direction: str = "forward"
    peers: tuple[str, ...] = field(default=("jax", "torch"))


def _matmul(tiny: bool) -> Iterator[Case]:
    for dtype in (*FLOATS, "int8"):
        for n in (16,) if tiny else (512, 1024, 2048):
            for blocks in (8 if tiny else 128, None):
                how = "our choice of blocks" if blocks is None else f"blocks {blocks}"
                name = f"{n} x {n} x {n}, {how}"
                sizes = {"n": n, "blocks": blocks}
                yield Case("matmul", name, dtype, sizes, dtype, 2.0 * n**3)


def _attention(tiny: bool) -> Iterator[Case]:
    heads, depth = (2, 8) if tiny else (4, 64)
    lengths = (16,) if tiny else (512, 1024, 2048, 4096, 8192)
    for dtype in FLOATS:
        for length in lengths:
            for causal in (False, True):
                name = f"{heads} heads, {length} x {depth}" + ", causal" * causal
                sizes = {"heads": heads, "length": length, "depth": depth}
                work = 4.0 * heads * depth * length**2 / (2 if causal else 1)
                sizes["causal"] = causal
                yield Case("attention", name, dtype, sizes, dtype, work)


def _matvec(tiny: bool) -> Iterator[Case]:
    n, total = (32, 2 * 32 * 32 * 4) if tiny else (4096, 2**30)
    for dtype in (*FLOATS, "float16", "int8"):
        each = n * n * BYTES[dtype]
        copies = max(total // each, 2)
        name = f"{n} x {n}, {copies} matrices in turn"
        yield Case("matvec", name, dtype, {"n": n}, "read", float(each), cycle=copies)


def _rows(family: str, tiny: bool) -> Iterator[Case]:
    shape = (8, 32) if tiny else (8192, 4096)
    for dtype in FLOATS:
        for buffers in ("reused", "donated", "fresh"):
            name = f"{shape[0]} x {shape[1]}, {buffers} buffers"
            work = 2.0 * math.prod(shape) * BYTES[dtype]
            yield Case(family, name, dtype, {"shape": shape}, "update", work, buffers)


def _softmax(tiny: bool) -> Iterator[Case]:
    return _rows("softmax", tiny)


def _layer_norm(tiny: bool) -> Iterator[Case]:
    return _rows("layer_norm", tiny)


def _rms_norm(tiny: bool) -> Iterator[Case]:
    return _rows("rms_norm", tiny)


def _cross_entropy(tiny: bool) -> Iterator[Case]:
    rows, classes = (8, 32) if tiny else (2048, 32000)
    for dtype in FLOATS:
        work = float(rows * classes * BYTES[dtype])
        sizes = {"shape": (rows, classes)}
        name = f"{rows} x {classes}"
        yield Case("cross_entropy", name, dtype, sizes, "read", work)


def _embedding_bag(tiny: bool) -> Iterator[Case]:
    rows, width, bags, length = (16, 8, 4, 3) if tiny else (400_000, 128, 8192, 32)
    sizes = {"rows": rows, "width": width, "bags": bags, "length": length}
    for dtype in FLOATS:
        work = float(bags * length * width * BYTES[dtype])
        name = f"{bags} bags of {length} from {rows} x {width}"
        yield Case("embedding_bag", name, dtype, sizes, "read", work)


def _depthwise_conv(tiny: bool) -> Iterator[Case]:
    images = {"x": (1, 6, 6, 8), "window": (3, 3)}
    series = {"x": (1, 16, 8), "window": (4,)}
    if not tiny:
        images["x"], series["x"] = (8, 56, 56, 128), (8, 4096, 256)
    for dtype in FLOATS[:1]:
        for sizes in (images, series):
            name = " x ".join(map(str, sizes["x"]))
            name += f", window {' x '.join(map(str, sizes['window']))}"
            work = 2.0 * math.prod(sizes["x"]) * BYTES[dtype]
            yield Case("depthwise_conv", name, dtype, sizes, "update", work)


def _interpret(tiny: bool) -> Iterator[Case]:
    n, blocks = (16, 8) if tiny else (512, 128)
    heads, length, depth = (3, 32, 16) if tiny else (4, 1024, 64)
    for dtype in FLOATS[:1]:
        sizes = {"n": n, "blocks": blocks}
        name = f"matmul {n} x {n} x {n}, blocks {blocks}"
        work = 2.0 * n**3
        yield Case("interpret", name, dtype, sizes, dtype, work, peers=("interpret",))
        sizes = {"heads": heads, "length": length, "depth": depth}
        sizes |= {"blocks": 16 if tiny else 128}
        name = f"flash attention, {heads} heads, {length} x {depth}"
        work = 4.0 * heads * depth * length**2
        yield Case("interpret", name, dtype, sizes, dtype, work, peers=("interpret",))


FAMILIES: dict[str, Callable[[bool], Iterator[Case]]] = {
    "matmul": _matmul,
    "attention": _attention,
    "matvec": _matvec,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "cross_entropy": _cross_entropy,
    "embedding_bag": _embedding_bag,
    "depthwise_conv": _depthwise_conv,
    "interpret": _interpret,
}
"""By family what yields its cases, the smallest ones if asked for tiny ones."""
