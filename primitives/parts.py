"""The three primitives of an operation, as functions, types and factor rules.

- forward: `operands -> results`;
- tangent: `operands, saved results, tangents -> tangents of the results`, linear in the
  tangents;
- backward: `operands, saved results, cotangents -> gradients`, the tangent transposed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax._jax.retiled import ShardingTypeError, result_types, traced
from tilejax.errors import DeclarationError, ShardingError
from tilejax.primitives import factors
from tilejax.primitives.call import Call, Level, batched, batched_rule
from tilejax.primitives.op import Op, plain_shapes

PARTS = ("forward", "tangent", "backward")


def function(op: Op, part: str, call: Call, params: Mapping) -> Callable:
    """Return what a part computes, `vmap`s included: arrays to a list of arrays."""
    plain = {"forward": _forward, "tangent": _tangent, "backward": _backward}[part]
    return batched(plain(op, call, params), call.levels)


def _forward(op: Op, call: Call, params: Mapping) -> Callable:
    return op.flat(call, params)


def _floating(arrays: Sequence) -> list:
    return [x for x in arrays if jnp.issubdtype(x.dtype, jnp.inexact)]


def split_args(op: Op, call: Call, args: Sequence) -> tuple[list, list, list]:
    """Part the operands of a tangent or backward: operands, saved, the linear ones."""
    count, saved = sum(call.given), len(op.saves)
    return (
        list(args[:count]),
        list(args[count : count + saved]),
        list(args[count + saved :]),
    )


def _of_moving(op: Op, call: Call, params: Mapping, operands: Sequence):
    """The reference as a function of the moving operands alone, and those operands."""
    plain = op.flat(call, params)
    at = [i for i, m in enumerate(call.moving) if m]

    def run(*moving):
        full = list(operands)
        for i, x in zip(at, moving, strict=True):
            full[i] = x
        return _floating(plain(*full))

    return run, [operands[i] for i in at]


def _tangent(op: Op, call: Call, params: Mapping) -> Callable:
    def run(*args):
        operands, _, tangents = split_args(op, call, args)
        of, moving = _of_moving(op, call, params, operands)
        return jax.jvp(of, moving, tangents)[1]

    return run


def _backward(op: Op, call: Call, params: Mapping) -> Callable:
    def derived(*args):
        operands, _, cotangents = split_args(op, call, args)
        of, moving = _of_moving(op, call, params, operands)
        return list(jax.vjp(of, *moving)[1](list(cotangents)))

    def declared(*args):
        operands, saved, cotangents = split_args(op, call, args)
        assert op.backward is not None
        found = op.backward(
            call.expand(operands), saved, cotangents, **op.params(params)
        )
        return gradients(op, call, operands, found)

    return derived if op.backward is None else declared


def gradients(op: Op, call: Call, operands: Sequence, found: Sequence) -> list:
    """Pick the wanted gradients, checked against their operands."""
    if not isinstance(found, (tuple, list)):
        raise DeclarationError(
            f"{op.name}: its backward returned {type(found).__name__}, not a tuple of "
            f"gradients for {len(call.given)} operands (None where there is none)"
        )
    if len(found) != len(call.given):
        raise DeclarationError(
            f"{op.name}: its backward returned {len(found)} gradients for "
            f"{len(call.given)} operands (None where there is none)"
        )
    present = [g for g, given in zip(found, call.given, strict=True) if given]
    wanted = []
    for at, (grad, x) in enumerate(zip(present, operands, strict=True)):
        if not call.moving[at]:
            continue
        shape = getattr(grad, "shape", None)
        if shape != x.shape:
            what = f"{grad!r}" if shape is None else f"a gradient of shape {shape}"
            raise DeclarationError(
                f"{op.name}: its backward returned {what} for operand {at} of shape "
                f"{x.shape}"
            )
        wanted.append(grad.astype(x.dtype))
    return wanted


def rule_of(op: Op, part: str, avals: Sequence, call: Call, params: Mapping):
    """Return the factor rule of a part, `vmap`s included; None if op has none."""
    count = sum(call.given)
    operands = members(avals[:count], call)
    plain = op.rule(operands, call, params)
    if plain is None:
        return None
    if part != "forward":
        plain = _derived_rule(op, part, plain, operands, call, params)
    return batched_rule(plain, call.levels)


def members(avals: Sequence, call: Call) -> list:
    """Return the plain types of one member of the `vmap`s, as the op is called."""
    found = []
    for at, a in enumerate(avals):
        depth = sum(level.ins[at] for level in call.levels)
        found.append(_p.ShapedArray(a.shape[depth:], a.dtype, weak_type=a.weak_type))
    return found


def _derived_rule(op, part, plain, operands, call, params) -> factors.Rule:
    shapes, _ = op.signature(tuple(operands), Call(call.given), params)
    floating = tuple(
        dims
        for dims, aval in zip(plain.results, shapes, strict=True)
        if jnp.issubdtype(aval.dtype, jnp.inexact)
    )
    moving = tuple(
        dims for dims, m in zip(plain.operands, call.moving, strict=True) if m
    )
    base = plain.operands + tuple(plain.results[i] for i in op.saves)
    ins, outs = (moving, floating) if part == "tangent" else (floating, moving)
    return replace(plain, operands=base + ins, results=outs)


@lru_cache(maxsize=8192)
def _plain_types(op, part, avals, call, params, settings):
    del settings  # part of the key
    what = "backward" if part == "backward" and op.backward else "reference"
    return plain_shapes(op, what, function(op, part, call, dict(params)), avals)


def types(op: Op, part: str, avals: Sequence, call: Call, params: Mapping) -> list:
    """Return the results' types: shapes, shardings (Explicit axes), varying axes.

    **Raises:** `ShardingError` where the factor rule cannot carry the shardings.
    """
    plain = _plain_types(
        op,
        part,
        tuple(_p.plain(a) for a in avals),
        call,
        tuple(params.items()),
        _p.settings(),
    )
    mesh = _p.mesh_of(avals)
    if mesh is None:
        return plain
    if part == "tangent":
        return _like_results(op, avals, plain, call, params)
    by_reference = part == "forward" and op.is_typed_by_reference(params)
    if by_reference and (_p.explicit_axes(mesh) or any(map(_p.partial_axes, avals))):
        return _reference_types(
            op, tuple(avals), call, tuple(params.items()), _p.settings()
        )
    for at, aval in enumerate(avals):
        if _p.partial_axes(aval):
            raise ShardingError(
                f"{op.name}: operand {at} is {aval.str_short(True)}; reduce it first"
            )
    specs = _specs(op, part, avals, plain, call, params)
    varying = _p.varying_of(avals)
    return [_p.typed(a, mesh, s, varying) for a, s in zip(plain, specs, strict=True)]


def _like_results(op, avals, plain, call, params) -> list:
    """A tangent is sharded as its result is."""
    count = sum(call.given)
    shapes, _ = op.signature(
        tuple(members(avals[:count], call)),
        Call(call.given),
        params,
    )
    levels = tuple(
        Level(level.ins[:count], (True,) * len(shapes)) for level in call.levels
    )
    outs = types(op, "forward", avals[:count], Call(call.given, levels), params)
    varying, mesh = _p.varying_of(avals), _p.mesh_of(avals)
    return [
        _p.typed(a, mesh, _p.spec_of(o), varying)
        for a, o in zip(plain, _floating(outs), strict=True)
    ]


@lru_cache(maxsize=4096)
def _reference_types(op, avals, call, params, settings) -> list:
    """The types that the reference gives for operands of these types."""
    del settings  # part of the key

    def run(*operands):
        out = op.reference(*call.expand(operands), **dict(params))
        return list(out) if isinstance(out, (tuple, list)) else [out]

    try:
        return result_types(traced(batched(run, call.levels), avals))
    except ShardingTypeError as error:
        raise ShardingError(f"{op.name}: {error}") from error


def _specs(op, part, avals, plain, call, params) -> list[tuple]:
    given = [_p.spec_of(a) for a in avals]
    if not any(entry is not None for spec in given for entry in spec):
        specs = [(None,) * a.ndim for a in plain]
    else:
        rule = rule_of(op, part, avals, call, params)
        if rule is None:
            raise ShardingError(
                f"{op.name} has no factor rule, so it takes no sharded operand: "
                "declare sharding= or reshard its operands"
            )
        forced = part == "backward" or params.get("out_sharding") is not None
        specs = factors.result_specs(op.name, rule, given, forced)
    if part == "backward":
        return _like_operands(avals, plain, specs, call)
    asked = params.get("out_sharding")
    if asked is not None and part == "forward":
        spec = tuple(getattr(asked, "spec", asked))
        front = specs[0][: plain[0].ndim - len(spec)] if call.levels else ()
        specs[0] = (*front, *spec, *(None,) * plain[0].ndim)[: plain[0].ndim]
    return specs


def _like_operands(avals, plain, specs, call) -> list[tuple]:
    """A gradient is sharded as its operand is, where they have one shape."""
    moving = [a for a, m in zip(avals, call.moving, strict=False) if m]
    return [
        _p.spec_of(_p.cotangent_aval(a)) if a.shape == out.shape else spec
        for a, out, spec in zip(moving, plain, specs, strict=True)
    ]
