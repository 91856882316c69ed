"""Which values of a body are kept in memory, and which computed where they are used.

A value is *virtual* until an operation that is a sink needs it: a store, a reduction, a
dot, a loop. A sink opens one loop nest and pulls the whole expression into it. What is
decided here is which values are better, or have to be, written to a tile of scratch
where they are defined.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tilejax.lowering.cpu.cost import cost_of
from tilejax.lowering.tile.operations import ELEMENTWISE
from tilejax.lowering.tile.program import Block, Op, Ref, Value, used, written

VIRTUAL = ELEMENTWISE | {
    *("broadcast", "transpose", "reshape", "slice", "dynamic_slice", "reverse", "pick"),
    *("iota", "constant", "load"),
}
"""Operations whose results can be computed an element at a time."""

SHARED = 6
"""A value that two sinks evaluate is kept from this cost on."""

LOOPED = 3
"""A value that a loop evaluates at each trip is kept from this cost on."""

STRETCHED = 4
"""A value that is stretched, and so evaluated repeatedly, is kept from this cost on."""

LARGE = 200
"""A value used twice is kept from this cost on, whatever its sinks."""


@dataclass
class Plan:
    """What is kept, and why.

    **Arguments:**

    - `kept`: values to store where they are defined, each with the reason.
    - `by_reduction`: values that the reduction which is their first use stores while it
      reduces them.
    - `deferred`: dots that the sink which is their only use computes in place.
    - `uses`: how many operations use each value.
    """

    kept: dict[Value, str] = field(default_factory=dict)
    by_reduction: set[Value] = field(default_factory=set)
    deferred: set[Value] = field(default_factory=set)
    uses: dict[Value, int] = field(default_factory=dict)


def plan(block: Block, storage: Callable[[Ref], int]) -> Plan:
    """Decide for all values of a body and of the bodies inside of it.

    **Arguments:**

    - `storage`: numbers the memory of a whole reference; aliases share a number.
    """
    made = Plan()
    _Body(block, storage, made).decide()
    return made


class _Body:
    def __init__(self, block: Block, storage: Callable, made: Plan):
        self.block, self.storage, self.plan = block, storage, made
        self.users: dict[Value, list[int]] = {}
        self.defined: dict[Value, int] = {}
        ops = block.ops
        for i, op in enumerate(ops):
            for x in dict.fromkeys(used(op)):
                if isinstance(x, Value):
                    self.users.setdefault(x, []).append(i)
            self.defined.update(dict.fromkeys(op.outputs, i))
        for x in dict.fromkeys(block.results):
            self.users.setdefault(x, []).append(len(ops))
        self.writes = [self._storages(written(op)) for op in ops] + [frozenset()]
        self.reads: dict[Value, frozenset[int]] = {}
        self.last: dict[Value, int] = {}
        self.sinks: dict[Value, frozenset[int]] = {}

    def decide(self) -> None:
        for x, found in self.users.items():
            self.plan.uses[x] = len(found)
        for op in self.block.ops:
            self._note_reads(op)
        self._defer_dots()
        for i in reversed(range(len(self.block.ops))):
            for x in self.block.ops[i].outputs:
                self._note_sinks(x)
                if self._is_virtual(x) and self._is_overwritten(x, i):
                    self.plan.kept[x] = "its operands are overwritten before its use"
        costs: dict[Value, int] = {}
        for i, op in enumerate(self.block.ops):
            self._weigh(i, op, costs)
            for inner in op.blocks:
                _Body(inner, self.storage, self.plan).decide()

    def _storages(self, refs: Iterable[Ref]) -> frozenset[int]:
        return frozenset(map(self.storage, refs))

    def _note_reads(self, op: Op) -> None:
        reads = frozenset()
        for x in op.inputs:
            if isinstance(x, Ref):
                reads |= self._storages([x.whole])
            elif x is not None:
                reads |= self.reads.get(x, frozenset())
        for out in op.outputs:
            is_lazy = op.kind in VIRTUAL or op.kind == "dot"
            self.reads[out] = reads if is_lazy and out.shape else frozenset()

    def _maker(self, x) -> Op | None:
        at = self.defined.get(x)
        return None if at is None else self.block.ops[at]

    def _is_virtual(self, x) -> bool:
        op = self._maker(x)
        if op is None or not x.shape:
            return False
        return op.kind in VIRTUAL or x in self.plan.deferred

    def _defer_dots(self) -> None:
        """A dot goes straight to its place: stored, carried, or added to either."""
        for op in self.block.ops:
            if op.kind != "dot":
                continue
            (out,) = op.outputs
            x = out
            user = self._only_user(x)
            if isinstance(user, Op) and user.kind in ("add", "add_any"):
                if user.inputs[0] is user.inputs[1]:
                    continue
                x = user.outputs[0]
                user = self._only_user(x)
            is_stored = (
                isinstance(user, Op)
                and user.kind == "store"
                and user.inputs[1] is x
                and user.inputs[2] is None
                and user.inputs[0].dtype == out.dtype
            )
            if is_stored or user == "result":
                self.plan.deferred.add(out)

    def _only_user(self, x: Value) -> Op | str | None:
        users = self.users.get(x, [])
        if len(users) != 1:
            return None
        if users[0] == len(self.block.ops):
            return "result" if self.block.results.count(x) == 1 else None
        op = self.block.ops[users[0]]
        return op if sum(i is x for i in op.inputs) == 1 else None

    def _note_sinks(self, x: Value) -> None:
        """Where `x` will be evaluated: its users, or where its virtual users are."""
        sinks: set[int] = set()
        for at in self.users.get(x, []):
            outs = self.block.ops[at].outputs if at < len(self.block.ops) else ()
            lazy = [o for o in outs if self._is_virtual(o) and o not in self.plan.kept]
            if lazy:
                sinks |= self.sinks[lazy[0]]
            else:
                sinks.add(at)
        self.sinks[x] = frozenset(sinks)
        self.last[x] = max(sinks, default=-1)

    def _is_overwritten(self, x: Value, at: int) -> bool:
        reads = self.reads[x]
        if not reads:
            return False
        last = self.last[x]
        if any(self.writes[j] & reads for j in range(at + 1, last)):
            return True
        # a store at the end reads before it writes; whether it may, its code checks
        end = self.block.ops[last] if last < len(self.block.ops) else None
        return (
            end is not None and end.kind != "store" and bool(self.writes[last] & reads)
        )

    def _weigh(self, i: int, op: Op, costs: dict[Value, int]) -> None:
        own = cost_of(op)
        inputs = sum(costs.get(x, 0) for x in op.inputs if isinstance(x, Value))
        for x in op.outputs:
            costs[x] = own + inputs if self._is_virtual(x) else 1
            if not self._is_virtual(x) or x in self.plan.deferred:
                continue
            if x not in self.plan.kept:
                reason = self._reason(x, i, costs[x])
                if reason:
                    self.plan.kept[x] = reason
            if x in self.plan.kept:
                costs[x] = 1

    def _reason(self, x: Value, at: int, cost: int) -> str:
        users = self.users.get(x, [])
        ops = [self.block.ops[u] for u in users if u < len(self.block.ops)]
        if cost >= STRETCHED and any(_stretches(op, x) for op in ops):
            return "it is stretched"
        if cost >= LOOPED and any(op.kind in ("for", "while") for op in ops):
            return "a loop reads it at each trip"
        if len(users) < 2:
            return ""
        if len(self.sinks[x]) > 1 and cost >= SHARED:
            first = ops[0] if ops else None
            if (
                first is not None
                and first.kind == "reduce"
                and users[0] < at_end(users)
            ):
                self.plan.by_reduction.add(x)
                return ""
            return "several loops compute it"
        return "it is large and used twice" if cost >= LARGE else ""


def at_end(users: list[int]) -> int:
    """Return the last of the users."""
    return users[-1]


def _stretches(op: Op, x: Value) -> bool:
    return op.kind == "broadcast" and op.outputs[0].shape != x.shape
