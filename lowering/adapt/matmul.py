"""Any `dot_general` with its epilogue as a stack of matrix products."""

import math
from dataclasses import dataclass

import jax.numpy as jnp

from tilejax.lowering.adapt.record import (
    Adapted,
    dtype_reason,
    precision_reason,
    struct,
)
from tilejax.lowering.kernels import matmul as kernel
from tilejax.lowering.kernels.matmul_configs import matmul_configs
from tilejax.primitives.matmul import matmul_op
from tilejax.primitives.matmul_dims import dims_of, result_shape


@dataclass(frozen=True)
class _Side:
    """How an operand becomes `[batch, rows, columns]`: an order and three sizes."""

    order: tuple[int, ...]
    shape: tuple[int, int, int]
    transposed: bool

    def apply(self, x):
        return x.transpose(self.order).reshape(self.shape)

    def type(self, x):
        return struct(self.shape, x.dtype)

    def copied(self, x) -> int:
        """Return the bytes that another order of dimensions moves, past any of one."""
        long = [i for i in self.order if x.shape[i] > 1]
        is_same = long == sorted(long)
        return 0 if is_same else math.prod(x.shape) * jnp.dtype(x.dtype).itemsize


def _side(x, batch, first, second) -> _Side:
    """`[batch, first, second]`, or with the last two changed if `x` lies like that."""
    straight = (*batch, *first, *second)
    turned = (*batch, *second, *first)
    rank = tuple(range(len(x.shape)))
    transposed = turned == rank != straight
    if transposed:
        first, second = second, first
    sizes = [math.prod(x.shape[i] for i in part) for part in (batch, first, second)]
    order = turned if transposed else straight
    return _Side(order, (sizes[0], sizes[1], sizes[2]), transposed)


def _sides(a, b, numbers) -> tuple[_Side, _Side]:
    dims = dims_of(len(a.shape), len(b.shape), numbers)
    return (
        _side(a, dims.a_batch, dims.a_free, dims.a_contract),
        _side(b, dims.b_batch, dims.b_contract, dims.b_free),
    )


def _forward(a, b, bias, scale, residual, *, config, interpret=False, **params):
    shape = result_shape(a, b, params["dimension_numbers"])
    one, two = _sides(a, b, params["dimension_numbers"])
    if residual is not None:
        residual = residual.reshape(one.shape[0], -1, math.prod(_columns(a, b, params)))
    out = kernel.matmul(
        one.apply(a),
        two.apply(b),
        _along(bias, a, b, params),
        _along(scale, a, b, params),
        residual,
        activation=params["activation"],
        transpose_a=one.transposed,
        transpose_b=two.transposed,
        out_dtype=_out_dtype(a, b, bias, scale, residual, params),
        precision=params["precision"],
        config=config,
        interpret=interpret,
    )
    return out.reshape(shape)


def _columns(a, b, params) -> list[int]:
    dims = dims_of(len(a.shape), len(b.shape), params["dimension_numbers"])
    return [b.shape[i] for i in dims.b_free]


def _along(x, a, b, params):
    """A scalar as one number, a vector of the last dimension as one of all columns."""
    if x is None or not x.ndim:
        return None if x is None else x.reshape(1)
    columns = _columns(a, b, params)
    return jnp.broadcast_to(x, columns).reshape(-1)


def _type_along(x, a, b, params):
    if x is None:
        return None
    return struct((math.prod(_columns(a, b, params)) if x.ndim else 1,), x.dtype)


def _out_dtype(a, b, bias, scale, residual, params):
    if params["out_dtype"] is not None:
        return params["out_dtype"]
    own = params["preferred_element_type"] or jnp.promote_types(a.dtype, b.dtype)
    extras = (bias, scale, residual, params["activation"])
    if all(x is None for x in extras) or jnp.issubdtype(own, jnp.floating):
        return own
    return jnp.dtype(jnp.float32)


def _configs(target, a, b, bias, scale, residual, **params):
    reason = _why_not(target, a, b, bias, scale, residual, params)
    if reason is not None:
        return reason
    one, two = _sides(a, b, params["dimension_numbers"])
    if residual is not None:
        m, n = math.prod(result_shape(a, b, params["dimension_numbers"])), one.shape[0]
        columns = math.prod(_columns(a, b, params))
        rows = m // max(1, n * columns)
        residual = struct((n, rows, columns), residual.dtype)
    found = matmul_configs(
        target,
        one.type(a),
        two.type(b),
        _type_along(bias, a, b, params),
        _type_along(scale, a, b, params),
        residual,
        activation=params["activation"],
        transpose_a=one.transposed,
        transpose_b=two.transposed,
        out_dtype=_out_dtype(a, b, bias, scale, residual, params),
        precision=params["precision"],
    )
    moved = [one.copied(a), two.copied(b)]
    return [t.after_copies(sum(moved), sum(m > 0 for m in moved)) for t in found]


def _why_not(target, a, b, bias, scale, residual, params) -> str | None:
    pair = {jnp.dtype(a.dtype).name, jnp.dtype(b.dtype).name}
    if not (pair <= _FLOATS or pair == {"int8"}):
        return f"no kernel for {' and '.join(sorted(pair))}"
    if _columns(a, b, params) == [] and any(
        x is not None and len(x.shape) == 1 for x in (bias, scale)
    ):
        return "its bias or scale runs along the rows"
    out = struct((), _out_dtype(a, b, bias, scale, residual, params))
    every = [x for x in (a, b, bias, scale, residual, out) if x is not None]
    return (
        dtype_reason(target, *every)
        or _sum_reason(a, every, params)
        or precision_reason(params["precision"])
    )


def _sum_reason(a, every, params) -> str | None:
    """Say that the sum is kept in another type than kernels keep it in."""
    asked, dtype = params["preferred_element_type"], jnp.dtype(a.dtype)
    if dtype == jnp.int8:
        plain = len(every) == 3 and not (params["activation"] or params["out_dtype"])
        asked = jnp.dtype(asked or ("int8" if plain else "int32"))
        if asked not in (jnp.int32, jnp.float32):
            return f"no kernel that sums int8 in {asked.name}"
    if dtype != jnp.float64 and any(x.dtype == jnp.float64 for x in every):
        return f"no kernel that mixes {dtype.name} and float64"
    return None


_FLOATS = {"float64", "float32", "bfloat16", "float16"}

KERNELS = (Adapted(matmul_op, "forward", _forward, _configs),)
