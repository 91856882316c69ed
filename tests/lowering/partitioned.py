"""Operations with kernels for the CPU that tell which shapes they were run on.

The kernels are right, but not the references' equations, so that what is compared is
not one and the same program.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from tilejax.lowering.rules import register_kernel
from tilejax.primitives.define import define
from tilejax.primitives.op import Op


@dataclass(frozen=True)
class Probe:
    """An operation, its meaning in plain JAX, and the shapes that its kernels saw."""

    op: Op
    reference: Callable
    shapes: tuple[tuple[int, ...], ...]
    seen: dict[str, list] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.op.name  # the same in every process that collects the tests

    def operands(self) -> list[np.ndarray]:
        rng = np.random.default_rng(7)
        return [rng.normal(size=s).astype("float32") for s in self.shapes]

    def last(self, part: str = "forward") -> tuple | None:
        """The shapes of the operands in the last use of a kernel: those of a shard."""
        return self.seen[part][-1] if self.seen.get(part) else None


def probe(
    name: str,
    reference: Callable,
    shapes: tuple,
    kernel: Callable | None = None,
    backward_kernel: Callable | None = None,
    **declaration: Any,
) -> Probe:
    """Declare an operation with kernels for the CPU."""
    op = define(f"probe_{name}", reference=reference, **declaration)
    found = Probe(op, reference, shapes)

    def noting(part: str, run: Callable) -> Callable:
        def noted(*args, config, **params):
            del config
            operands = args if part == "forward" else args[0]
            shapes = tuple(x.shape for x in operands if x is not None)
            found.seen.setdefault(part, []).append(shapes)
            return run(*args, **params)

        return noted

    def configs(target, *avals, **params):
        return [None]

    forward = noting("forward", kernel or reference)
    register_kernel(op, "cpu", forward, configs=configs)
    if backward_kernel is not None:
        backward = noting("backward", backward_kernel)
        register_kernel(op, "cpu", backward, configs=configs, part="backward")
    return found


def _product(a, b):
    def body(a_ref, b_ref, out_ref):
        out_ref[...] = jnp.dot(a_ref[...], b_ref[...])

    shape = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype)
    return pl.pallas_call(body, out_shape=shape, interpret=True)(a, b)


def _product_backward(operands, saved, cotangents):
    (a, b), (ct,) = operands, cotangents
    return jnp.tensordot(ct, b, ((1,), (1,))), jnp.tensordot(a, ct, ((0,), (0,)))


def _rows(x):
    lse = jax.nn.logsumexp(x, -1, keepdims=True)
    return jnp.exp(x - lse), lse[:, 0]


def _rows_kernel(x):
    raised = jnp.exp(x - x.max(-1)[:, None])
    total = raised.sum(-1)
    return raised / total[:, None], x.max(-1) + jnp.log(total)


def _rows_backward(operands, saved, cotangents):
    (y,), (dy, dlse) = saved, cotangents
    return (y * (dy - jnp.sum(y * dy, -1, keepdims=True) + dlse[:, None]),)


def _window(x, w):
    """Along the second axis, zeros past its ends."""
    padded = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
    length = x.shape[1]
    return sum(padded[:, k : k + length] * w[k] for k in range(3))


def _window_kernel(x, w):
    after = jnp.concatenate([x[:, 1:], jnp.zeros_like(x[:, :1])], 1)
    before = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return before * w[0] + x * w[1] + after * w[2]


def _bags(x, w):
    return jnp.sum(x * w[..., None], 1)


PRODUCT = probe(
    "product",
    jnp.matmul,
    ((8, 16), (16, 24)),
    _product,
    _product_backward,
    sharding="m k, k n -> m n",
    backward=_product_backward,
)
ROWS = probe(
    "rows",
    _rows,
    ((8, 16),),
    _rows_kernel,
    _rows_backward,
    sharding="b n! -> b n, b",
    backward=_rows_backward,
    saves=(0,),
)
WINDOW = probe(
    "window",
    _window,
    ((8, 16, 4), (3, 4)),
    _window_kernel,
    sharding="b s~ c, k! c -> b s c",
)
BAGS = probe(
    "bags",
    _bags,
    ((8, 16, 4), (8, 16)),
    lambda x, w: jnp.einsum("blc,bl->bc", x, w),
    sharding="b l c, b l -> b c",
)
WRONG = probe("wrong", _rows, ((8, 16),), _rows_kernel, sharding="b n -> b n, b")
