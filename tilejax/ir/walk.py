"""Going through a program and the bodies nested in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilejax._jax.jaxprs import Eqn, Program, with_
from tilejax._jax.nested import can_rewrite, holds_constants, nested, with_nested

# Primitives whose body is a kernel: it runs once a grid step, on blocks.
KERNELS = ("pallas_call", "mpmd_map", "core_map")


@dataclass(frozen=True)
class Step:
    """One level of nesting: the enclosing equation and which of its bodies."""

    eqn: Eqn
    body: str

    def __str__(self) -> str:
        name = self.eqn.params.get("name")
        kind = self.eqn.primitive.name
        return f"{kind}[{name}].{self.body}" if name else f"{kind}.{self.body}"


@dataclass(frozen=True)
class Visit:
    """An equation, where it stands, and how often it runs.

    `trips` is the product of the lengths of the enclosing scans, and `None` inside a
    `while`, whose trips nobody knows.
    """

    eqn: Eqn
    path: tuple[Step, ...]
    trips: int | None


@dataclass(frozen=True)
class Total:
    """A sum over a program. It is a lower bound where a `while` was counted once."""

    value: float
    is_exact: bool


def walk(program: Program, *, kernels: bool = False) -> Iterator[Visit]:
    """Yield every equation, each before the equations of its bodies.

    **Arguments:**

    - `program`: Any program.
    - `kernels`: Also enter the bodies of kernels.

    **Returns:**

    An iterator of `Visit`s. Branches of a `cond` follow one another, though only one
    of them runs: see `total`.

    >>> import jax
    >>> from tilejax._jax.jaxprs import trace
    >>> step = lambda carry, x: (carry + 1, x)
    >>> program, _ = trace(lambda xs: jax.lax.scan(step, 0, xs), jax.numpy.ones(5))
    >>> [(visit.eqn.primitive.name, visit.trips) for visit in walk(program)]
    [('scan', 1), ('add', 5)]
    """
    return _walk(program, (), 1, kernels)


def _walk(program, path, trips, kernels) -> Iterator[Visit]:
    for eqn in program.eqns:
        yield Visit(eqn, path, trips)
        if eqn.primitive.name in KERNELS and not kernels:
            continue
        for name, body in nested(eqn):
            inside = _times(trips, _trips(eqn))
            yield from _walk(body, (*path, Step(eqn, name)), inside, kernels)


def _trips(eqn: Eqn) -> int | None:
    name = eqn.primitive.name
    if name == "while":
        return None
    return eqn.params["length"] if name == "scan" else 1


def _times(outer: int | None, inner: int | None) -> int | None:
    return None if outer is None or inner is None else outer * inner


def count(program: Program) -> int:
    """Count the equations of a program and of its bodies, kernels' bodies apart."""
    inside = 0
    for eqn in program.eqns:
        if eqn.primitive.name not in KERNELS:
            for _, body in nested(eqn):
                inside += count(body)
    return len(program.eqns) + inside


def total(program: Program, cost: Callable[[Eqn], float | None]) -> Total:
    """Add up what the equations cost when the program runs.

    A scan's body counts once a trip, a `while`'s once, and of a `cond`'s branches the
    dearest.

    **Arguments:**

    - `program`: Any program.
    - `cost`: What one equation costs. `None` stands for the sum over its bodies.

    **Returns:**

    The sum, and whether it is exact: not so if it passed a `while`, or a `cond` with
    branches that differ.
    """
    value, is_exact = 0.0, True
    for eqn in program.eqns:
        own = cost(eqn)
        part = _total_of_bodies(eqn, cost) if own is None else Total(own, True)
        value += part.value
        is_exact = is_exact and part.is_exact
    return Total(value, is_exact)


def _total_of_bodies(eqn: Eqn, cost) -> Total:
    parts = [total(body, cost) for _, body in nested(eqn)]
    values = [part.value for part in parts]
    is_exact = all(part.is_exact for part in parts)
    if eqn.primitive.name == "cond":
        return Total(max(values), is_exact and len(set(values)) == 1)
    trips = _trips(eqn)
    return Total(sum(values) * (trips or 1), is_exact and trips is not None)


def rewrite(program: Program, change: Callable[[Program, bool], Program]) -> Program:
    """Apply `change` to every body that may change, innermost first, then to the whole.

    **Arguments:**

    - `program`: A closed program.
    - `change`: From a program, and whether it may have constants, to a program with
      the same inputs and outputs. It returns its argument where nothing changes.

    **Returns:**

    The new program; the very same object if nothing changed.
    """
    # A body that several equations share is rewritten once and stays shared. The old
    # body is kept beside the new one, so that its id is not given to another.
    done: dict[tuple[int, bool], tuple[Program, Program]] = {}

    def visit(body: Program, has_room: bool) -> Program:
        key = (id(body), has_room)
        if key not in done:
            eqns = [visit_bodies(eqn) for eqn in body.eqns]
            is_same = all(a is b for a, b in zip(eqns, body.eqns, strict=True))
            inner = body if is_same else with_(body, eqns=eqns)
            done[key] = (body, change(inner, has_room))
        return done[key][1]

    def visit_bodies(eqn: Eqn) -> Eqn:
        if not can_rewrite(eqn):
            return eqn
        old = [body for _, body in nested(eqn)]
        new = [visit(body, holds_constants(eqn)) for body in old]
        is_same = all(a is b for a, b in zip(old, new, strict=True))
        return eqn if is_same else with_nested(eqn, new)

    new = visit(program, True)
    # The two functions hold each other and this, so constants would wait for `gc`.
    done.clear()
    return new
