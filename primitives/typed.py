"""A linear function of arrays as one equation, whose results' types are given.

Over Explicit axes the derivative of a backward has known types, the operation's own,
but the plain JAX that computes it need not find them: a sum over a sharded dimension is
ambiguous to JAX. So it becomes one equation, `tiled_linear`, which is lowered on plain
types; it is differentiated, transposed and mapped by what it computes.
"""

from collections.abc import Callable, Sequence

import jax

from tilejax._jax import primitives as _p

linear_p = _p.new_primitive("tiled_linear")


def linear(fun: Callable, fixed: Sequence, moving: Sequence, types: Sequence) -> list:
    """Compute `fun(*fixed, *moving)`, linear in `moving`, as one equation.

    **Arguments:**

    - `fun`: from arrays to a list of arrays.
    - `fixed`, `moving`: arrays.
    - `types`: the results' types.
    """
    operands = _p.match_varying(*fixed, *moving)
    return linear_p.bind(*operands, fun=fun, fixed=len(fixed), types=tuple(types))


def _lower(ctx, /, *values, fun, fixed, types):
    del fixed, types
    return _p.lower_plain(ctx, fun, values)


def _jvp(primals, tangents, /, *, fun, fixed, types):
    outs = linear_p.bind(*primals, fun=fun, fixed=fixed, types=types)
    at = [i for i, t in enumerate(tangents) if not isinstance(t, _p.Zero)]
    return outs, linear(
        tangent_of(fun, at, len(primals)),
        primals,
        [tangents[i] for i in at],
        [_p.zero_tangent(t).aval for t in types],
    )


def tangent_of(fun: Callable, at: Sequence[int], count: int) -> Callable:
    """Return `(*primals, *tangents)` to the tangents of `fun`'s results.

    **Arguments:**

    - `at`: which of the `count` primals have tangents.
    """

    def run(*args):
        primals, moving = list(args[:count]), args[count:]

        def of(*values):
            full = list(primals)
            for i, x in zip(at, values, strict=True):
                full[i] = x
            return list(fun(*full))

        return jax.jvp(of, [primals[i] for i in at], list(moving))[1]

    return run


def _transpose(cotangents, /, *operands, fun, fixed, types):
    del types
    at = [i for i, x in enumerate(operands) if _p.is_unknown(x)]
    if any(i < fixed for i in at):
        raise NotImplementedError("tiled_linear is linear in its last operands only")
    avals = [operands[i].aval for i in at]
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    known = list(operands[:fixed])

    def transposed(*args):
        first, cts = args[:fixed], args[fixed:]

        def of(*moving):
            # the others are linear too: they have no part in the gradient
            there = iter(moving)
            rest = (
                next(there) if i in at else jax.numpy.zeros_like(operands[i])
                for i in range(fixed, len(operands))
            )
            return list(fun(*first, *rest))

        return list(jax.linear_transpose(of, *structs)(list(cts)))

    cotangents = [_p.instantiate(c) for c in cotangents]
    grads = iter(
        linear(transposed, known, cotangents, [_p.cotangent_aval(a) for a in avals])
    )
    return [next(grads) if i in at else None for i in range(len(operands))]


def _batch(args, axes, /, *, fun, fixed, types):
    args = [_p.front_axis(x, axis) for x, axis in zip(args, axes, strict=True)]
    mapped = [axis is not None for axis in axes]
    lead = jax.typeof(args[mapped.index(True)])
    outs = linear_p.bind(
        *args,
        fun=jax.vmap(fun, [0 if m else None for m in mapped]),
        fixed=fixed,
        types=tuple(_p.with_front(t, lead) for t in types),
    )
    return outs, [0] * len(outs)


_p.def_types(linear_p, lambda *avals, fun, fixed, types: list(types))
_p.def_lowering(linear_p, _lower)
_p.def_jvp(linear_p, _jvp)
_p.def_transpose(linear_p, _transpose)
_p.def_batching(linear_p, _batch)
