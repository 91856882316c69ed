"""Equations with programs in them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax._jax.nested import nested, scan_parts
from tilejax._jax.rebind import jvp_program
from tilejax._jax.symbolic import is_symbolic
from tilejax.passes.padded.axes import Padded, joined, layouts_of
from tilejax.passes.padded.run import plain, refusal, rule, run, shape_of


@rule("jit", "closed_call", "core_call", takes_uniform=True)
def call(frame, eqn, operands):
    """The body in the place of the call."""
    ((_, body),) = nested(eqn)
    return run(body, frame, operands)


@rule("custom_vjp_call")
def custom_vjp(frame, eqn, operands):
    """Its function, where nobody differentiates it."""
    ((_, body),) = nested(eqn)
    shapes = [shape_of(v) for v in (*eqn.invars, *eqn.outvars)]
    if not any(map(is_symbolic, (size for shape in shapes for size in shape))):
        return plain(frame, eqn, [each.x for each in operands])
    if frame.gated:
        raise refusal(
            eqn,
            "a derivative rule of its own may sum over what is not real; put jax.grad "
            "inside the function that is compiled",
        )
    return run(body, frame, operands)


@rule("custom_jvp_call", takes_uniform=True)
def custom_jvp(frame, eqn, operands):
    """Its function and its derivative rule, both on padded arrays."""
    ((_, body),) = nested(eqn)
    fixed, names = eqn.params["num_consts"], list(frame.sizes)
    layouts = [each.layouts for each in operands]
    found: list = []

    def inside(program, sizes, arrays, layouts) -> list[Padded]:
        inner = replace(frame, sizes=dict(zip(names, sizes, strict=True)))
        given = [Padded(x, y) for x, y in zip(arrays, layouts, strict=True)]
        return run(program, inner, given)

    @jax.custom_jvp
    def function(sizes, arrays):
        outs = inside(body, sizes, arrays, layouts)
        found[:] = [out.layouts for out in outs]
        return [out.x for out in outs]

    @function.defjvp
    def derivative(primals, tangents):
        sizes, arrays = primals
        moving = [jnp.issubdtype(x.dtype, jnp.inexact) for x in arrays[fixed:]]
        program, zeros = jvp_program(eqn, [not m for m in moving])
        given = list(compress(tangents[1][fixed:], moving))
        types = layouts[fixed:] + list(compress(layouts[fixed:], moving))
        outs = inside(program, sizes, [*arrays[fixed:], *given], types)
        new = [out.x for out in outs[: len(zeros)]]
        there = (out.x for out in outs[len(zeros) :])
        return new, [
            _zero_tangent(x) if is_zero else next(there)
            for x, is_zero in zip(new, zeros, strict=True)
        ]

    outs = function(list(frame.sizes.values()), [each.x for each in operands])
    return [Padded(x, y) for x, y in zip(outs, found, strict=True)]


def _zero_tangent(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


@rule("remat2", "checkpoint", takes_uniform=True)
def checkpoint(frame, eqn, operands):
    """A checkpoint of what its body becomes."""
    ((_, body),) = nested(eqn)
    layouts: list = []

    def function(*arrays):
        given = [Padded(x, y.layouts) for x, y in zip(arrays, operands, strict=True)]
        outs = run(body, frame, given)
        layouts[:] = [out.layouts for out in outs]
        return [out.x for out in outs]

    again = jax.checkpoint(
        function,
        prevent_cse=eqn.params["prevent_cse"],
        policy=eqn.params["policy"],
    )
    outs = again(*(each.x for each in operands))
    return [Padded(x, y) for x, y in zip(outs, layouts, strict=True)]


@rule("cond")
def cond(frame, eqn, operands):
    """Each branch on its own; results padded alike."""
    index, *rest = operands
    bodies = [body for _, body in nested(eqn)]
    found: list[list] = [[] for _ in bodies]

    def branch(at: int) -> Callable:
        def function(*arrays):
            given = [Padded(x, y.layouts) for x, y in zip(arrays, rest, strict=True)]
            outs = run(bodies[at], frame, given)
            found[at] = [out.layouts for out in outs]
            return [out.x for out in outs]

        return function

    functions = [branch(at) for at in range(len(bodies))]
    outs = jax.lax.switch(index.x, functions, *(each.x for each in rest))
    layouts = [_joined(each, "cond") for each in zip(*found, strict=True)]
    return [Padded(x, y) for x, y in zip(outs, layouts, strict=True)]


def _joined(several: Sequence[tuple], what: str) -> tuple:
    return tuple(joined(list(axis), what) for axis in zip(*several, strict=True))


@rule("scan")
def scan(frame, eqn, operands):
    """Steps that are not real leave what is carried as it was."""
    fixed, carried = scan_parts(eqn)
    ((_, body),) = nested(eqn)
    consts, first, xs = (
        operands[:fixed],
        operands[fixed : fixed + carried],
        operands[fixed + carried :],
    )
    length = eqn.params["length"]
    for at, each in enumerate(xs):
        shape = shape_of(eqn.invars[fixed + carried + at])
        if each.layouts[0] not in (None, "uniform", (shape[0],)):
            raise refusal(eqn, "the steps that are real do not come first")
    inner = [each.layouts[1:] for each in xs]
    kept = {"carry": [each.layouts for each in first], "ys": []}

    def go(carry, rows):
        arrays = [Padded(x, y) for x, y in zip(carry, kept["carry"], strict=True)]
        arrays += [Padded(x, y) for x, y in zip(rows, inner, strict=True)]
        outs = run(body, frame, [*_fresh(consts), *arrays])
        kept["after"] = [out.layouts for out in outs[:carried]]
        kept["ys"] = [out.layouts for out in outs[carried:]]
        return [out.x for out in outs[:carried]], [out.x for out in outs[carried:]]

    def skip(carry, rows):
        types = jax.eval_shape(go, carry, rows)[1]
        return carry, [jnp.zeros(t.shape, t.dtype) for t in types]

    def step(carry, given):
        index, rows = given
        if not is_symbolic(length):
            return go(carry, rows)
        # not a select, through which a gradient of 0 would become NaN
        return jax.lax.cond(index < frame.real(length), go, skip, carry, rows)

    steps = frame.padded(length)
    given = (jnp.arange(steps), [each.x for each in xs])
    start = [each.x for each in first]
    _settle(
        lambda: jax.eval_shape(step, start, jax.tree.map(lambda x: x[0], given)), kept
    )
    after, ys = jax.lax.scan(
        step,
        start,
        given,
        length=steps,
        reverse=eqn.params["reverse"],
        unroll=eqn.params["unroll"],
    )
    front = layouts_of((length,))
    outs = [Padded(x, y) for x, y in zip(after, kept["carry"], strict=True)]
    return outs + [Padded(x, front + y) for x, y in zip(ys, kept["ys"], strict=True)]


def _fresh(values: Sequence[Padded]) -> list[Padded]:
    """Leave behind the masked forms, which belong to another trace."""
    return [Padded(each.x, each.layouts) for each in values]


def _settle(go: Callable[[], Any], kept: dict) -> None:
    """Find layouts of what is carried that one more step leaves as they are."""
    while True:
        go()
        pairs = zip(kept["carry"], kept["after"], strict=True)
        wider = [_joined(pair, "scan") for pair in pairs]
        if wider == kept["carry"]:
            return
        kept["carry"] = wider


@rule("while")
def loop(frame, eqn, operands):
    """What is carried keeps its layout."""
    tests, fixed = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    (_, test), (_, body) = nested(eqn)
    test_consts = operands[:tests]
    body_consts = operands[tests : tests + fixed]
    first = operands[tests + fixed :]
    kept = {"carry": [each.layouts for each in first]}

    def given(carry):
        return [Padded(x, y) for x, y in zip(carry, kept["carry"], strict=True)]

    def goes_on(carry):
        return run(test, frame, [*_fresh(test_consts), *given(carry)])[0].x

    def step(carry):
        outs = run(body, frame, [*_fresh(body_consts), *given(carry)])
        kept["after"] = [out.layouts for out in outs]
        return [out.x for out in outs]

    start = [each.x for each in first]
    _settle(lambda: jax.eval_shape(step, start), kept)
    outs = jax.lax.while_loop(goes_on, step, start)
    return [Padded(x, y) for x, y in zip(outs, kept["carry"], strict=True)]
