"""The inputs of a case, the same numbers for every implementation."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.cpu.cases import Case


@dataclass(frozen=True)
class Operand:
    """An input.

    **Arguments:**

    - `shape`, `dtype`: of the array.
    - `below`: for int32, which is drawn from 0 on.
    - `signs`: for floats: 1 or -1, so that what they multiply again and again neither
      grows nor shrinks.
    """

    shape: tuple[int, ...]
    dtype: str
    below: int = 0
    signs: bool = False


def operands(case: Case) -> list[Operand]:
    """List the inputs of a case."""
    return _OPERANDS[case.family](case, case.sizes)


def filled(case: Case) -> list[np.ndarray]:
    """Draw the inputs of a case; floats as float32, to be cast to their dtype."""
    rng = np.random.default_rng(0)
    return [_fill(each, rng) for each in operands(case)]


def _fill(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    if operand.dtype == "int8":
        return rng.integers(-4, 5, operand.shape, np.int8)
    if operand.dtype == "int32":
        return rng.integers(0, operand.below, operand.shape, np.int32)
    if operand.signs:
        return rng.choice(np.array([-1, 1], np.float32), operand.shape)
    return rng.standard_normal(operand.shape, np.float32)


def _square(case: Case, sizes: dict) -> list[Operand]:
    return [Operand((sizes["n"], sizes["n"]), case.dtype)] * 2


def _matvec(case: Case, sizes: dict) -> list[Operand]:
    return [_square(case, sizes)[0], Operand((sizes["n"],), case.dtype)]


def _attention(case: Case, sizes: dict) -> list[Operand]:
    shape = (1, sizes["heads"], sizes["length"], sizes["depth"])
    return [Operand(shape, case.dtype)] * 3


def _rows(case: Case, sizes: dict) -> list[Operand]:
    return [Operand(tuple(sizes["shape"]), case.dtype)]


def _rms_norm(case: Case, sizes: dict) -> list[Operand]:
    width = sizes["shape"][-1]
    return [*_rows(case, sizes), Operand((width,), case.dtype, signs=True)]


def _layer_norm(case: Case, sizes: dict) -> list[Operand]:
    return [*_rms_norm(case, sizes), Operand((sizes["shape"][-1],), case.dtype)]


def _cross_entropy(case: Case, sizes: dict) -> list[Operand]:
    rows, classes = sizes["shape"]
    return [
        Operand((rows, classes), case.dtype),
        Operand((rows,), "int32", below=classes),
    ]


def _embedding_bag(case: Case, sizes: dict) -> list[Operand]:
    return [
        Operand((sizes["rows"], sizes["width"]), case.dtype),
        Operand((sizes["bags"], sizes["length"]), "int32", below=sizes["rows"]),
    ]


def _depthwise_conv(case: Case, sizes: dict) -> list[Operand]:
    shape, window = tuple(sizes["x"]), tuple(sizes["window"])
    return [
        Operand(shape, case.dtype),
        Operand((*window, 1, shape[-1]), case.dtype),
    ]


def _interpret(case: Case, sizes: dict) -> list[Operand]:
    if "heads" not in sizes:
        return _square(case, sizes)
    shape = (1, sizes["length"], sizes["heads"], sizes["depth"])
    return [Operand(shape, case.dtype)] * 3


_OPERANDS: dict[str, Callable[[Case, dict], list[Operand]]] = {
    "matmul": _square,
    "attention": _attention,
    "matvec": _matvec,
    "softmax": _rows,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "cross_entropy": _cross_entropy,
    "embedding_bag": _embedding_bag,
    "depthwise_conv": _depthwise_conv,
    "interpret": _interpret,
}


def spread_out(flat: np.ndarray, count: int = 64) -> list[float]:
    """Pick some values all over a flat array, to compare results by."""
    at = np.linspace(0, flat.size - 1, min(count, flat.size)).astype(int)
    return [float(x) for x in flat[at]]
