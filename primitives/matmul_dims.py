"""Which dimensions of a product's operands are which, and what follows from it."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.primitives.activations import check_activation
from tilejax.primitives.sizes import nbytes, show
from tilejax.targets.cost import Cost

DimensionNumbers = tuple[
    tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]
]


@dataclass(frozen=True)
class Dims:
    """The dimensions of both operands by their role.

    **Arguments:**

    - `a_batch`, `b_batch`: in both operands and the result, in this order.
    - `a_contract`, `b_contract`: summed over, in this order.
    - `a_free`, `b_free`: in one operand and the result.
    """

    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    a_contract: tuple[int, ...]
    b_contract: tuple[int, ...]
    a_free: tuple[int, ...]
    b_free: tuple[int, ...]


def dims_of(a_rank: int, b_rank: int, numbers: DimensionNumbers) -> Dims:
    """Sort the dimensions of operands of these ranks.

    >>> dims_of(2, 2, (((1,), (0,)), ((), ()))).b_free
    (1,)
    """
    (a_contract, b_contract), (a_batch, b_batch) = numbers
    return Dims(
        tuple(a_batch),
        tuple(b_batch),
        tuple(a_contract),
        tuple(b_contract),
        tuple(i for i in range(a_rank) if i not in (*a_contract, *a_batch)),
        tuple(i for i in range(b_rank) if i not in (*b_contract, *b_batch)),
    )


def result_shape(a: Any, b: Any, numbers: DimensionNumbers) -> tuple[int, ...]:
    """Return the shape of the product: batch, free of `a`, free of `b`."""
    dims = dims_of(a.ndim, b.ndim, numbers)
    kept = [a.shape[i] for i in (*dims.a_batch, *dims.a_free)]
    return (*kept, *(b.shape[i] for i in dims.b_free))


def rule(avals, params) -> str:
    """Spell the factor rule; a sum that something is applied to must be whole."""
    a, b, bias, scale, residual = avals
    dims = dims_of(a.ndim, b.ndim, params["dimension_numbers"])
    whole = params["activation"] is not None or bias is not None or residual is not None
    names: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for side, batch, contract, free, letter in (
        (names[0], dims.a_batch, dims.a_contract, dims.a_free, "m"),
        (names[1], dims.b_batch, dims.b_contract, dims.b_free, "n"),
    ):
        side.update({d: f"b{i}" for i, d in enumerate(batch)})
        side.update({d: f"k{i}" + "!" * whole for i, d in enumerate(contract)})
        side.update({d: f"{letter}{i}" for i, d in enumerate(free)})
    out = [names[0][d] for d in (*dims.a_batch, *dims.a_free)]
    out += [names[1][d] for d in dims.b_free]
    values = [" ".join(side[d] for d in sorted(side)) for side in names]
    values += [out[-1]] if bias is not None else []
    values += [out[-1] if scale.ndim else ""] if scale is not None else []
    values += [" ".join(out)] if residual is not None else []
    return f"{', '.join(values)} -> {' '.join(out)}"


def check(a, b, bias=None, scale=None, residual=None, **params) -> None:
    """Raise what a user should read where the operands do not fit together."""
    numbers = params["dimension_numbers"]
    _check_contraction(a, b, numbers)
    check_activation("matmul", params["activation"])
    extras = (bias, scale, residual)
    if params["activation"] is None and all(x is None for x in extras):
        return
    if jnp.issubdtype(jnp.result_type(a.dtype, b.dtype), jnp.complexfloating):
        raise DTypeError(
            f"matmul: operands {show(a)} and {show(b)} are complex; bias, scale, "
            "residual and activation are for real ones. Apply them afterwards"
        )
    out = result_shape(a, b, numbers)
    last = out[-1:]
    for name, x, allowed in (
        ("bias", bias, [last] if last else []),
        ("scale", scale, [(), last]),
        ("residual", residual, [out]),
    ):
        if x is not None and x.shape not in allowed:
            raise ShapeError(
                f"matmul: {name} is {show(x)}, but the result has shape {out}, so it "
                f"must have shape {' or '.join(map(str, allowed)) or 'None'}; "
                "broadcast it first"
            )
        if x is not None and not jnp.issubdtype(x.dtype, jnp.floating):
            raise DTypeError(
                f"matmul: {name} is {show(x)}; it must be floating (x.astype)"
            )


def _check_contraction(a, b, numbers: DimensionNumbers) -> None:
    for what, (ours, theirs) in zip(("contracted", "batch"), numbers, strict=True):
        if len(ours) != len(theirs):
            raise ParameterError(
                f"matmul: dimension_numbers name {len(ours)} {what} dimensions of a, "
                f"{ours}, but {len(theirs)} of b, {theirs}; they go in pairs"
            )
        for name, x, dims in (("a", a, ours), ("b", b, theirs)):
            if any(not 0 <= d < x.ndim for d in dims):
                raise ParameterError(
                    f"matmul: {what} dimensions {dims} of {name} are out of range for "
                    f"{show(x)}"
                )
        for i, j in zip(ours, theirs, strict=True):
            if a.shape[i] != b.shape[j]:
                raise ShapeError(
                    f"matmul: {what} dimension {i} of a, {show(a)}, has size "
                    f"{a.shape[i]}, but dimension {j} of b, {show(b)}, has size "
                    f"{b.shape[j]}; transpose or reshape one of them"
                )


def cost(a, b, bias=None, scale=None, residual=None, **params) -> Cost:
    """Two operations a multiply-add, and the epilogue."""
    numbers = params["dimension_numbers"]
    shape = result_shape(a, b, numbers)
    depth = math.prod(a.shape[i] for i in numbers[0][0])
    size, dtype = math.prod(shape), jnp.promote_types(a.dtype, b.dtype)
    extras = [x for x in (bias, scale, residual) if x is not None]
    activation = params["activation"]
    wide = params["out_dtype"] or params["preferred_element_type"]
    if wide is None:
        integer = jnp.issubdtype(dtype, jnp.integer)
        wide = jnp.float32 if integer and (extras or activation) else dtype
    out = jax.ShapeDtypeStruct(shape, wide)
    count = len(extras) + (activation in ("relu", "maximum"))
    return Cost(
        {dtype.name: 2.0 * size * depth},
        bytes_read=nbytes(a, b, *extras),
        bytes_written=nbytes(out),
        transcendentals=size * (activation not in (None, "relu", "maximum")),
        elementwise={"float32": float(count * size)} if count else {},
    )
