"""Rules of the primitives that compute values: one a primitive of JAX."""

import math
from collections.abc import Callable

import numpy as np

from tilejax._jax.nested import nested
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.build import Builder
from tilejax.lowering.tile.operations import ELEMENTWISE
from tilejax.lowering.tile.program import Value
from tilejax.lowering.tile.through import reinterpreted, repacked

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def _out(eqn, at: int = 0):
    return eqn.outvars[at].aval


# What the emitters need of the parameters of element-wise primitives.
_PARAMS = ("y", "exponent", "mantissa_bits", "exponent_bits", "rounding_method")


@_rule(*ELEMENTWISE)
def _elementwise(b: Builder, eqn, inputs):
    kind, aval = eqn.primitive.name, _out(eqn)
    params = {k: v for k, v in eqn.params.items() if k in _PARAMS}
    same = [b.broadcast(x, aval.shape) for x in inputs]
    if kind in ("copy", "copy_p", "stop_gradient"):
        return same[0]
    if kind == "bitcast_convert_type" and inputs[0].shape != aval.shape:
        return reinterpreted(b, inputs[0], aval.shape, aval.dtype)
    return b.value(kind, same, aval.shape, aval.dtype, **params)


@_rule("bitcast")
def _bitcast(b: Builder, eqn, inputs):
    return repacked(b, inputs[0], _out(eqn).dtype)


@_rule("jit", "pjit", "closed_call", "core_call", "call", "eval_jaxpr")
@_rule("custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2", "remat")
def _call(b: Builder, eqn, inputs):
    ((_, body), *_) = nested(eqn)
    return b.walk(body, inputs)


@_rule("pvary", "pcast", "optimization_barrier", "layout_constraint", "multiple_of")
@_rule("max_contiguous", "reshard", "mesh_cast", "sharding_constraint")
def _same(b: Builder, eqn, inputs):
    return inputs[: len(eqn.outvars)]


@_rule("broadcast_in_dim")
def _broadcast(b: Builder, eqn, inputs):
    dims = eqn.params["broadcast_dimensions"]
    return b.broadcast(inputs[0], _out(eqn).shape, dims)


@_rule("broadcast_to")
def _broadcast_to(b: Builder, eqn, inputs):
    return b.broadcast(inputs[0], _out(eqn).shape)


@_rule("reshape", "squeeze", "expand_dims")
def _reshape(b: Builder, eqn, inputs):
    if eqn.params.get("dimensions") and eqn.primitive.name == "reshape":
        raise b.refuse("a reshape that transposes")
    return b.reshape(inputs[0], _out(eqn).shape)


@_rule("transpose")
def _transpose(b: Builder, eqn, inputs):
    order = tuple(eqn.params["permutation"])
    if order == tuple(range(len(order))):
        return inputs[0]
    aval = _out(eqn)
    return b.value("transpose", inputs, aval.shape, aval.dtype, permutation=order)


@_rule("iota")
def _iota(b: Builder, eqn, inputs):
    aval = _out(eqn)
    dimension = eqn.params["dimension"]
    if aval.dtype.kind in "iu":
        return b.value("iota", (), aval.shape, aval.dtype, dimension=dimension)
    counts = b.value("iota", (), aval.shape, np.int32, dimension=dimension)
    return b.convert(counts, aval.dtype)


@_rule("tile")
def _tile(b: Builder, eqn, inputs):
    (x,), reps = inputs, eqn.params["reps"]
    apart = [n for size in x.shape for n in (1, size)]
    wide = [n for r, size in zip(reps, x.shape, strict=True) for n in (r, size)]
    return b.reshape(b.broadcast(b.reshape(x, apart), wide), _out(eqn).shape)


@_rule("slice")
def _slice(b: Builder, eqn, inputs):
    aval, p = _out(eqn), eqn.params
    strides = tuple(p["strides"] or (1,) * len(aval.shape))
    starts = tuple(p["start_indices"])
    return b.value(
        "slice", inputs, aval.shape, aval.dtype, starts=starts, strides=strides
    )


@_rule("split")
def _split(b: Builder, eqn, inputs):
    (x,), axis = inputs, eqn.params["axis"]
    outs, start = [], 0
    for var in eqn.outvars:
        starts = [0] * len(x.shape)
        starts[axis] = start
        start += var.aval.shape[axis]
        params = {"starts": tuple(starts), "strides": (1,) * len(x.shape)}
        outs.append(b.value("slice", [x], var.aval.shape, x.dtype, **params))
    return outs


@_rule("concatenate")
def _concatenate(b: Builder, eqn, inputs):
    aval, dimension = _out(eqn), eqn.params["dimension"]
    return b.value("concatenate", inputs, aval.shape, aval.dtype, dimension=dimension)


@_rule("stack")
def _stack(b: Builder, eqn, inputs):
    aval, axis = _out(eqn), eqn.params["axis"]
    one = tuple(1 if d == axis else n for d, n in enumerate(aval.shape))
    parts = [b.reshape(x, one) for x in inputs]
    if len(parts) == 1:
        return parts[0]
    return b.value("concatenate", parts, aval.shape, aval.dtype, dimension=axis)


