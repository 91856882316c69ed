"""Rules of the primitives that steer: loops, choices, the place in the grid."""

from collections.abc import Callable

import numpy as np

from tilejax._jax import pallas
from tilejax._jax.nested import scan_parts
from tilejax.lowering.table import adding_to
from tilejax.lowering.tile.build import Builder, everything
from tilejax.lowering.tile.program import Ref, Value

RULES: dict[str, Callable] = {}
_rule = adding_to(RULES)


def _alike(x) -> Value:
    return Value(tuple(x.shape), np.dtype(x.dtype))


@_rule("program_id")
def _program_id(b: Builder, eqn, inputs):
    return _place(b, "program_id", eqn)


@_rule("num_programs")
def _num_programs(b: Builder, eqn, inputs):
    return _place(b, "num_programs", eqn)


def _place(b: Builder, kind: str, eqn) -> Value:
    axis = eqn.params["axis"]
    if axis >= len(b.axes):
        raise b.refuse(f"{kind} of dimension {axis} of a grid of {len(b.axes)}")
    return b.value(kind, (), (), np.int32, axis=b.axes[axis])


@_rule("platform_index")
def _platform(b: Builder, eqn, inputs):
    """The branch of `jax.lax.platform_dependent` that is for the target."""
    platforms = eqn.params["platforms"]
    mine = [i for i, names in enumerate(platforms) if names and b.platform in names]
    rest = [i for i, names in enumerate(platforms) if names is None]
    if not mine + rest:
        raise b.refuse(f"a choice of platforms without {b.platform}")
    return b.constant((mine + rest)[0], np.int32)


@_rule("cond")
def _switch(b: Builder, eqn, inputs):
    which, *operands = inputs
    outs = [_alike(v.aval) for v in eqn.outvars]
    blocks = []
    for branch in eqn.params["branches"]:
        with b.body(()) as block:
            block.results = tuple(b.walk(branch, operands))
        blocks.append(block)
    which = b.convert(which, np.int32)
    b.add("switch", [which], outs, blocks=blocks)
    return outs


@_rule("scan")
def _scan(b: Builder, eqn, inputs):
    """Rows of stacked inputs are cut out, rows of stacked results put in."""
    p = eqn.params
    n_consts, n_carry = scan_parts(eqn)
    consts, inits = inputs[:n_consts], inputs[n_consts : n_consts + n_carry]
    stacked = inputs[n_consts + n_carry :]
    avals = [v.aval for v in eqn.outvars[n_carry:]]
    empty = [b.broadcast(b.constant(0, a.dtype), a.shape) for a in avals]
    counter = Value((), np.dtype(np.int32))
    carries = [_alike(x) for x in (*inits, *empty)]
    with b.body((counter, *carries)) as block:
        rows = [_row(b, x, counter) for x in stacked]
        found = b.walk(p["jaxpr"], [*consts, *carries[:n_carry], *rows])
        held = [
            _with_row(b, all_rows, row, counter)
            for all_rows, row in zip(carries[n_carry:], found[n_carry:], strict=True)
        ]
        block.results = (*found[:n_carry], *held)
    outs = [_alike(x) for x in carries]
    params = {"length": p["length"], "reverse": p["reverse"]}
    b.add("for", [*inits, *empty], outs, blocks=[block], **params)
    return outs


def _starts(b: Builder, x: Value, counter: Value) -> list[Value]:
    return [counter, *[b.constant(0, np.int32) for _ in x.shape[1:]]]


def _row(b: Builder, x: Value, counter: Value) -> Value:
    inputs = [x, *_starts(b, x, counter)]
    row = b.value("dynamic_slice", inputs, (1, *x.shape[1:]), x.dtype)
    return b.reshape(row, x.shape[1:])


def _with_row(b: Builder, x: Value, row: Value, counter: Value) -> Value:
    inputs = [x, b.reshape(row, (1, *row.shape)), *_starts(b, x, counter)]
    return b.value("dynamic_update_slice", inputs, x.shape, x.dtype)


@_rule("while")
def _while(b: Builder, eqn, inputs):
    p = eqn.params
    n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
    inits = inputs[n_cond + n_body :]
    blocks = []
    for program, consts in (
        (p["cond_jaxpr"], inputs[:n_cond]),
        (p["body_jaxpr"], inputs[n_cond : n_cond + n_body]),
    ):
        carries = [_alike(x) for x in inits]
        with b.body(tuple(carries)) as block:
            block.results = tuple(b.walk(program, [*consts, *carries]))
        blocks.append(block)
    outs = [_alike(x) for x in inits]
    b.add("while", inits, outs, blocks=blocks)
    return outs


@_rule("debug_callback", "debug_print")
def _print(b: Builder, eqn, inputs):
    told = pallas.print_parts(eqn)
    if told is None:
        raise b.refuse("a callback")
    text, names = told
    values = [b.load(x, everything(x)) if isinstance(x, Ref) else x for x in inputs]
    b.add("print", values, format=text, names=names)
    return ()


@_rule("delay", "debug_barrier", "touch", "add_dependency")
def _nothing(b: Builder, eqn, inputs):
    return inputs[: len(eqn.outvars)]
