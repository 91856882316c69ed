"""The product of two arrays over chosen dimensions, with what is done to it after."""

from typing import Any

import jax
import jax.numpy as jnp

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives import matmul_dims, matmul_epilogue, retile
from tilejax.primitives.activations import activate
from tilejax.primitives.call import Call
from tilejax.primitives.define import define
from tilejax.primitives.matmul_dims import DimensionNumbers
from tilejax.primitives.sizes import show

ArrayLike = jax.typing.ArrayLike

_PLAIN = Call((True, True, False, False, False))


def dot_general(
    a: ArrayLike,
    b: ArrayLike,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
    *,
    bias: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    activation: str | None = None,
    out_dtype: Any = None,
) -> jax.Array:
    """Multiply and sum over pairs of dimensions, and finish the product.

    `activation(dot * scale + bias) + residual`, cast to `out_dtype`. Without any of
    these it is `jax.lax.dot_general`, to the bit. With one of them the sum is kept in
    the `preferred_element_type`, or f32 for smaller floats and int32 for integers, and
    the rest is computed in what that and the operands of the epilogue promote to, at
    least f32.

    **Arguments:**

    - `a`, `b`: any shapes and dtypes.
    - `dimension_numbers`, `precision`, `preferred_element_type`, `out_sharding`: as
      `jax.lax.dot_general` takes them.
    - `bias`: floating, the last dimension of the result.
    - `scale`: floating, a scalar or the last dimension of the result.
    - `residual`: floating, the shape of the result.
    - `activation`: `relu`, `maximum` (with 0), `gelu`, `gelu_tanh`, `silu`, `tanh`,
      `sigmoid` or `exp`.
    - `out_dtype`: of the result; by default the `preferred_element_type`, or else the
      dtype that `a` and `b` promote to (f32 for integers that are scaled or so).

    **Returns:** batch dimensions, then those of `a`, then those of `b` that are left.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
    >>> rows = (((1,), (0,)), ((), ()))
    >>> dot_general(a, b, rows, bias=jnp.arange(4.0), activation="relu")[0].tolist()
    [3.0, 4.0, 5.0, 6.0]
    """
    epilogue = {"activation": activation, "out_dtype": _dtype(out_dtype)}
    a, b = matmul_op.array(0, a), matmul_op.array(1, b)
    numbers = _tuples(dimension_numbers)
    matmul_dims.check(a, b, dimension_numbers=numbers, activation=None)
    params = retile.canonical_params(
        "matmul",
        jax.lax.dot_general,
        jax.lax.dot_general_p,
        (a, b),
        dimension_numbers=numbers,
        precision=precision,
        preferred_element_type=_dtype(preferred_element_type),
        out_sharding=out_sharding,
    )
    return matmul_op(a, b, bias, scale, residual, **params, **epilogue)


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
    bias: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    activation: str | None = None,
    out_dtype: Any = None,
) -> jax.Array:
    """Multiply matrices or stacks of them, and finish the product.

    `jax.numpy.matmul(a, b)` with an epilogue: `activation(a @ b * scale + bias) +
    residual`, cast to `out_dtype`.

    **Arguments:**

    - `a`: `[..., m, k]` or `[k]`.
    - `b`: `[..., k, n]` or `[k]`; leading dimensions broadcast against those of `a`.
    - others: as `dot_general` takes them.

    **Returns:** `[..., m, n]`, without `m` or `n` where `a` or `b` is a vector.

    **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.

    >>> matmul(jnp.ones((5, 2, 3)), jnp.ones((3, 4)), bias=jnp.ones(4)).shape
    (5, 2, 4)
    """
    a, b = matmul_op.array(0, a), matmul_op.array(1, b)
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: a is {show(a)} and b is {show(b)}; scalars have no dimension to "
            "sum over, multiply with *"
        )
    if a.dtype != b.dtype:
        dtype = jnp.promote_types(a.dtype, b.dtype)
        a, b = a.astype(dtype), b.astype(dtype)
    inner = max(b.ndim - 2, 0)
    if a.shape[-1] != b.shape[inner]:
        raise ShapeError(
            f"matmul: the last dimension of a, {show(a)}, is {a.shape[-1]}, but "
            f"dimension {inner} of b, {show(b)}, is {b.shape[inner]}; transpose or "
            "reshape one of them"
        )
    batch: tuple[int, ...] = ()
    if b.ndim > 2:
        a, b = _stacked(a, b)
        batch = tuple(range(max(a.ndim - 2, 0)))
        inner = b.ndim - 2
    return dot_general(
        a,
        b,
        (((a.ndim - 1,), (inner,)), (batch, batch)),
        precision,
        preferred_element_type,
        out_sharding,
        bias=bias,
        scale=scale,
        residual=residual,
        activation=activation,
        out_dtype=out_dtype,
    )


