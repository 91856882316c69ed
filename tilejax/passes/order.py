"""Put equations in an order in which fewer bytes are alive at a time."""

import heapq
from collections.abc import Sequence

from tilejax._jax.jaxprs import Eqn, Program, is_literal, with_
from tilejax._jax.nested import nested
from tilejax.ir import rewrite
from tilejax.ir.walk import KERNELS
from tilejax.ir.work import is_sized, nbytes
from tilejax.passes.record import note


def lower_peak(program: Program) -> Program:
    """Reorder equations so that results wait less for those who read them.

    **Rewrite:**

        b = broadcast x          c = reduce_sum y
        c = reduce_sum y   -->   b = broadcast x
        d = reduce_sum b         d = reduce_sum b

    An equation with an effect stays where it is, and all others on their side of it. An
    order is taken only if it is better by a count of the bytes that are alive.

    **Arguments:**

    - `program`: Any closed program. It is not changed.

    **Returns:**

    A program with the same equations.
    """
    return rewrite(program, lambda body, _: _ordered(body))


def peak_bytes(body: Program) -> int:
    """Count the most bytes of results that are alive at a time, inputs not counted.

    A body of an equation counts while the equation runs; so do its results.
    """
    return _Alive(body).peak(body.eqns)


def _ordered(body: Program) -> Program:
    if len(body.eqns) < 3 or not is_sized(body.eqns):
        return body
    alive = _Alive(body)
    eqns, peak = list(body.eqns), alive.peak(body.eqns)
    first = peak
    while True:
        new = alive.sorted(eqns)
        lower = alive.peak(new)
        if lower >= peak:
            break
        eqns, peak = new, lower
    if peak == first:
        return body
    note(f"reordered: at most {peak} instead of {first} bytes alive")
    return with_(body, eqns=eqns)


class _Alive:
    """The results of a body, how large they are, and who reads them."""

    def __init__(self, body: Program):
        self._outputs = {v for v in body.outvars if not is_literal(v)}
        made = {v for eqn in body.eqns for v in eqn.outvars}
        self._reads = {
            id(eqn): {v for v in eqn.invars if not is_literal(v) and v in made}
            for eqn in body.eqns
        }
        self._inside = {id(eqn): _inside(eqn) for eqn in body.eqns}
        self._counts: dict = {}
        for reads in self._reads.values():
            for v in reads:
                self._counts[v] = self._counts.get(v, 0) + 1

    def peak(self, eqns: Sequence[Eqn]) -> int:
        """The most bytes alive at a time in this order."""
        left, now, most = dict(self._counts), 0, 0
        for eqn in eqns:
            now += _bytes(eqn.outvars)
            most = max(most, now + self._inside[id(eqn)])
            now -= self._released(eqn, left)
        return most

    def _released(self, eqn: Eqn, left: dict) -> int:
        """Count what nobody needs after an equation; of `left`, how many still wait."""
        found = 0
        for v in self._reads[id(eqn)]:
            left[v] -= 1
            if not left[v] and v not in self._outputs:
                found += nbytes(v.aval)
        unread = [v for v in eqn.outvars if v not in left and v not in self._outputs]
        return found + _bytes(unread)

    def sorted(self, eqns: Sequence[Eqn]) -> list[Eqn]:
        """An order that always takes the equation after which the least is alive."""
        found: list[Eqn] = []
        left = dict(self._counts)
        part: list[Eqn] = []
        for eqn in (*eqns, None):
            if eqn is not None and not eqn.effects:
                part.append(eqn)
                continue
            for each in _Part(self, part, left).run():
                self._released(each, left)
                found.append(each)
            part = []
            if eqn is not None:
                self._released(eqn, left)
                found.append(eqn)
        return found

    def reads(self, eqn: Eqn) -> set:
        return self._reads[id(eqn)]

    def change(self, eqn: Eqn, left: dict) -> int:
        """The bytes that an equation adds to those alive, or takes."""
        freed = [v for v in self.reads(eqn) if left[v] == 1 and v not in self._outputs]
        return _bytes(eqn.outvars) - _bytes(freed)


class _Part:
    """Equations between two effects."""

    def __init__(self, alive: _Alive, eqns: list[Eqn], left: dict):
        self._alive, self._eqns, self._left = alive, eqns, dict(left)
        own = {v for eqn in eqns for v in eqn.outvars}
        self._waits = [len(alive.reads(eqn) & own) for eqn in eqns]
        self._readers: dict = {}
        for i, eqn in enumerate(eqns):
            for v in alive.reads(eqn):
                self._readers.setdefault(v, set()).add(i)
        self._ready: list[tuple[int, int]] = []

    def run(self) -> list[Eqn]:
        for i, waits in enumerate(self._waits):
            if not waits:
                self._push(i)
        found, done = [], set()
        while self._ready:
            _, i = heapq.heappop(self._ready)
            if i in done:  # it had become better meanwhile
                continue
            done.add(i)
            found.append(self._eqns[i])
            self._finish(i)
        return found

    def _push(self, i: int) -> None:
        change = self._alive.change(self._eqns[i], self._left)
        heapq.heappush(self._ready, (change, i))

    def _finish(self, i: int) -> None:
        eqn = self._eqns[i]
        for v in self._alive.reads(eqn):
            self._left[v] -= 1
            readers = self._readers[v]
            readers.discard(i)
            if self._left[v] == 1 and len(readers) == 1:
                (last,) = readers
                if not self._waits[last]:
                    self._push(last)
        for v in eqn.outvars:
            for reader in self._readers.get(v, ()):
                self._waits[reader] -= 1
                if not self._waits[reader]:
                    self._push(reader)


def _bytes(variables) -> int:
    return sum(nbytes(v.aval) for v in variables)


def _inside(eqn: Eqn) -> int:
    if eqn.primitive.name in KERNELS:
        return 0
    return max((peak_bytes(body) for _, body in nested(eqn)), default=0)
