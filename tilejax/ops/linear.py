"""Products and sums over shared axes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from tilejax import primitives
from tilejax.errors import ShapeError
from tilejax.ops.checks import all_of, kinds, ranks, typed
from tilejax.ops.registry import Sample, declare as _declare
from tilejax.primitives.sizes import show

declare = partial(_declare, family="linear")


def _fits_kernel(name: str, given: Mapping[str, Any]) -> None:
    x, kernel = typed(given["x"]), typed(given["kernel"])
    if x.shape[-1] != kernel.shape[0]:
        raise ShapeError(
            f"{name}: the last axis of x, {show(x)}, is {x.shape[-1]}, but the kernel, "
            f"{show(kernel)}, takes {kernel.shape[0]}; give it as many rows"
        )
    if given.get("bias") is not None:
        bias = typed(given["bias"])
        if bias.shape != kernel.shape[1:]:
            raise ShapeError(
                f"{name}: bias is {show(bias)}, but the kernel is {show(kernel)}; the "
                f"bias must have shape {kernel.shape[1:]}"
            )


def _dense(x, kernel, bias=None, *, activation=None, precision=None):
    return primitives.matmul(
        x, kernel, bias=bias, activation=activation, precision=precision
    )


def _einsum(equation, *arrays, precision=None):
    return jnp.einsum(equation, *arrays, precision=precision)


def _tensordot(x, y, *, axes=2):
    return jnp.tensordot(x, y, axes)


matmul = declare(
    "matmul",
    primitives.matmul,
    "Multiply matrices or stacks of them, and finish the product.",
    operands="a, b",
    oracle=np.matmul,
    samples=["f32[2,3] f32[3,4]", "f32[5,2,3] f32[3,4]"],
)
dot_general = declare(
    "dot_general",
    primitives.dot_general,
    "Multiply and sum over pairs of axes, and finish the product.",
    operands="a, b, dimension_numbers=",
    oracle=lambda a, b, dimension_numbers: np.einsum("ij,kj->ik", a, b),
    samples=[
        Sample("f32[2,3] f32[4,3]", {"dimension_numbers": (((1,), (1,)), ((), ()))})
    ],
)
dense = declare(
    "dense",
    _dense,
    "Multiply the last axis by a matrix (inputs, outputs), and add a bias.",
    operands="x, kernel, bias",
    check=all_of(
        ranks("x", 1),
        ranks("kernel", 2, 2),
        kinds("inexact", "x", "kernel", "bias"),
        _fits_kernel,
    ),
    oracle=lambda x, kernel, bias=0: x @ kernel + bias,
    samples=["f32[2,3] f32[3,4] f32[4]", "f32[5,2,3] f32[3,4]"],
)
einsum = declare(
    "einsum",
    _einsum,
    "Sum products over the letters that the result lacks.",
    operands="equation=, *arrays",
    oracle=np.einsum,
    samples=[Sample("f32[2,3] f32[4,3]", {"equation": "ij,kj->ik"})],
)
tensordot = declare(
    "tensordot",
    _tensordot,
    "Sum products over the last axes of x and the first of y, or pairs of axes.",
    operands="x, y",
    oracle=np.tensordot,
    samples=[Sample("f32[2,3] f32[3,4]", {"axes": 1})],
)
outer = declare(
    "outer",
    jnp.outer,
    "Multiply each of x by each of y.",
    operands="x, y",
    check=all_of(ranks("x", 1), ranks("y", 1)),
    oracle=np.outer,
    samples=["f32[2] f32[3]"],
)
