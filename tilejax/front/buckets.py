"""Sizes that calls may choose: which axes have them, and to what they are padded."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from tilejax._jax.jaxprs import is_tracer
from tilejax.errors import BucketError, ParameterError, ShapeError

Rule: TypeAlias = str | int | Sequence[int] | Callable[[int], int]
Axes: TypeAlias = str | Sequence[Any]


def bucket_of(name: str, rule: Rule, size: int) -> int:
    """Return the size that a size is padded to.

    **Raises:** `BucketError` where the rule has none that is large enough.

    >>> bucket_of("batch", "pow2", 5), bucket_of("batch", 12, 13)
    (8, 24)
    """
    if rule == "pow2":
        return 1 << (size - 1).bit_length()
    if isinstance(rule, int):
        return -(-size // rule) * rule
    if callable(rule):
        found = rule(size)
    else:
        found = min((each for each in rule if int(each) >= size), default=0)  # pyright: ignore
    if not isinstance(found, int | np.integer) or found < size:
        raise BucketError(
            f"{name} is {size}, and its buckets {rule!r} have none as large; add one"
        )
    return int(found)


def least_of(rule: Rule, bucket: int) -> int:
    """Return the least size that is surely padded to a bucket, as far as one knows.

    >>> least_of("pow2", 8), least_of(12, 24), least_of([4, 16], 16)
    (5, 13, 5)
    """
    if rule == "pow2":
        return bucket // 2 + 1
    if isinstance(rule, int):
        return bucket - rule + 1
    if callable(rule):
        return 1
    return max((int(each) for each in rule if int(each) < bucket), default=0) + 1


def check_rules(bucket: Any) -> dict[str, Rule]:
    """Return the rules by name, or raise `ParameterError`."""
    wanted = (
        "give a mapping from names of sizes to 'pow2', a number whose multiples are "
        "taken, a sequence of sizes, or a function from a size to a larger one"
    )
    if not isinstance(bucket, Mapping) or not bucket:
        raise ParameterError(f"bucket={bucket!r}: {wanted}")
    for name, rule in bucket.items():
        is_good = rule == "pow2" or callable(rule) or _is_size(rule)
        if isinstance(rule, Sequence) and not isinstance(rule, str):
            is_good = bool(rule) and all(map(_is_size, rule))
        if not is_good or not isinstance(name, str) or not name.isidentifier():
            raise ParameterError(f"bucket={{{name!r}: {rule!r}}}: {wanted}")
    return dict(bucket)


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0


def check_axes(axes: Any, bucket: Mapping, fun: Callable) -> dict[str, tuple]:
    """Return the names of axes by argument, or raise `ParameterError`."""
    wanted = (
        "say which axes of which arguments have the names, as axes={'x': ('batch', "
        "None, 3)} or {'x': 'batch ...'}"
    )
    if not isinstance(axes, Mapping) or not axes:
        raise ParameterError(f"bucket={dict(bucket)!r} needs axes=; {wanted}")
    try:
        known = set(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        known = set(axes)
    found = {}
    for argument, names in axes.items():
        if argument not in known:
            raise ParameterError(
                f"axes={{{argument!r}: ...}}: the function has no such argument "
                f"({', '.join(known)})"
            )
        found[argument] = tuple(map(_axis, _words(names)))
    unused = set(bucket) - {n for names in found.values() for n in names}
    if unused:
        raise ParameterError(
            f"bucket has {sorted(unused)}, which no axis in axes={axes!r} has; {wanted}"
        )
    return found


def _words(names: Axes) -> Sequence:
    return names.replace(",", " ").split() if isinstance(names, str) else names


def _axis(name: Any) -> Any:
    if name is None or name is Ellipsis or isinstance(name, int):
        return Ellipsis if name is Ellipsis else None
    if name in ("...", "_"):
        return Ellipsis if name == "..." else None
    if not isinstance(name, str) or not (name.isidentifier() or name.isdigit()):
        raise ParameterError(
            f"axes: {name!r} names no axis; give a word, None (or _) for any size, or "
            "... for any number of axes"
        )
    return None if name.isdigit() else name


def names_of(argument: str, spec: tuple, shape: tuple, bucket: Mapping) -> tuple:
    """Return a name or None for each axis of an array.

    **Raises:** `ShapeError` if it has another number of axes.
    """
    if Ellipsis in spec:
        at = spec.index(Ellipsis)
        after = len(spec) - at - 1
        middle = len(shape) - at - after
        full = (*spec[:at], *(None,) * max(middle, 0), *spec[at + 1 :])
    else:
        full = spec
    if len(full) != len(shape):
        shown = " ".join("..." if s is Ellipsis else str(s or "_") for s in spec)
        raise ShapeError(
            f"{argument} has shape {shape}, but its axes are named {shown!r}; give one "
            "name an axis"
        )
    return tuple(name if name in bucket else None for name in full)


def resize(x: Any, names: tuple, sizes: Mapping[str, int]) -> Any:
    """Pad an array to its buckets.

    Its last element along an axis is repeated, so that what is not real is at least
    what the function may be given: an index in range, a divisor that is not zero.
    """
    shape = tuple(
        s if n is None else sizes[n] for s, n in zip(x.shape, names, strict=True)
    )
    if shape == tuple(x.shape):
        return x
    if isinstance(x, jax.ShapeDtypeStruct):
        return x.update(shape=shape)
    widths = [(0, new - old) for new, old in zip(shape, x.shape, strict=True)]
    if _is_at_hand(x):
        return np.pad(np.asarray(x), widths, mode="edge")
    for axis, (_, more) in enumerate(widths):
        # as `pad` with mode="edge", but what is repeated has no gradient
        if more:
            last = jax.lax.slice_in_dim(x, x.shape[axis] - 1, x.shape[axis], axis=axis)
            shape = (*x.shape[:axis], more, *x.shape[axis + 1 :])
            behind = jax.lax.stop_gradient(jax.numpy.broadcast_to(last, shape))
            x = jax.numpy.concatenate([x, behind], axis)
    return x


def _is_at_hand(x: Any) -> bool:
    """Say whether NumPy can read it in place, which needs no compiled program."""
    if isinstance(x, np.ndarray):
        return True
    if is_tracer(x) or not isinstance(x, jax.Array) or x.committed:
        return False  # where the user put it, it stays
    return all(device.platform == "cpu" for device in x.devices())
