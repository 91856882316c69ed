"""Factor rules: which dimensions of operands and results are one and the same.

A rule reads like an einsum, with a space between names: `m k, k n -> m n`. A name that
appears on both sides is carried through. A result that lacks a name is the *sum* over
it, so that shards' results can be added; where it is not, the name must be whole.
Marks:

- `n!`: the factor must be whole on each device for a kernel to run (a softmax's axis);
- `h~`: a halo: results need neighbouring elements, and the sizes may differ;
- `h*`: sizes differ, but equal shares of them belong together (grouped heads);
- `1`: a dimension that is no factor (of size one, or made anew);
- `...`: leading dimensions, matched from the right, named by the declaration.

After Shardy's sharding rules (https://openxla.org/shardy/sharding_representation).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilejax.errors import DeclarationError, ShapeError, ShardingError

_NAME = re.compile(r"^([a-z][a-z0-9_]*)([!~*]?)$")
_REST = "..."


@dataclass(frozen=True)
class Rule:
    """Factors of each operand's and each result's dimensions.

    **Arguments:**

    - `operands`, `results`: a tuple a value, a name a dimension; `"1"` is no factor.
    - `whole`: factors that must not be split for a kernel.
    - `halo`: factors whose results need neighbours.
    - `shared`: factors whose sizes differ, equal shares of which belong together.
    """

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    whole: frozenset[str] = frozenset()
    halo: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()

    @property
    def reduced(self) -> frozenset[str]:
        """Factors that operands have and no result does."""
        kept = {f for dims in self.results for f in dims}
        return frozenset(
            f for dims in self.operands for f in dims if f not in kept and f != "1"
        )

    def __str__(self) -> str:
        def show(values):
            return ", ".join(" ".join(self._mark(f) for f in dims) for dims in values)

        return f"{show(self.operands)} -> {show(self.results)}"

    def _mark(self, factor: str) -> str:
        marks = {"!": self.whole, "~": self.halo, "*": self.shared}
        return factor + "".join(m for m, named in marks.items() if factor in named)


@lru_cache(maxsize=4096)
def parse(text: str, ranks: tuple[int, ...] | None = None) -> Rule:
    """Parse a rule, with `...` filled in for operands of the given ranks.

    **Arguments:**

    - `text`: as the module says.
    - `ranks`: the rank of each operand; None only checks the grammar.

    **Raises:** `DeclarationError` for a rule that cannot be read, `ShapeError` if an
    operand's rank does not fit it.

    >>> str(parse("m k, k n -> m n"))
    'm k, k n -> m n'
    >>> str(parse("... n!, n -> ... n!", (3, 1)))
    'rest1 rest0 n!, n! -> rest1 rest0 n!'
    """
    if text.count("->") != 1:
        raise _bad(text, "it needs exactly one '->'")
    left, right = text.split("->")
    operands, results = _values(text, left), _values(text, right)
    if ranks is not None and len(ranks) != len(operands):
        raise ShapeError(
            f"the factor rule {text!r} is for {len(operands)} operands, "
            f"but {len(ranks)} were given"
        )
    depth = _depths(text, operands, ranks)
    marks: dict[str, set[str]] = {"!": set(), "~": set(), "*": set()}

    def dims(tokens: list[str], rest: int) -> tuple[str, ...]:
        names: list[str] = []
        for token in tokens:
            if token == _REST:
                names += [f"rest{i}" for i in reversed(range(rest))]
            elif token == "1":
                names.append(token)
            else:
                name, mark = _NAME.match(token).groups()  # pyright: ignore
                names.append(name)
                if mark:
                    marks[mark].add(name)
        repeated = {n for n in names if n != "1" and names.count(n) > 1}
        if repeated:
            raise _bad(text, f"{sorted(repeated)} appear twice in one value")
        return tuple(names)

    ins = tuple(dims(t, d) for t, d in zip(operands, depth, strict=True))
    outs = tuple(dims(t, max(depth, default=0)) for t in results)
    known = {f for value in ins for f in value}
    unknown = sorted({f for value in outs for f in value} - known - {"1"})
    if unknown:
        raise _bad(text, f"{unknown} appear in a result but in no operand (write 1)")
    return Rule(ins, outs, *(frozenset(marks[m]) for m in "!~*"))


def _values(text: str, side: str) -> list[list[str]]:
    values = [part.split() for part in side.split(",")]
    for tokens in values:
        for token in tokens:
            if token not in (_REST, "1") and not _NAME.match(token):
                raise _bad(
                    text, f"{token!r} is no factor name (a letter, then a-z0-9_)"
                )
        if tokens.count(_REST) > 1 or (_REST in tokens and tokens[0] != _REST):
            raise _bad(text, "'...' stands once, in front")
    return values


def _depths(text, operands, ranks) -> list[int]:
    """How many dimensions each operand's `...` stands for."""
    if ranks is None:
        return [0] * len(operands)
    depths = []
    for at, (tokens, rank) in enumerate(zip(operands, ranks, strict=True)):
        named = sum(t != _REST for t in tokens)
        if rank < named or (rank > named and _REST not in tokens):
            raise ShapeError(
                f"operand {at} has rank {rank}, but the factor rule {text!r} gives it "
                f"{named} dimensions"
            )
        depths.append(rank - named)
    return depths


