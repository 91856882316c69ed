"""Arrays for the samples that operations and layers are declared with."""

import re

import numpy as np

from tilejax.ops import Operation, Sample

_DTYPES = {"f32": "float32", "i32": "int32", "bool": "bool"}
_ARRAY = re.compile(r"(f32|i32|bool)(\+?)\[([\d,]*)\](?:<(\d+))?")


def arrays(text: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Make an array for each type; `+` is positive, `<n` from 0 to n - 1."""
    found = [_array(rng, *match.groups()) for match in _ARRAY.finditer(text)]
    assert found, text
    assert not re.sub(r"[() ]", "", _ARRAY.sub("", text)), text
    return found


def _array(rng, dtype, positive, shape, limit):
    shape = tuple(int(size) for size in shape.split(",") if size)
    if dtype == "i32":
        return rng.integers(0, int(limit or 9), shape).astype(np.int32)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    values = rng.standard_normal(shape).astype(np.float32)
    return np.abs(values) + np.float32(0.1) if positive else values


def arguments(op: Operation, sample: Sample, rng: np.random.Generator):
    """Return the positional and the keyword arguments of one use."""
    there = iter(arrays(sample.operands, rng))
    params = dict(sample.params)
    if sample.operands.startswith("("):
        return [list(there)], params
    args = []
    for name in op.operands:
        if name.startswith("*"):
            args += there
        elif name in op.static:
            if name in params:
                args.append(params.pop(name))
        elif name in params:
            args.append(params.pop(name))
        else:
            args += [x for x in [next(there, None)] if x is not None]
    return args, params