def _stacked(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Give both operands the same leading dimensions; a vector `a` needs none."""
    if a.ndim == 1:
        return a, b
    try:
        shape = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise ShapeError(
            f"matmul: the leading dimensions of a, {show(a)}, and b, {show(b)}, do not "
            "broadcast; they must be equal or 1"
        ) from error
    return tuple(  # pyright: ignore[reportReturnType]
        x if x.shape[:-2] == shape else jnp.broadcast_to(x, (*shape, *x.shape[-2:]))
        for x in (a, b)
    )


def _tuples(numbers) -> DimensionNumbers:
    try:
        (ac, bc), (ab, bb) = numbers
        found = [tuple(int(d) for d in dims) for dims in (ac, bc, ab, bb)]
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"matmul: dimension_numbers={numbers!r}; it must be ((contracted of a, "
            "contracted of b), (batch of a, batch of b)), each a sequence of integers"
        ) from error
    return (found[0], found[1]), (found[2], found[3])


def _dtype(dtype: Any):
    return None if dtype is None else jnp.dtype(dtype)


def _linear(given, params) -> tuple[int, ...]:
    """Without bias, activation and residual it is linear in a, b and the scale."""
    affine = given[2] or given[4] or params["activation"] is not None
    return () if affine else (0, 1, 3)


def _backward(operands, saved, cotangents, *, activation, out_dtype, **dot):
    """The cotangent of the sum goes into two products; what it needs is recomputed."""
    a, b, bias, scale, residual = operands
    del saved
    (ct,) = cotangents
    wide, _ = matmul_epilogue.dtypes_of(
        a, b, bias, scale, residual, activation, out_dtype, dot
    )
    d = ct.astype(wide)
    d_residual = None if residual is None else d.astype(residual.dtype)
    total = None
    if activation is not None or scale is not None:
        (total,) = retile.evaluate(
            lambda a, b: [matmul_epilogue.sum_of(a, b, dot).astype(wide)], a, b
        )
    if activation is not None:
        z = matmul_epilogue.pre_activation(total, bias, scale)
        (d,) = jax.vjp(lambda z: activate(activation, z), z)[1](d)
    rows = tuple(range(d.ndim - 1))
    d_bias = None if bias is None else jnp.sum(d, rows).astype(bias.dtype)
    d_scale = None
    if scale is not None:
        d_scale = jnp.sum(d * total, rows if scale.ndim else None).astype(scale.dtype)
        d = d * matmul_epilogue.along_last(scale, d)
    d_a, d_b = _backward_of_sum(a, b, d, dot)
    return d_a, d_b, d_bias, d_scale, d_residual


def _backward_of_sum(a, b, d, dot):
    """Two products, in the operands' own dtype, as those of a product without end."""
    dtype = jnp.promote_types(a.dtype, b.dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return None, None
    dot = {**dot, "preferred_element_type": None, "activation": None, "out_dtype": None}
    grads = []
    for at, x in enumerate((a, b)):
        operands = [None if i == at else y for i, y in enumerate((a, b))]
        grad = None
        if jnp.issubdtype(x.dtype, jnp.floating):
            aval = jax.typeof(x)
            grad = retile.transpose_of(
                matmul_op, [d.astype(dtype)], operands, at, aval, _PLAIN, dot
            )
        grads.append(grad)
    return grads


def _apart(call: Call, params):
    """The product with its bias, and plain equations for what comes after.

    A bias or a residual has a gradient that needs nothing of the product.
    """
    if params["activation"] is None and not call.given[3]:
        return None

    def run(*operands):
        a, b, bias, scale, residual = call.expand(operands)
        own = {k: v for k, v in params.items() if k not in ("activation", "out_dtype")}
        wide, out = matmul_epilogue.dtypes_of(
            *(a, b, bias, scale, residual),
            params["activation"],
            params["out_dtype"],
            own,
        )
        total = matmul_epilogue.sum_dtype(a, b, own)
        own["preferred_element_type"] = total
        with_bias = bias is not None and scale is None
        z = matmul_op.bind(
            [a, b, bias] if with_bias else [a, b],
            Call((True, True, with_bias, False, False), target=call.target),
            {**own, "activation": None, "out_dtype": wide if total != wide else None},
        )[0]
        if not with_bias:
            z = matmul_epilogue.pre_activation(z, bias, scale)
        z = activate(params["activation"], z)
        if residual is not None:
            z = z + residual.astype(wide)
        return [z.astype(out)]

    return run


def _transpose(cotangents, operands, at, aval, call, params):
    return retile.transpose_of(matmul_op, cotangents, operands, at, aval, call, params)


def _fold(operands, axes, axis_data, call: Call, params):
    if call.given != _PLAIN.given or params["out_dtype"] is not None:
        return None
    dot, primitive = _as_lax(params), jax.lax.dot_general_p
    return retile.fold_as(primitive, operands, axes, axis_data, dot, call.target)


def _as_lax(params) -> dict:
    return {k: v for k, v in params.items() if k not in ("activation", "out_dtype")}


def _saveable(avals, params):
    del avals
    return jax.lax.dot_general_p, _as_lax(params)


def from_dot_general(params, avals=()) -> tuple:
    """Return the operation and parameters that are an equation `dot_general`.

    **Arguments:**

    - `params`: of the equation.
    - `avals`: its operands' types, not needed.
    """
    del avals
    return matmul_op, {**params, "activation": None, "out_dtype": None}


def _retiled(operands, params, target):
    op, own = from_dot_general(params)
    return op.bind(operands, Call(_PLAIN.given, target=target), own)


matmul_op = define(
    "matmul",
    reference=matmul_epilogue.reference,
    sharding=matmul_dims.rule,
    backward=_backward,
    linear=_linear,
    transpose=_transpose,
    fold=_fold,
    apart=_apart,
    typed_by_reference=True,
    cost=matmul_dims.cost,
    check=matmul_dims.check,
    saveable_as=_saveable,
)
retile.retile(jax.lax.dot_general_p, _retiled)
