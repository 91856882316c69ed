"""`define`: one call that makes an operation and derives everything else from it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from tilejax import targets
from tilejax._jax import primitives as _p
from tilejax._jax.retiled import def_folding
from tilejax.errors import DeclarationError
from tilejax.primitives import factors
from tilejax.primitives.call import Call, Level, batched
from tilejax.primitives.op import Op
from tilejax.primitives.parts import PARTS, function, types
from tilejax.primitives.typed import linear, tangent_of

_OPS: dict[str, Op] = {}
_FUNCTIONS = (
    "reference",
    "backward",
    "transpose",
    "tangent_params",
    "fold",
    "apart",
    "cost",
    "check",
)


def define(name: str, **declaration) -> Op:
    """Declare an operation; its derivatives, `vmap`, types and lowering follow.

    **Arguments:** those of `Op`.

    **Returns:** the operation, to be called with arrays.

    **Raises:** `DeclarationError` for a name that is taken or no identifier, a
    reference that cannot be called, or a factor rule that cannot be read.
    """
    if not name.isidentifier():
        raise DeclarationError(
            f"{name!r} is no name for an operation: use letters, digits and _"
        )
    if name in _OPS:
        raise DeclarationError(
            f"an operation {name!r} is declared already, by "
            f"{_OPS[name].reference.__module__}; choose another name"
        )
    for key in _FUNCTIONS:
        value = declaration.get(key)
        if value is not None and not callable(value):
            raise DeclarationError(f"{name}: {key}= must be a function, not {value!r}")
    if "reference" not in declaration:
        raise DeclarationError(f"{name}: reference= is missing")
    if isinstance(declaration.get("sharding"), str):
        factors.parse(declaration["sharding"])
    op = Op(name, **declaration)
    _derive(op)
    _OPS[name] = op
    return op


def operations() -> dict[str, Op]:
    """Return all declared operations by name."""
    return dict(_OPS)


def operation_of(primitive) -> tuple[Op, str] | None:
    """Return the operation and the part that a primitive is, or None."""
    return _BY_PRIMITIVE.get(primitive)


_BY_PRIMITIVE: dict = {}


def _derive(op: Op) -> None:
    for part in PARTS:
        primitive = getattr(op, f"{part}_p")
        _BY_PRIMITIVE[primitive] = (op, part)
        _p.def_types(primitive, partial(_types, op, part))
        _p.def_batching(primitive, partial(_batch, primitive))
        _p.def_lowering(primitive, partial(_lower, op, part))
        _p.def_checkify(primitive, partial(_function, op, part))
        _p.def_jvp(primitive, partial(_jvp_of_part, op, part))
    if op.fold is not None:
        def_folding(op.forward_p, partial(_fold, op))
    _p.def_jvp(op.forward_p, partial(_jvp, op))
    _p.def_transpose(op.forward_p, partial(_transpose_linear, op))
    _p.def_transpose(op.tangent_p, partial(_transpose_tangent, op))
    _p.def_transpose(op.backward_p, partial(_transpose_backward, op))
    if op.saveable_as is not None:
        _p.def_saveable(op.forward_p, partial(_saveable, op))


def _types(op: Op, part: str, /, *avals, call: Call, **params):
    return types(op, part, avals, call, params)


def _function(op: Op, part: str, all_params: dict) -> Callable:
    params = dict(all_params)
    return function(op, part, params.pop("call"), params)


def _lower(op: Op, part: str, ctx, /, *values, call: Call, **params):
    """Lower the reference, where the program is for the target that was asked for."""
    if call.target is not None:
        for platform in _p.lowering_platforms(ctx):
            targets.for_platform(call.target, platform, op.name)
    return _p.lower_plain(ctx, function(op, part, call, params), values)


def _saveable(op: Op, avals, all_params: dict):
    params = dict(all_params)
    call = params.pop("call")
    assert op.saveable_as is not None
    return op.saveable_as(call.expand(avals), params)


def _batch(primitive, args, axes, /, *, call: Call, **params):
    mapped = tuple(axis is not None for axis in axes)
    args = [_p.front_axis(x, axis) for x, axis in zip(args, axes, strict=True)]
    outs = _results(primitive, args, mapped, call, params)
    level = Level(mapped, (True,) * outs)
    found = primitive.bind(*args, call=call.pushed(level), **params)
    return found, [0] * outs


def _fold(op: Op, axis_data, args, axes, *, call: Call, **params):
    if all(axis is None for axis in axes):
        outs = op.forward_p.bind(*args, call=call, **params)
        return outs, [None] * len(outs)
    if not call.levels:
        assert op.fold is not None
        found = op.fold(args, axes, axis_data, call, params)
        if found is not None:
            return found
    return _batch(op.forward_p, args, axes, call=call, **params)


def _results(primitive, args, mapped, call: Call, params) -> int:
    op, part = _BY_PRIMITIVE[primitive]
    if part == "backward":
        return sum(call.moving)
    count = sum(call.given)
    avals = []
    for at, (x, m) in enumerate(zip(args[:count], mapped[:count], strict=True)):
        depth = m + sum(level.ins[at] for level in call.levels)
        aval = jax.typeof(x)
        avals.append(
            _p.ShapedArray(aval.shape[depth:], aval.dtype, weak_type=aval.weak_type)
        )
    shapes, _ = op.signature(tuple(avals), Call(call.given), params)
    return len(shapes) if part == "forward" else len(_floating(shapes))


def _floating(avals) -> list:
    return [a for a in avals if jnp.issubdtype(a.dtype, jnp.inexact)]


def _jvp(op: Op, primals, tangents, /, *, call: Call, **params):
    if call.apart and op.apart is not None:
        fun = op.apart(replace(call, levels=()), params)
        if fun is not None:
            return _jvp_apart(batched(fun, call.levels), primals, tangents)
    outs = op.forward_p.bind(*primals, call=call, **params)
    moving = tuple(not isinstance(t, _p.Zero) for t in tangents)
    linear = op.linear_in(call, params)
    if set(i for i, m in enumerate(moving) if m) <= set(linear):
        return outs, _jvp_linear(op, primals, tangents, moving, outs, call, params)
    steady = [t for t in tangents if not isinstance(t, _p.Zero)]
    saved = [outs[i] for i in op.saves]
    operands = _p.match_varying(*primals, *saved, *steady)
    floats = [jnp.issubdtype(o.dtype, jnp.inexact) for o in outs]
    found = op.tangent_p.bind(
        *operands, call=_tangent_call(op, call, moving, floats), **params
    )
    there = iter(found)
    return outs, [
        next(there) if floating else _p.zero_tangent(jax.typeof(o))
        for o, floating in zip(outs, floats, strict=True)
    ]


def _jvp_apart(fun: Callable, primals, tangents):
    at = [i for i, t in enumerate(tangents) if not isinstance(t, _p.Zero)]

    def of(*moving):
        full = list(primals)
        for i, x in zip(at, moving, strict=True):
            full[i] = x
        return list(fun(*full))

    moving = [tangents[i] for i in at]
    return jax.jvp(of, [primals[i] for i in at], moving)


def _tangent_call(op: Op, call: Call, moving, floats) -> Call:
    def level(old: Level) -> Level:
        ins = (
            *old.ins,
            *(True for _ in op.saves),
            *(i for i, m in zip(old.ins, moving, strict=True) if m),
        )
        return Level(ins, tuple(o for o, f in zip(old.outs, floats, strict=True) if f))

    levels = tuple(level(x) for x in call.levels)
    return replace(call, levels=levels, moving=moving)


def _jvp_linear(op, primals, tangents, moving, outs, call, params):
    total = [_p.zero_tangent(jax.typeof(o)) for o in outs]
    for at, move in enumerate(moving):
        if move:
            operands = list(primals)
            operands[at] = tangents[at]
            own = params if op.tangent_params is None else op.tangent_params(params, at)
            found = op.bind(operands, call, own)
            total = [_p.add(t, f) for t, f in zip(total, found, strict=True)]
    return total


def _jvp_of_part(op: Op, part: str, primals, tangents, /, *, call: Call, **params):
    """Differentiate a tangent or a backward: by what it computes, in plain JAX."""
    fun = function(op, part, call, params)
    at = [i for i, t in enumerate(tangents) if not isinstance(t, _p.Zero)]
    moving = [tangents[i] for i in at]
    if _p.is_explicit([jax.typeof(x) for x in (*primals, *moving)]):
        outs = getattr(op, f"{part}_p").bind(*primals, call=call, **params)
        avals = [_p.zero_tangent(jax.typeof(o)).aval for o in outs]
        return outs, linear(tangent_of(fun, at, len(primals)), primals, moving, avals)

    def of(*moving):
        full = list(primals)
        for i, x in zip(at, moving, strict=True):
            full[i] = x
        return fun(*full)

    try:
        return jax.jvp(of, [primals[i] for i in at], moving)
    except jax.errors.UnexpectedTracerError:
        # If it is a value of a trace around the declaration, this says whose it is.
        types(op, part, [jax.typeof(x) for x in primals], call, params)
        raise


def _transpose_linear(op: Op, cotangents, /, *operands, call: Call, **params):
    """Transpose the operation itself, in the one operand that is unknown."""
    unknown = [i for i, x in enumerate(operands) if _p.is_unknown(x)]
    if len(unknown) != 1:
        raise NotImplementedError(f"{op.name} is not linear in operands {unknown}")
    (at,) = unknown
    cotangents = [_p.instantiate(c) for c in cotangents]
    aval = operands[at].aval
    if op.transpose is not None and not call.levels:
        known = [None if i == at else x for i, x in enumerate(operands)]
        grad = op.transpose(cotangents, known, at, aval, call, params)
    else:
        fun = function(op, "forward", call, params)

        def of(x):
            return fun(*(x if i == at else k for i, k in enumerate(operands)))

        (grad,) = jax.linear_transpose(of, aval)(cotangents)
    return [grad if i == at else None for i in range(len(operands))]


def _linear_split(op: Op, operands, call: Call):
    fixed = sum(call.given) + len(op.saves)
    return list(operands[:fixed]), list(operands[fixed:])


def _transpose_tangent(op: Op, cotangents, /, *operands, call: Call, **params):
    fixed, linear = _linear_split(op, operands, call)
    if any(_p.is_unknown(x) for x in fixed):
        raise NotImplementedError(
            f"the tangent of {op.name} is linear in tangents only"
        )
    cotangents = [_p.instantiate(c) for c in cotangents]
    wanted = [_p.is_unknown(x) for x in linear]
    there = iter(wanted)
    moving = tuple(m and next(there) for m in call.moving)
    levels = tuple(
        Level(
            (*level.ins[: len(fixed)], *level.outs),
            tuple(i for i, w in zip(level.ins[len(fixed) :], wanted, strict=True) if w),
        )
        for level in call.levels
    )
    args = _p.match_varying(*fixed, *cotangents)
    call = replace(call, levels=levels, moving=moving)
    found = iter(op.backward_p.bind(*args, call=call, **params))
    grads = [next(found) if w else None for w in wanted]
    return [None] * len(fixed) + grads


def _transpose_backward(op: Op, cotangents, /, *operands, call: Call, **params):
    """The transpose of a backward is the tangent again."""
    fixed, linear = _linear_split(op, operands, call)
    if any(_p.is_unknown(x) for x in fixed) or not all(map(_p.is_unknown, linear)):
        raise NotImplementedError(
            f"the backward of {op.name} is linear in all its cotangents together only"
        )
    fun = function(op, "backward", call, params)
    cotangents = [_p.instantiate(c) for c in cotangents]
    grads = jax.linear_transpose(
        lambda *xs: fun(*fixed, *xs), *(x.aval for x in linear)
    )(cotangents)
    return [None] * len(fixed) + list(grads)