@_rule("unstack")
def _unstack(b: Builder, eqn, inputs):
    (x,), axis, outs = inputs, eqn.params["axis"], []
    one = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
    for k, var in enumerate(eqn.outvars):
        starts = tuple(k if d == axis else 0 for d in range(len(one)))
        params = {"starts": starts, "strides": (1,) * len(one)}
        row = b.value("slice", [x], one, x.dtype, **params)
        outs.append(b.reshape(row, var.aval.shape))
    return outs


@_rule("pad")
def _pad(b: Builder, eqn, inputs):
    aval = _out(eqn)
    low, high, interior = zip(*eqn.params["padding_config"], strict=True)
    params = {"low": low, "high": high, "interior": interior}
    return b.value("pad", inputs, aval.shape, aval.dtype, **params)


@_rule("rev")
def _reverse(b: Builder, eqn, inputs):
    aval, dims = _out(eqn), tuple(eqn.params["dimensions"])
    return b.value("reverse", inputs, aval.shape, aval.dtype, dimensions=dims)


@_rule("roll")
def _roll(b: Builder, eqn, inputs):
    """Mosaic's rotation: elements move towards higher indices, the last to the first.

    Only the amounts that a program knows when it is compiled become two slices.
    """
    (x, shift), p = inputs, eqn.params
    if p.get("stride") is not None:
        raise b.refuse("a roll with a stride")
    axis, size = p["axis"], x.shape[p["axis"]]
    doubled = list(x.shape)
    doubled[axis] *= 2
    twice = b.value("concatenate", [x, x], doubled, x.dtype, dimension=axis)
    modulus = b.constant(size, shift.dtype)
    amount = b.binary("rem", shift, modulus)
    back = b.binary("sub", modulus, amount)
    starts = [b.constant(0, shift.dtype)] * len(x.shape)
    starts[axis] = back
    return b.value("dynamic_slice", [twice, *starts], x.shape, x.dtype)


@_rule("dynamic_slice")
def _dynamic_slice(b: Builder, eqn, inputs):
    aval = _out(eqn)
    return b.value("dynamic_slice", inputs, aval.shape, aval.dtype)


@_rule("dynamic_update_slice")
def _dynamic_update_slice(b: Builder, eqn, inputs):
    aval = _out(eqn)
    return b.value("dynamic_update_slice", inputs, aval.shape, aval.dtype)


def _reducing(name: str) -> Callable:
    def rule(b: Builder, eqn, inputs):
        (x,), aval = inputs, _out(eqn)
        axes = tuple(eqn.params["axes"])
        if not axes:
            return x
        return b.value("reduce", [x], aval.shape, aval.dtype, op=name, axes=axes)

    return rule


for _name in ("sum", "prod", "max", "min", "and", "or", "xor"):
    RULES[f"reduce_{_name}"] = _reducing(_name)


@_rule("argmax", "argmin")
def _arg_reduce(b: Builder, eqn, inputs):
    aval, (axis,) = _out(eqn), eqn.params["axes"]
    name = eqn.primitive.name
    return b.value("arg_reduce", inputs, aval.shape, aval.dtype, op=name, axis=axis)


def _cumulating(name: str) -> Callable:
    def rule(b: Builder, eqn, inputs):
        aval, p = _out(eqn), eqn.params
        params = {"op": name, "axis": p["axis"], "reverse": p["reverse"]}
        return b.value("cumulate", inputs, aval.shape, aval.dtype, **params)

    return rule


for _name, _op in (
    ("cumsum", "sum"),
    ("cumprod", "prod"),
    ("cummax", "max"),
    ("cummin", "min"),
    ("cumlogsumexp", "logsumexp"),
):
    RULES[_name] = _cumulating(_op)


@_rule("dot_general")
def _dot(b: Builder, eqn, inputs):
    """Sums are kept in the type that JAX says, at least float32 or int32."""
    aval, p = _out(eqn), eqn.params
    wide = _accumulator(aval.dtype)
    dims, precision = p["dimension_numbers"], p["precision"]
    dims = tuple(tuple(tuple(int(d) for d in side) for side in pair) for pair in dims)
    params = {"dims": dims, "precision": _highest(precision)}
    found = b.value("dot", inputs, aval.shape, wide, **params)
    return b.convert(found, aval.dtype)


def _accumulator(dtype: np.dtype) -> np.dtype:
    if dtype.kind in "iub" and dtype.itemsize < 4:
        return np.dtype(np.int32)
    if dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype


def _highest(precision) -> str | None:
    """The name of the precision asked for both operands."""
    if isinstance(precision, tuple):
        precision = precision[0]
    return None if precision is None else str(getattr(precision, "name", precision))


@_rule("sort")
def _sort(b: Builder, eqn, inputs):
    p = eqn.params
    outs = [Value(v.aval.shape, v.aval.dtype) for v in eqn.outvars]
    b.add("sort", inputs, outs, dimension=p["dimension"], keys=p["num_keys"])
    return outs


@_rule("reciprocal")
def _reciprocal(b: Builder, eqn, inputs):
    (x,) = inputs
    one = b.broadcast(b.constant(1, x.dtype), x.shape)
    return b.binary("div", one, x)


def size_of(x: Value) -> int:
    """Return the number of elements."""
    return math.prod(x.shape)
