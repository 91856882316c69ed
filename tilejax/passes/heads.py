"""Where the dimensions of an attention lie, and how to bring its operands in order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from tilejax._jax.jaxprs import Atom, Eqn
from tilejax.passes.bands import Axes, Part


@dataclass(frozen=True)
class Layout:
    """An attention's dimensions, each named by where it lies in the scores.

    **Arguments:**

    - `operands`: the queries, the keys and the values.
    - `shape`: of the scores.
    - `batch`: the dimensions that queries, keys and values share; the last of them
      counts the heads of the keys.
    - `group`: the other dimensions of the queries but the last: the query heads that
      share a head of keys.
    - `row`: the last of those, which counts queries; None for a single query.
    - `column`: counts keys.
    - `q`, `k`, `v`: for each dimension of the operand in the order batch, group, row or
      column, depth, where it lies in the operand.
    - `out`: for each dimension of the result, where it is in that order.
    """

    operands: tuple[Atom, Atom, Atom]
    shape: tuple[int, ...]
    batch: tuple[int, ...]
    group: tuple[int, ...]
    row: int | None
    column: int
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The row's dimension, if there is one."""
        return () if self.row is None else (self.row,)

    @property
    def grid(self) -> tuple[int, int]:
        """The numbers of queries and of keys."""
        return self._size(*self.rows), self.shape[self.column]

    def queries(self, x: Array) -> Array:
        """Bring the queries to `[batch, query heads, queries, depth]`."""
        heads = self._size(*self.batch[-1:], *self.group)
        x = x.transpose(self.q)
        return x.reshape(self._outer, heads, self.grid[0], x.shape[-1])

    def keys(self, x: Array) -> Array:
        """Bring the keys to `[batch, key heads, keys, depth]`."""
        return self._by_keys(x.transpose(self.k))

    def values(self, x: Array) -> Array:
        """Bring the values to `[batch, key heads, keys, depth]`."""
        return self._by_keys(x.transpose(self.v))

    def like_scores(self, x: Array, part: Part) -> Array:
        """Bring a mask or a bias to `[batch or 1, heads or 1, queries, keys]`."""
        where = {axis: i for i, axis in enumerate(part.axes) if axis is not None}
        outer = self._or_one(self.batch[:-1], where)
        heads = self._or_one((*self.batch[-1:], *self.group), where)
        full = outer | heads | {a: self.shape[a] for a in (*self.rows, self.column)}
        kept = [axis for axis in full if axis in where]
        ones = [i for i, axis in enumerate(part.axes) if axis is None]
        x = x.transpose([*(where[axis] for axis in kept), *ones])
        x = x.reshape([self.shape[axis] if axis in where else 1 for axis in full])
        x = jnp.broadcast_to(x, tuple(full.values()))
        return x.reshape(
            math.prod(outer.values()), math.prod(heads.values()), *self.grid
        )

    def result(self, x: Array) -> Array:
        """Bring `[batch, query heads, queries, depth]` to the order of the result."""
        dims = (*self.batch, *self.group, *self.rows)
        x = x.reshape(*(self.shape[axis] for axis in dims), x.shape[-1])
        return x.transpose(self.out)

    @property
    def _outer(self) -> int:
        return self._size(*self.batch[:-1])

    def _size(self, *axes: int) -> int:
        return math.prod(self.shape[axis] for axis in axes)

    def _by_keys(self, x: Array) -> Array:
        heads = self._size(*self.batch[-1:])
        return x.reshape(self._outer, heads, *x.shape[-2:])

    def _or_one(self, axes: Sequence[int], where: dict) -> dict[int, int]:
        """The sizes of the dimensions, all of them one if a value lies along none."""
        is_one = not any(axis in where for axis in axes)
        return {axis: 1 if is_one else self.shape[axis] for axis in axes}


def layout_of(first: Eqn, axes: Axes, second: Eqn, index: int) -> Layout | str:
    """Read the layout from the two products, or say what attention does not have.

    **Arguments:**

    - `first`: makes the scores; `axes` says where its dimensions lie among those of the
      softmax's operand.
    - `second`: sums values; operand `index` of it is the softmax's result.
    """
    (p_sum, v_sum), (p_batch, v_batch) = _sides(second, index)
    sums, batches = first.params["dimension_numbers"]
    if len(p_sum) != 1 or len(sums[0]) != 1:
        return "its products sum over several dimensions"
    batch, column = axes[: len(batches[0])], p_sum[0]
    places, at = [], len(batch)
    for x, summed, batched in zip(first.invars, sums, batches, strict=True):
        free = _free(x, summed, batched)
        here = (*batch, *axes[at : at + len(free)])
        places.append(dict(zip(here, (*batched, *free), strict=True)))
        at += len(free)
    is_key = [set(place) == {*batch, column} for place in places]
    if not any(is_key) or column in batch:
        return "its keys have other dimensions than the softmax's"
    v = second.invars[1 - index]
    v_free = _free(v, v_sum, v_batch)
    if set(batch) != set(p_batch) or len(v_free) != 1:
        return "its values are no vectors batched as its keys are"
    key = is_key.index(True)
    query = 1 - key
    shared = tuple(sorted(p_batch))
    own = tuple(sorted(set(places[query]) - set(shared)))
    v_place = dict(zip(p_batch, v_batch, strict=True))
    # the result has what the softmax's result keeps, and then or first the depth
    kept = [tuple(range(len(shared), len(shared) + len(own)))]
    kept.insert(1 - index, (len(shared) + len(own),))
    return Layout(
        operands=(first.invars[query], first.invars[key], v),
        shape=tuple(second.invars[index].aval.shape),
        batch=shared,
        group=own[:-1],
        row=own[-1] if own else None,
        column=column,
        q=(*(places[query][a] for a in (*shared, *own)), sums[query][0]),
        k=(*(places[key][a] for a in (*shared, column)), sums[key][0]),
        v=(*(v_place[a] for a in shared), v_sum[0], v_free[0]),
        out=(*(shared.index(a) for a in p_batch), *kept[0], *kept[1]),
    )


def _sides(eqn: Eqn, index: int):
    """The dimension numbers with operand `index` first."""
    contract, batch = eqn.params["dimension_numbers"]
    step = -1 if index else 1
    return contract[::step], batch[::step]


def _free(atom: Atom, contract, batch) -> tuple[int, ...]:
    rank = len(atom.aval.shape)
    return tuple(i for i in range(rank) if i not in (*contract, *batch))
