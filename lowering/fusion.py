"""How long XLA takes for plain equations: a model of its fusions over the roofline.

XLA computes chains of element-wise equations, and the producers of a reduction, in one
loop each that reads what is in memory and writes its result. What is in memory: the
operands and results of products, of reductions and of whatever is not element-wise, and
the program's results. An element-wise value that several loops need is computed again
in each of them, and loops over the same arrays that wait for the same things are one.
That is what XLA does at its best, so a kernel that models faster has something to gain.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tilejax._jax.jaxprs import is_literal
from tilejax._jax.nested import nested
from tilejax.ir.work import nbytes, size, work_of
from tilejax.lowering.loops import Loop, Value, closure, joined
from tilejax.lowering.products import conv_seconds, dot_seconds, loop_seconds
from tilejax.targets import Cost, Target, assumed, seconds

# The same values elsewhere, or in another type: nothing is computed or kept for them.
_VIEWS = frozenset(
    "reshape transpose squeeze expand_dims broadcast_in_dim convert_element_type copy "
    "copy_p rev bitcast_convert_type reduce_precision stop_gradient name "
    "optimization_barrier pvary pcast sharding_constraint reshard".split()
)
# Parts of arrays.
_PARTS = frozenset("slice dynamic_slice split".split())
# Element-wise beside what counts as an operation.
_FREE = frozenset("select_n iota pad concatenate is_finite real imag conj".split())
_REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor "
    "argmax argmin".split()
)
_PRODUCTS = ("dot_general", "conv_general_dilated")
_CALLS = frozenset(
    "jit pjit closed_call core_call call eval_jaxpr remat2 checkpoint custom_jvp_call "
    "custom_vjp_call custom_vjp_call_jaxpr custom_lin".split()
)


def seconds_of(program: Any, target: Target) -> float:
    """Model how long XLA takes for a program of plain equations on a target.

    **Arguments:**

    - `program`: A closed program.
    - `target`: Where; figures that its record lacks are as `assumed` has them.

    **Returns:**

    Seconds. A scan counts once a trip, a `while` as one trip, of a `cond` the slowest
    branch.

    >>> import jax, jax.numpy as jnp, tilejax.targets
    >>> from tilejax._jax.jaxprs import trace
    >>> x = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
    >>> program, _ = trace(lambda x: jnp.exp(x - jnp.max(x, 1, keepdims=True)), x)
    >>> time = seconds_of(program, tilejax.targets.get("tpu:v5e"))
    >>> round(time / (3 * 4 * 8192**2 / 819e9), 1)  # two loops read x, one writes
    1.1
    """
    return Model(assumed(target).target).run(program)


class Model:
    """Go through a program, keeping the loops that it takes.

    **Arguments:**

    - `target`: A record without unknown figures.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.loops: list[Loop] = []
        self.others = 0.0

    def run(self, program: Any) -> float:
        """Return the seconds of a whole program."""
        inputs = [Value(float(nbytes(v.aval))) for v in program.invars]
        return self.seconds(self.body(program, inputs))

    def seconds(self, outs: Sequence[Value]) -> float:
        """Return the seconds of all equations so far, with `outs` in memory."""
        for value in dict.fromkeys(outs):
            self.store(value)
        return self.others + sum(self._time(loop) for loop in joined(self.loops))

    def _time(self, loop: Loop) -> float:
        cost = Cost({}, sum(loop.reads.values()), loop.written)
        for value in loop.inside:
            cost = cost + value.work
        return loop_seconds(cost, self.target)

    def _seconds(self, cost: Cost) -> float:
        found = seconds(cost, self.target).seconds
        assert found is not None
        return found

    def body(self, program: Any, inputs: Sequence[Value]) -> list[Value]:
        """Add the equations of a program, and return its results."""
        env: dict = dict(zip(program.invars, inputs, strict=True))
        for var in program.constvars:
            env[var] = Value(float(nbytes(var.aval)))

        def read(atom: Any) -> Value:
            # a literal is part of the code
            return Value(0.0) if is_literal(atom) else env[atom]

        for eqn in program.eqns:
            outs = self.equation(eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in program.outvars]

    def equation(self, eqn: Any, ins: list[Value]) -> list[Value]:
        """Add an equation, and return its results."""
        name = eqn.primitive.name
        if name in _PRODUCTS:
            return self._product(eqn, ins)
        if name in _REDUCTIONS:
            return [self._root(eqn, ins)]
        if name in ("gather", "scatter", "scatter-add", "scatter_add"):
            return self._indexed(eqn, ins)
        bodies = [body for _, body in nested(eqn)]
        if bodies:
            return self._nested(eqn, bodies, ins)
        own = work_of(eqn)
        computed = own.transcendentals or own.elementwise
        if name in _VIEWS | _PARTS | _FREE or (computed and not _is_scan(name)):
            return [self._fused(eqn, out, ins) for out in eqn.outvars]
        return self._opaque(eqn, ins)

    def _fused(self, eqn: Any, out: Any, ins: list[Value]) -> Value:
        name, own = eqn.primitive.name, work_of(eqn)
        return Value(
            float(nbytes(out.aval)),
            stored=False,
            work=_operations(own),
            of=tuple(v for v in ins if v.bytes),
            part=name in _PARTS,
            view=name in _VIEWS,
        )

    def _root(self, eqn: Any, ins: list[Value]) -> Value:
        """A reduction, with all that only it needs, as one loop."""
        inner = self._fused(eqn, eqn.outvars[0], ins)
        return self._loop(inner, inner.bytes)

    def _loop(self, value: Value, written: float) -> Value:
        reads, inside = closure(value)
        level = max((v.level for v in reads), default=0)
        self.loops.append(Loop(level, reads, inside, written))
        return Value(written, level + 1)

    def store(self, value: Value) -> Value:
        """Bring a value into memory unless it is there."""
        return value if value.stored else self._loop(value, value.bytes)

    def _source(self, value: Value) -> Value:
        """The array in memory that a product reads for an operand."""
        seen = value
        while not seen.stored and seen.view and len(seen.of) == 1:
            seen = seen.of[0]
        return seen if seen.stored else self.store(value)

    def _product(self, eqn: Any, ins: list[Value]) -> list[Value]:
        sources = [self._source(v) for v in ins]
        moved = [
            s.bytes / max(1, size(v.aval))
            for s, v in zip(sources, eqn.invars, strict=True)
        ]
        model = dot_seconds if eqn.primitive.name == "dot_general" else conv_seconds
        self.others += model(eqn, (moved[0], moved[1]), self.target)
        return self.results(eqn, sources)

    def results(self, eqn: Any, sources: Iterable[Value]) -> list[Value]:
        """Return results in memory that wait for their sources."""
        level = 1 + max((v.level for v in sources), default=0)
        return [Value(float(nbytes(v.aval)), level) for v in eqn.outvars]

    def _opaque(self, eqn: Any, ins: list[Value]) -> list[Value]:
        sources = [self.store(v) for v in ins]
        self.others += self._seconds(work_of(eqn))
        return self.results(eqn, sources)

    def _indexed(self, eqn: Any, ins: list[Value]) -> list[Value]:
        """Rows by their numbers: what is touched is moved, not the whole array.

        A scatter reads the rows that it adds to, and makes its updates one after the
        other, as two may meet; rows that are read have no such order.
        """
        sources = [self.store(v) for v in ins]
        ids = sources[1].bytes
        if eqn.primitive.name == "gather":
            out = float(nbytes(eqn.outvars[0].aval))
            self.others += self._seconds(Cost({}, out + ids, out))
        else:
            updates = sources[2].bytes
            cost = Cost(
                {}, 2 * updates + ids, updates, elementwise=work_of(eqn).elementwise
            )
            rows = max(
                1, size(eqn.invars[1].aval) // max(1, eqn.invars[1].aval.shape[-1])
            )
            step = self.target.limits.step_seconds or 0.0
            self.others += self._seconds(cost) + rows * step
        return self.results(eqn, sources)

    def _nested(self, eqn: Any, bodies: list, ins: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        if name in _CALLS and len(bodies) == 1 and len(bodies[0].invars) == len(ins):
            return self.body(bodies[0], ins)
        sources = [self.store(v) for v in ins]
        times = [Model(self.target).run(body) for body in bodies]
        if name == "cond":
            self.others += max(times)
        elif name == "scan":
            self.others += sum(times) * eqn.params["length"]
        else:
            self.others += sum(times)
        return self.results(eqn, sources)


def _is_scan(name: str) -> bool:
    return name.startswith(("cum", "reduce_window")) or name == "reduce"


def _operations(cost: Cost) -> Cost:
    return Cost(
        cost.flops, transcendentals=cost.transcendentals, elementwise=cost.elementwise
    )
