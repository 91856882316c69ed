"""The passes in their order, and the runner that names, times and counts them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tilejax._jax.jaxprs import Program
from tilejax.errors import PassError
from tilejax.ir import count, verify
from tilejax.passes.cse import merge_common
from tilejax.passes.dce import drop_dead
from tilejax.passes.fold import fold_constants
from tilejax.passes.fold_norms import fold_norms
from tilejax.passes.freeze import freeze_weights
from tilejax.passes.fuse import fuse_epilogues
from tilejax.passes.gain import Seconds
from tilejax.passes.in_place import share_memory
from tilejax.passes.inline import inline_calls
from tilejax.passes.join import join_products
from tilejax.passes.layout import settle_layouts
from tilejax.passes.native_pallas import compile_pallas
from tilejax.passes.order import lower_peak
from tilejax.passes.raise_attention import raise_attention
from tilejax.passes.raise_lax import raise_lax
from tilejax.passes.raise_softmax import raise_softmax
from tilejax.passes.record import PassRecord, collecting
from tilejax.passes.simplify import simplify

Pass: TypeAlias = Callable[[Program], Program]

# A pass is a line here. Each takes a program to one with the same inputs, outputs and
# meaning; run alone on its own result it changes nothing.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("inline", inline_calls),
    ("fold", fold_constants),
    ("simplify", simplify),
    ("cse", merge_common),
    ("raise_softmax", raise_softmax),
    ("raise_attention", raise_attention),
    ("raise_lax", raise_lax),
    ("layout", settle_layouts),
    ("fold_norms", fold_norms),
    ("fuse", fuse_epilogues),
    ("join", join_products),
    ("freeze", freeze_weights),
    ("native_pallas", compile_pallas),
    ("dce", drop_dead),
    ("in_place", share_memory),
    ("order", lower_peak),
)

# What each of them is told beside the program.
_TOLD = {
    "simplify": ("fast_math",),
    "raise_attention": ("fast_math",),
    "fold_norms": ("fast_math",),
    "fuse": ("fast_math", "seconds"),
    "join": ("seconds",),
    "in_place": ("donated",),
}

# One pass makes work for another (a merge shows a select of equals), so the passes go
# round until none finds any. A program that needs more rounds is left as it is then.
MAX_ROUNDS = 8

Choice: TypeAlias = Sequence[str | Pass] | Mapping[str, bool] | None


def run(
    program: Program,
    passes: Choice = None,
    *,
    fast_math: bool = False,
    seconds: Seconds | None = None,
    donated: frozenset[int] = frozenset(),
) -> tuple[Program, list[PassRecord]]:
    """Run passes over a program until none of them changes it.

    **Arguments:**

    - `program`: A closed program, as `tilejax._jax.jaxprs.trace` gives.
    - `passes`: `None` for all; a sequence of names and of functions from a program to
      a program; or a mapping from names to whether they run, the others as usual.
      A function runs once, in its place in the first round.
    - `fast_math`: Let passes use rules that hold for finite real numbers only.
    - `seconds`: A model of how long equations take, for the passes that ask what pays;
      without one they do all that is right.
    - `donated`: Which inputs the caller gives away, by number.

    **Returns:**

    The program, and a record for each run of a pass that changed something, with one
    for each pass in any case.

    **Raises:**

    `PassError` for an unknown name, and for a function that does not give back a valid
    program with the same inputs and outputs.

    >>> from tilejax._jax.jaxprs import trace
    >>> program, _ = trace(lambda x: (x * 1.0 + 0.5) + (x + 0.5), 2.0)
    >>> program, records = run(program, ["simplify", "cse"])
    >>> [eqn.primitive.name for eqn in program.eqns]
    ['add', 'add']
    """
    settings = {"fast_math": fast_math, "seconds": seconds, "donated": donated}
    plan = _plan(passes, settings)
    records: list[PassRecord] = []
    repeated = sum(not step.is_once for step in plan)
    # How many passes have seen the program as it is now. The one that changed it last
    # counts, since a pass finds nothing to do on its own result.
    settled = 0
    size = count(program)
    for turn in range(1, MAX_ROUNDS + 1):
        for step in plan:
            if turn > 1 and (step.is_once or settled >= repeated):
                continue
            new, record = _run_step(step, program, size, turn)
            if new is program:
                settled += not step.is_once
            else:
                settled = 0 if step.is_once else 1
            _add(records, record, is_idle=new is program)
            program, size = new, record.after
        if settled >= repeated:
            break
    return program, records


def without(*names: str) -> dict[str, bool]:
    """Choose all passes but these, as the `passes` of `run`.

    **Raises:**

    `PassError` for a name that no pass has.

    >>> without("fold")
    {'fold': False}
    """
    for name in names:
        _find(name)
    return dict.fromkeys(names, False)


def check_choice(passes: Choice) -> None:
    """Raise `PassError` unless `run` can take the choice of passes."""
    _plan(passes, dict.fromkeys(("fast_math", "seconds", "donated")))


@dataclass(frozen=True)
class _Step:
    name: str
    change: Pass
    is_once: bool


def _plan(passes: Choice, settings: Mapping) -> list[_Step]:
    if isinstance(passes, str):
        passes = (passes,)
    if passes is None:
        passes = {}
    if isinstance(passes, Mapping):
        for name in passes:
            _find(name)
        passes = [name for name, _ in PASSES if passes.get(name, True)]
    if not isinstance(passes, Sequence):
        raise PassError(
            f"passes={passes!r}: give None, names and functions, or a mapping from "
            "names to whether they run"
        )
    return [_step(each, settings) for each in passes]


def _step(each: str | Pass, settings: Mapping) -> _Step:
    if callable(each):
        name = getattr(each, "__name__", type(each).__name__)
        return _Step(name, each, is_once=True)
    change = _find(each)
    told = {name: settings[name] for name in _TOLD.get(each, ())}
    if told:
        change = partial(change, **told)
    return _Step(each, change, is_once=False)


def _find(name: str) -> Pass:
    table = dict(PASSES)
    if name not in table:
        raise PassError(
            f"there is no pass {name!r}; the passes are {', '.join(table)}. A pass of "
            "your own is given as a function from a program to a program"
        )
    return table[name]


def _run_step(
    step: _Step, program: Program, size: int, turn: int
) -> tuple[Program, PassRecord]:
    start = time.perf_counter()
    with collecting() as notes:
        new = step.change(program)
    seconds = time.perf_counter() - start
    if step.is_once:
        _check(step.name, program, new)
    after = size if new is program else count(new)
    return new, PassRecord(step.name, size, after, seconds, dict(notes), turn)


def _check(name: str, old: Program, new: Program) -> None:
    """Refuse what a user's function gives back, unless it can stand for `old`."""
    if not all(hasattr(new, part) for part in ("eqns", "invars", "outvars", "consts")):
        raise PassError(
            f"pass {name!r} returned {type(new).__name__}; it must return a program"
        )
    for part in ("invars", "outvars"):
        had, has = ([str(v.aval) for v in getattr(p, part)] for p in (old, new))
        if had != has:
            raise PassError(
                f"pass {name!r} changed the {part} from ({', '.join(had)}) to "
                f"({', '.join(has)}); a pass must keep their number and types"
            )
    verify(new, name=name)


def _add(records: list[PassRecord], record: PassRecord, *, is_idle: bool) -> None:
    """Add a record; of a pass that found nothing to do any more, only its seconds."""
    if not is_idle or record.round == 1:
        records.append(record)
        return
    last = max(i for i, r in enumerate(records) if r.name == record.name)
    seconds = records[last].seconds + record.seconds
    records[last] = replace(records[last], seconds=seconds)
