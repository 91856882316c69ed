"""Bodies of integer scalars, such as index maps, evaluated by NumPy at many places."""

from collections.abc import Callable, Mapping

import numpy as np

from tilejax.lowering.tile.program import Block, Op, Ref, Value, used


class NotKnown(Exception):
    """A body holds what depends on memory, or on more than integers."""


def reached(block: Block, value: Value | Ref) -> bool:
    """Tell whether a body uses one of its inputs."""
    if value in block.results:
        return True
    return any(x is value for op in block.ops for x in used(op))


def evaluate(block: Block, given: Mapping[Value, np.ndarray]) -> list[np.ndarray]:
    """Evaluate a body.

    **Arguments:**

    - `given`: its inputs' values; all of one length, a place each.

    **Returns:** its results, at each place or one for all.

    **Raises:** `NotKnown`.
    """
    known = dict(given)
    with np.errstate(all="ignore"):
        return _run(block, known)


def _run(block: Block, known: dict) -> list[np.ndarray]:
    for op in block.ops:
        if op.kind == "switch":
            found = _switch(op, known)
        else:
            found = [_one(op, known)]
        known.update(zip(op.outputs, found, strict=True))
    return [_read(known, x) for x in block.results]


def _read(known: dict, value) -> np.ndarray:
    if value not in known:
        raise NotKnown
    return known[value]


def _switch(op: Op, known: dict) -> list[np.ndarray]:
    """All bodies are evaluated, and the right one is picked at each place."""
    which = np.clip(_read(known, op.inputs[0]), 0, len(op.blocks) - 1)
    columns = zip(*(_run(block, dict(known)) for block in op.blocks), strict=True)
    return [
        np.select([which == i for i in range(len(column))], list(column))
        for column in columns
    ]


def _one(op: Op, known: dict) -> np.ndarray:
    rule = _RULES.get(op.kind)
    if rule is None or any(v.shape or v.dtype.kind not in "iub" for v in op.outputs):
        raise NotKnown
    found = rule(op, *(_read(known, x) for x in op.inputs))
    return np.asarray(found).astype(op.outputs[0].dtype)


def _quotient(_, a, b):
    """Towards zero; by zero gives -1, as XLA has it."""
    safe = np.where(b == 0, 1, b)
    found = np.abs(a.astype(np.int64)) // np.abs(safe.astype(np.int64))
    return np.where(b == 0, -1, found * np.sign(a) * np.sign(safe))


def _rest(_, a, b):
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))


def _select(_, which, *cases):
    which = np.asarray(which).astype(np.int64)
    return np.select([which == i for i in range(len(cases))], cases)


def _both(function: Callable) -> Callable:
    return lambda op, *args: function(*args)


_RULES: dict[str, Callable] = {
    "constant": lambda op: op.params["value"],
    "convert_element_type": lambda op, x: x,
    "copy": lambda op, x: x,
    "broadcast": lambda op, x: x,
    "reshape": lambda op, x: x,
    "div": _quotient,
    "rem": _rest,
    "select_n": _select,
    "clamp": lambda op, low, x, high: np.minimum(np.maximum(x, low), high),
    "integer_pow": lambda op, x: x ** op.params["y"],
    "square": lambda op, x: x * x,
    "shift_right_arithmetic": _both(np.right_shift),
    "add": _both(np.add),
    "sub": _both(np.subtract),
    "mul": _both(np.multiply),
    "neg": _both(np.negative),
    "sign": _both(np.sign),
    "abs": _both(np.abs),
    "max": _both(np.maximum),
    "min": _both(np.minimum),
    "and": _both(np.bitwise_and),
    "or": _both(np.bitwise_or),
    "xor": _both(np.bitwise_xor),
    "not": _both(np.invert),
    "shift_left": _both(np.left_shift),
    "eq": _both(np.equal),
    "ne": _both(np.not_equal),
    "lt": _both(np.less),
    "le": _both(np.less_equal),
    "gt": _both(np.greater),
    "ge": _both(np.greater_equal),
}
