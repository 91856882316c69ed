"""What operations ask of their arguments, as checks that records share."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.ops.registry import Check, shown_arguments
from tilejax.primitives.sizes import show


def typed(value: Any) -> Any:
    """Return the type of an array or a number."""
    return jax.typeof(value)


def all_of(*checks: Check) -> Check:
    """Make one check of several, in order."""

    def check(name: str, given: Mapping[str, Any]) -> None:
        for each in checks:
            each(name, given)

    return check


def broadcasting(*names: str) -> Check:
    """Require that the shapes of these arguments broadcast."""

    def check(name: str, given: Mapping[str, Any]) -> None:
        there = {n: typed(given[n]) for n in names if given.get(n) is not None}
        try:
            jnp.broadcast_shapes(*(a.shape for a in there.values()))
        except ValueError as error:
            shown = " and ".join(f"{n} is {show(a)}" for n, a in there.items())
            raise ShapeError(
                f"{name}: {shown}; their shapes do not broadcast: from the right, "
                "sizes must be equal or 1. Reshape one of them"
            ) from error

    return check


def kinds(wanted: str, *names: str) -> Check:
    """Require dtypes of a kind: `"floating"`, `"integer"`, `"boolean"`, `"bits"`."""
    tests = {
        "floating": (jnp.floating,),
        "inexact": (jnp.inexact,),
        "integer": (jnp.integer,),
        "boolean": (jnp.bool_,),
        "bits": (jnp.integer, jnp.bool_),
        "number": (jnp.number, jnp.bool_),
    }[wanted]

    def check(name: str, given: Mapping[str, Any]) -> None:
        for label in names:
            if given.get(label) is None:
                continue
            aval = typed(given[label])
            if not any(jnp.issubdtype(aval.dtype, kind) for kind in tests):
                raise DTypeError(
                    f"{name}: {label} is {show(aval)}; its dtype must be {wanted}. "
                    "Convert it first (ops.cast)"
                )

    return check


def has_axes(label: str = "x", param: str = "axis") -> Check:
    """Require that the axes that a parameter names are there, each once."""

    def check(name: str, given: Mapping[str, Any]) -> None:
        axis = given.get(param)
        if axis is None or label not in given:
            return
        aval = typed(given[label])
        axes_of(name, param, axis, aval)

    return check


def axes_of(name: str, param: str, axis: Any, aval: Any) -> tuple[int, ...]:
    """Return axes as numbers from 0, or raise `ParameterError`."""
    axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    for each in axes:
        if not isinstance(each, int | np.integer):
            raise ParameterError(
                f"{name}: {param}={axis!r}; axes are integers, and static"
            )
        if not -aval.ndim <= each < aval.ndim:
            raise ParameterError(
                f"{name}: {param}={axis!r}, but the array is {show(aval)}; its axes "
                f"are 0 to {aval.ndim - 1}, or negative from the end"
                if aval.ndim
                else f"{name}: {param}={axis!r}, but the array is a single number"
            )
    found = tuple(int(each) % aval.ndim for each in axes)
    if len(set(found)) != len(found):
        raise ParameterError(f"{name}: {param}={axis!r} names an axis twice")
    return found


def ranks(label: str, low: int, high: int | None = None) -> Check:
    """Require a rank in a range."""

    def check(name: str, given: Mapping[str, Any]) -> None:
        aval = typed(given[label])
        if aval.ndim < low or (high is not None and aval.ndim > high):
            wanted = f"{low}" if high == low else f"at least {low}"
            wanted = wanted if high in (None, low) else f"{low} to {high}"
            raise ShapeError(
                f"{name}: {label} is {show(aval)}; its rank must be {wanted}"
            )

    return check


def equal_but(label: str, param: str = "axis") -> Check:
    """Require arrays of one rank whose sizes are equal but along an axis."""

    def check(name: str, given: Mapping[str, Any]) -> None:
        arrays = [typed(a) for a in given[label]]
        if not arrays:
            raise ShapeError(f"{name}: give at least one array")
        (axis,) = axes_of(name, param, given.get(param, 0), arrays[0])
        for each in arrays[1:]:
            fits = each.ndim == arrays[0].ndim and all(
                d == axis or a == b
                for d, (a, b) in enumerate(
                    zip(each.shape, arrays[0].shape, strict=True)
                )
            )
            if not fits:
                raise ShapeError(
                    f"{name}: arrays are {', '.join(map(show, arrays))}; they must be "
                    f"of one rank and equal in all axes but {param}={axis}"
                )

    return check


def described(name: str, given: Mapping[str, Any], wrong: str) -> str:
    """Say what is wrong with a call, its arguments spelled out."""
    return f"{name}({', '.join(shown_arguments(given))}): {wrong}"
