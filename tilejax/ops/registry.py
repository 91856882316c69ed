"""The table of operations: a record each, declared once, read by whoever needs it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from tilejax.errors import (
    ArgumentError,
    DeclarationError,
    DTypeError,
    ParameterError,
    ShapeError,
    TileJAXError,
)
from tilejax.primitives.sizes import show

Check = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Sample:
    """One use of an operation, for tests and benchmarks.

    **Arguments:**

    - `operands`: types of the arrays, `"f32[2,3] i32[2]"`.
    - `params`: the arguments given by keyword.
    """

    operands: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Operation:
    """A function of arrays that says what is wrong with them before anything runs.

    **Arguments:**

    - `name`: unique in the table, and its name in `tilejax.ops`.
    - `family`: of which file it is.
    - `function`: the meaning, of arrays and static parameters.
    - `doc`: one sentence on what it does.
    - `operands`: the names of what may be given by position; the rest is by keyword.
      A last name with a star stands for any number; `static` are no arrays.
    - `check`: `(name, arguments by name)` raises what a user should read.
    - `oracle`: the same in NumPy, or None where tests have another one.
    - `samples`: uses to try it with.
    """

    name: str
    family: str
    function: Callable
    doc: str
    operands: tuple[str, ...]
    static: frozenset[str] = frozenset()
    check: Check | None = None
    oracle: Callable | None = None
    samples: tuple[Sample, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "__doc__", f"{self.doc}\n\n{self.usage}")
        object.__setattr__(self, "__name__", self.name)

    def __repr__(self) -> str:
        return f"<tilejax.ops.{self.name}>"

    @property
    def usage(self) -> str:
        """How it is called, `sum(x, *, axis=None, ...)`."""
        return f"{self.name}({', '.join((*self.operands, *_by_keyword(self)))})"

    def __call__(self, /, *args, **params) -> Any:
        """Check the arguments, then compute.

        **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ArgumentError`.
        """
        given = self._named(args, params)
        for name, value in given.items():
            self._check_leaves(name, value)
        if self.check is not None:
            self.check(self.name, given)
        try:
            return self.function(*args, **params)
        except (TileJAXError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            raise
        except (TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise self._mistake(error, given) from error

    def _named(self, args: tuple, params: Mapping) -> dict[str, Any]:
        names = list(self.operands)
        if names and names[-1].startswith("*"):
            fixed = len(names) - 1
            given = dict(zip(names, (*args[:fixed], args[fixed:]), strict=False))
        else:
            given = dict(zip(names, args, strict=False))
            if len(args) > len(names):
                raise ArgumentError(
                    f"{self.name} takes {len(names)} arguments by position, but "
                    f"{len(args)} were given; parameters are given by keyword: "
                    f"{self.usage}"
                )
        twice = sorted(set(given) & set(params))
        if twice:
            raise ArgumentError(f"{self.name}: {twice[0]} was given twice")
        known = _parameters(self.function)
        unknown = sorted(set(params) - set(known)) if known is not None else []
        if unknown:
            raise ArgumentError(
                f"{self.name} has no parameter {unknown[0]!r}: {self.usage}"
            )
        return {**given, **params}

    def _check_leaves(self, name: str, value: Any) -> None:
        if name not in self.operands or name in self.static:
            return
        for leaf in jax.tree.leaves(value):
            try:
                jax.typeof(leaf)
            except TypeError:
                raise DTypeError(
                    f"{self.name}: {name} is {leaf!r} of type {type(leaf).__name__}, "
                    f"which is no array; {self.usage}"
                ) from None

    def _mistake(self, error: Exception, given: Mapping) -> TileJAXError:
        shown = ", ".join(shown_arguments(given))
        text = f"{self.name}({shown}): {str(error).splitlines()[0]}; {self.usage}"
        if "dtype" in str(error) or "type float" in str(error):
            return DTypeError(text)
        words = ("shape", "dimension", "axis", "axes", "rank", "ndim", "size", "bounds")
        return (ShapeError if any(w in str(error) for w in words) else ParameterError)(
            text
        )


def shown_arguments(given: Mapping[str, Any]) -> list[str]:
    """Spell arguments for a message, arrays by their types."""
    return [f"{name.lstrip('*')}={_shown(value)}" for name, value in given.items()]


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shown, value))})"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return show(value)
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _parameters(function: Callable) -> Mapping[str, inspect.Parameter] | None:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    kinds = {p.kind for p in found.values()}
    return None if inspect.Parameter.VAR_KEYWORD in kinds else found


def _by_keyword(op: Operation) -> list[str]:
    """The parameters that are not operands, with their defaults."""
    known = _parameters(op.function) or {}
    kinds = {p.kind for p in known.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds and op.operands[-1][0] != "*":
        return []  # a NumPy function, which has `out` and `where`
    found = []
    for at, (name, p) in enumerate(known.items()):
        is_keyword = p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        if not is_keyword or at < len(op.operands):
            continue
        found.append(name if p.default is p.empty else f"{name}={_shown(p.default)}")
    return found


_TABLE: dict[str, Operation] = {}


def declare(
    name: str,
    function: Callable,
    doc: str,
    *,
    family: str,
    operands: str = "x",
    check: Check | None = None,
    oracle: Callable | None = None,
    samples: Sequence[Sample | str] = (),
) -> Operation:
    """Add an operation to the table.

    **Arguments:** those of `Operation`; `operands` with commas between, and `=` after
    the name of one that is no array; a sample without parameters may be its types
    alone.

    **Raises:** `DeclarationError` if the name is taken.
    """
    if name in _TABLE:
        raise DeclarationError(
            f"operation {name!r} is declared twice: in {_TABLE[name].family} and in "
            f"{family}"
        )
    names = [word.strip() for word in operands.split(",")]
    record = Operation(
        name,
        family,
        function,
        doc,
        tuple(word.rstrip("=") for word in names),
        frozenset(word[:-1] for word in names if word[-1] == "="),
        check,
        oracle,
        tuple(Sample(s) if isinstance(s, str) else s for s in samples),
    )
    _TABLE[name] = record
    return record


def operations() -> Mapping[str, Operation]:
    """Return the table: a record for each name.

    >>> from tilejax import ops
    >>> ops.operations()["relu"].usage
    'relu(x)'
    """
    return dict(_TABLE)
