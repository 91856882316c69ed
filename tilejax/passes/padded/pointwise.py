"""Equations that compute each element by itself, or make arrays of one value."""

import jax
import jax.numpy as jnp

from tilejax._jax.symbolic import is_symbolic
from tilejax.passes.padded.axes import UNIFORM, Padded, joined, mask
from tilejax.passes.padded.run import is_moving, plain, refusal, rule, shape_of

_POINTWISE = (
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e "
    "cbrt ceil clamp clz complex conj convert_element_type copy copy_p cos cosh "
    "digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac imag "
    "integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg "
    "nextafter not or polygamma population_count pow real reduce_precision rem round "
    "rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin "
    "sinh sqrt square stop_gradient sub tan tanh xor"
)


@rule(*_POINTWISE.split(), takes_uniform=True)
def pointwise(frame, eqn, operands):
    """Operands of rank 0, and axes of size 1, count for all elements."""
    shape = shape_of(eqn.outvars[0])
    full = [each for each in operands if len(each.layouts) == len(shape)]
    layouts = [
        joined([each.layouts[d] for each in full], eqn.primitive.name)
        for d in range(len(shape))
    ]
    arrays = [each.x for each in operands]
    if frame.gated and any(layout not in (None, UNIFORM) for layout in layouts):
        pairs = zip(operands, eqn.invars, strict=True)
        arrays = [
            _spread(frame, each, layouts, shape) if is_moving(atom) else each.x
            for each, atom in pairs
        ]
    return plain(frame, eqn, arrays, layouts)


def _spread(frame, value, layouts, shape):
    """Zero an operand where its one element along an axis meets what is not real."""
    x, own = value.x, value.layouts
    if len(own) != len(shape):
        x, own = jnp.reshape(x, (1,) * len(shape)), (None,) * len(shape)
    new = [
        d
        for d, layout in enumerate(layouts)
        if layout not in (None, UNIFORM) and own[d] in (None, UNIFORM)
    ]
    if not new:
        return value.x
    full = [frame.padded(shape[d]) if d in new else n for d, n in enumerate(x.shape)]
    x = jnp.broadcast_to(x, full)
    there = tuple(layouts[d] if d in new else None for d in range(len(shape)))
    return mask(frame, Padded(x, there), shape, 0, new)


@rule("bitcast_convert_type", takes_uniform=True)
def bitcast(frame, eqn, operands):
    """One element for one: of a dtype as wide."""
    (value,) = operands
    if len(shape_of(eqn.outvars[0])) != len(value.layouts):
        raise refusal(eqn, "elements of another width")
    return plain(frame, eqn, [value.x], value.layouts)


@rule("optimization_barrier", takes_uniform=True)
def barrier(frame, eqn, operands):
    """As many results as operands, each as it was."""
    outs = plain(frame, eqn, [each.x for each in operands])
    pairs = zip(outs, operands, strict=True)
    return [Padded(out.x, each.layouts) for out, each in pairs]


@rule("broadcast_in_dim", takes_uniform=True)
def broadcast(frame, eqn, operands):
    """New axes have one value along them; others stay as they were."""
    (value,), (out,) = operands[:1], eqn.outvars
    shape, sizes = shape_of(out), shape_of(eqn.invars[0])
    dims = eqn.params["broadcast_dimensions"]
    layouts = [UNIFORM if is_symbolic(size) else None for size in shape]
    for at, d in enumerate(dims):
        if is_symbolic(sizes[at]):
            layouts[d] = value.layouts[at]
    x = jax.lax.broadcast_in_dim(value.x, frame.static(shape), dims)
    return [Padded(x, tuple(layouts))]


@rule("iota")
def iota(frame, eqn, operands):
    """Counting along an axis; the others have one value along them."""
    if operands:
        raise refusal(eqn, "its size is a value")
    shape, along = shape_of(eqn.outvars[0]), eqn.params["dimension"]
    layouts = [
        None if not is_symbolic(size) else (size,) if d == along else UNIFORM
        for d, size in enumerate(shape)
    ]
    return plain(frame, eqn, [], layouts)


@rule("dim_as_value")
def size_as_value(frame, eqn, operands):
    """The real size: the divisor of a mean, the end of an axis."""
    del operands
    size = jnp.asarray(frame.real(eqn.params["dim"]), eqn.outvars[0].aval.dtype)
    return [Padded(size, ())]


@rule("random_bits")
def random_bits(frame, eqn, operands):
    """Bits depend on an element's index alone, and on it only along the first axis."""
    shape = eqn.params["shape"]
    by_index = jax.config.jax_threefry_partitionable  # pyright: ignore
    if any(map(is_symbolic, shape[1:])) or not by_index:
        raise refusal(
            eqn,
            "random numbers along a padded axis other than the first would be others "
            "than without padding",
        )
    return plain(frame, eqn, [each.x for each in operands])
