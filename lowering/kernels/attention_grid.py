"""The operands of attention as blocks of a grid over heads, queries and keys."""

import dataclasses
import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.lowering.kernels.attention_rule import Rule
from tilejax.lowering.kernels.named import named_call
from tilejax.lowering.kernels.tiles import keep_first

Pair = tuple[Any, pl.BlockSpec | None]


@dataclasses.dataclass(frozen=True)
class Step:
    """Where a kernel is: its tile of queries (`row`) and of keys (`column`).

    `first` and `last` say whether it is at an end of the sequential walk. All are read
    before the kernel branches, for a grid index cannot be read inside a branch.
    """

    rule: Rule
    row: jax.Array
    column: jax.Array
    first: jax.Array | bool
    last: jax.Array | bool

    def when_needed(self, body: Callable[[], None]) -> None:
        """Run a body unless its tile has no pair that is seen."""
        needed = self.rule.needed(self.row, self.column)
        if needed is None:
            body()
        else:
            pl.when(needed)(body)

    def real_queries(self, x: jax.Array) -> jax.Array:
        """Zero the rows of a block of queries that lie past the end."""
        rule = self.rule
        if rule.queries % rule.tile_queries == 0:
            return x
        return keep_first(x, 0, rule.queries - self.row * rule.tile_queries)

    def real_keys(self, x: jax.Array) -> jax.Array:
        """Zero the rows of a block of keys or values that lie past the end."""
        rule = self.rule
        if rule.keys % rule.tile_keys == 0:
            return x
        return keep_first(x, 0, rule.keys - self.column * rule.tile_keys)


@dataclasses.dataclass(frozen=True)
class Grid:
    """A walk over batch, key heads, query heads of a group, query tiles and key tiles.

    `order` names the dimensions from the outermost to the innermost: "b", "h", "g", "q"
    and "k". The last `sequential` of them are walked in order, the others in any. Query
    heads are folded to (key heads, group) so that every index map is a plain choice of
    grid indices.
    """

    batch: int
    heads: int
    group: int
    rule: Rule
    order: str
    sequential: int
    interpret: Any

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each dimension, in `order`."""
        rule = self.rule
        sizes = {
            "b": self.batch,
            "h": self.heads,
            "g": self.group,
            "q": pl.cdiv(rule.queries, rule.tile_queries),
            "k": pl.cdiv(rule.keys, rule.tile_keys),
        }
        return tuple(sizes[name] for name in self.order)

    def block(self, shape: tuple[int | None, ...], names: str) -> pl.BlockSpec:
        """Return a spec whose block index is, dimension by dimension, a named one.

        **Arguments:** `shape` of the block, `None` for a squeezed dimension; `names`, a
        character a dimension, "." for index 0.
        """
        places = [None if name == "." else self.order.index(name) for name in names]

        def index_map(*ids):
            return tuple(0 if place is None else ids[place] for place in places)

        return pl.BlockSpec(shape, index_map)

    def query(self, x: jax.Array | jax.ShapeDtypeStruct) -> Pair:
        """Pair an array (batch, query heads, queries, depth) with its blocks."""
        shape = (self.batch, self.heads, self.group, *x.shape[2:])
        block = (None, None, None, self.rule.tile_queries, x.shape[3])
        return _reshape(x, shape), self.block(block, "bhgq.")

    def statistic(self, x: jax.Array | jax.ShapeDtypeStruct) -> Pair:
        """Pair an array (batch, query heads, queries) with its blocks."""
        return self.query(_reshape(x, (*x.shape, 1)))

    def key(self, x: jax.Array | jax.ShapeDtypeStruct) -> Pair:
        """Pair an array (batch, key heads, keys, depth) with its blocks."""
        return x, self.block((None, None, self.rule.tile_keys, x.shape[3]), "bhk.")

    def head(self, x: jax.Array | None) -> Pair:
        """Pair an array (batch, key heads, 1, depth) with its blocks, a head each."""
        if x is None:
            return None, None
        return x, self.block((None, None, 1, x.shape[3]), "bh..")

    def score(self, x: jax.Array | jax.ShapeDtypeStruct | None) -> Pair:
        """Pair a (batch or 1, query heads or 1, queries, keys) with its blocks."""
        if x is None:
            return None, None
        batch, heads = x.shape[:2]
        alone = heads == 1
        fold = (1, 1) if alone else (self.heads, self.group)
        names = ("." if batch == 1 else "b") + (".." if alone else "hg") + "qk"
        block = (None, None, None, self.rule.tile_queries, self.rule.tile_keys)
        return _reshape(x, (batch, *fold, *x.shape[2:])), self.block(block, names)

    def inputs(self, operands: SimpleNamespace) -> dict[str, Pair]:
        """Pair the operands of the forward pass with their blocks."""
        rule, q_segments = self.rule, operands.q_segments
        segments: dict[str, Pair] = {"q_segments": (None, None)}
        segments["kv_segments"] = (None, None)
        if q_segments is not None:
            segments["q_segments"] = (
                q_segments.reshape(self.batch, rule.queries, 1),
                self.block((None, rule.tile_queries, 1), "bq."),
            )
            segments["kv_segments"] = (
                operands.kv_segments.reshape(self.batch, 1, rule.keys),
                self.block((None, 1, rule.tile_keys), "b.k"),
            )
        mask = operands.mask
        return {
            "q": self.query(operands.q),
            "k": self.key(operands.k),
            "v": self.key(operands.v),
            "bias": self.score(operands.bias),
            "mask": self.score(None if mask is None else mask.astype(jnp.int8)),
            **segments,
        }

    def call(self, kernel: Callable, name: str, **parts: Any) -> SimpleNamespace:
        """Run a kernel, a function of a `Step` and of references by name.

        `parts` are the operands of `named_call`.
        """
        return named_call(
            lambda ref: kernel(self._step(), ref),
            grid=self.sizes,
            semantics=("parallel",) * (5 - self.sequential)
            + ("arbitrary",) * self.sequential,
            interpret=self.interpret,
            name=name,
            **parts,
        )

    def _step(self):
        ids = [pl.program_id(axis) for axis in range(5)]
        walked = range(5 - self.sequential, 5)
        return Step(
            self.rule,
            ids[self.order.index("q")],
            ids[self.order.index("k")],
            _every([ids[axis] == 0 for axis in walked]),
            _every([ids[axis] == self.sizes[axis] - 1 for axis in walked]),
        )


def _every(tests):
    return functools.reduce(jnp.logical_and, tests) if tests else True


def _reshape(x, shape):
    if isinstance(x, jax.ShapeDtypeStruct):
        assert math.prod(shape) == math.prod(x.shape), (shape, x.shape)
        return jax.ShapeDtypeStruct(shape, x.dtype)
    return x.reshape(shape)