def _bad(text: str, why: str) -> DeclarationError:
    return DeclarationError(f"the factor rule {text!r} cannot be used: {why}")


def check_sizes(name: str, rule: Rule, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise `ShapeError` if one factor has two sizes among the operands."""
    sizes: dict[str, tuple[int, int]] = {}
    for at, (dims, shape) in enumerate(zip(rule.operands, shapes, strict=True)):
        if len(dims) != len(shape):
            raise ShapeError(
                f"{name}: operand {at} has shape {shape}, but its factor rule "
                f"'{rule}' gives it {len(dims)} dimensions"
            )
        for factor, size in zip(dims, shape, strict=True):
            if factor == "1" or factor in rule.halo | rule.shared:
                continue
            first, seen = sizes.setdefault(factor, (at, size))
            if seen != size:
                raise ShapeError(
                    f"{name}: '{factor}' is {seen} in operand {first} (shape "
                    f"{shapes[first]}) but {size} in operand {at} (shape {shape})"
                )


def result_specs(
    name: str, rule: Rule, specs: Sequence[tuple], forced: bool = False
) -> list[tuple]:
    """Carry the operands' shardings to the results, a spec entry a dimension.

    **Arguments:**

    - `name`: the operation, for messages.
    - `specs`: for each operand an entry a dimension: None, an axis or several.
    - `forced`: the results' shardings are known otherwise; ambiguity is no error.

    **Raises:** `ShardingError` where operands disagree, or where a contracted factor
    is sharded, since it is not clear how the result should be.

    >>> result_specs("matmul", parse("m k, k n -> m n"), [("x", None), (None, "y")])
    [('x', 'y')]
    """
    found: dict[str, tuple[int, object]] = {}
    uses: dict[str, int] = {}
    for at, (dims, spec) in enumerate(zip(rule.operands, specs, strict=True)):
        for factor, entry in zip(dims, spec, strict=True):
            if entry is None or factor == "1":
                continue
            uses[factor] = uses.get(factor, 0) + 1
            first, seen = found.setdefault(factor, (at, entry))
            if seen != entry and not forced:
                raise ShardingError(
                    f"{name}: '{factor}' is sharded over {seen!r} in operand {first} "
                    f"but over {entry!r} in operand {at}; reshard one of them "
                    "(jax.sharding.reshard)"
                )
    for factor in rule.reduced:
        if factor in found and uses[factor] > 1 and not forced:
            raise ShardingError(
                f"{name}: the contracted dimension '{factor}' is sharded over "
                f"{found[factor][1]!r}, so it is ambiguous how the result should be "
                "sharded; pass out_sharding= or reshard an operand"
            )
    entries = {factor: entry for factor, (_, entry) in found.items()}
    results = [tuple(entries.get(f) for f in dims) for dims in rule.results]
    if not forced:
        for spec in results:
            _each_axis_once(name, spec)
    return results


def _each_axis_once(name: str, spec: tuple) -> None:
    axes = [
        a for e in spec if e is not None for a in (e if isinstance(e, tuple) else (e,))
    ]
    if len(axes) != len(set(axes)):
        raise ShardingError(
            f"{name}: the result would be sharded as {spec}, one mesh axis over two "
            "dimensions; reshard an operand (jax.sharding.reshard)"
        )
