"""Raising attention: a product, a softmax over its scores, and a second product."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp
from jax import Array

from tilejax._jax.jaxprs import (
    Atom,
    Eqn,
    Program,
    consts,
    new_outvars,
    renamed,
    with_,
)
from tilejax.ir import rewrite, source
from tilejax.passes.bands import Axes, Mask, MaskReader, Part
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.scores import Scores, follow, read_masks
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.attention import attention_op


def raise_attention(program: Program) -> Program:
    """Turn attention, as `jax.nn.dot_product_attention` spells it, into one operation.

    **Rewrite:**

        s = dot_general q k
        p = tiled_softmax (select mask (add (mul s scale) bias))
        o = dot_general p v                --->   o lse = tiled_attention q k v bias

    Dimensions may come in any order. One whose probabilities are used elsewhere too (by
    a derivative) is left alone, since they would be computed all the same.

    **Arguments:**

    - `program`: Any program. It is not changed.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, _raise)


def _raise(body: Program, has_room: bool) -> Program:
    del has_room  # nothing gets constants
    if not any(eqn.primitive.name == "tiled_softmax" for eqn in body.eqns):
        return body
    names: dict = {}
    eqns: list[Eqn] = []
    definitions, uses = Definitions(), Uses(body)
    known = dict(zip(body.constvars, consts(body), strict=True))
    for old in body.eqns:
        definitions.add(old)
        made = _made(old, definitions, uses, known)
        if made is None:
            eqns.append(old)
            continue
        eqns += made[0]
        names[old.outvars[0]] = made[1][0]
    if not names:
        return body
    eqns = [renamed(eqn, names) for eqn in eqns]
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


def _made(eqn: Eqn, definitions: Definitions, uses: Uses, known: dict):
    found = _match(eqn, definitions, known)
    if found is None:
        return None
    if isinstance(found, str):
        note(f"left attention at {source(eqn)}: {found}")
        return None
    if uses.outside((*found.inner, eqn)):
        note(f"left attention at {source(eqn)}: its probabilities are used elsewhere")
        return None
    made = splice(found.apply, found.operands, eqn)
    note("raised attention" if made else "left attention: its type would change")
    return made


def _match(
    eqn: Eqn, definitions: Definitions, known: dict
) -> "_Attention | str | None":
    """Match the second product."""
    if eqn.primitive.name != "dot_general":
        return None
    for index in (0, 1):
        softmax, inner = _softmax_below(eqn.invars[index], definitions)
        if softmax is None:
            continue
        scores = follow(softmax.invars[0], definitions)
        if scores is None or isinstance(scores, str):
            return scores
        made = _Attention(eqn, index, softmax, scores, [*inner, softmax, *scores.inner])
        return made.check() or made.read(definitions, known)
    return None


def _softmax_below(atom: Atom, definitions: Definitions):
    inner = []
    while (cast := definitions.of(atom, "convert_element_type")) is not None:
        inner.append(cast)
        atom = cast.invars[0]
    softmax = definitions.of(atom, "tiled_softmax")
    if softmax is None or softmax.params["log"] or softmax.params["call"].levels:
        return None, inner
    return softmax, inner


@dataclass
class _Attention:
    """A match; dimensions are named by where they lie in the scores."""

    second: Eqn
    index: int
    softmax: Eqn
    scores: Scores
    inner: list[Eqn]
    operands: list[Atom] = field(default_factory=list)
    mask: Mask = field(default_factory=Mask)

    def check(self) -> str | None:
        """Say what attention does not have, or None; find the dimensions."""
        (p_sum, v_sum), (p_batch, v_batch) = _sides(self.second, self.index)
        first = self.scores.product
        (a_sum, b_sum), (a_batch, b_batch) = first.params["dimension_numbers"]
        if len(p_sum) != 1 or tuple(self.softmax.params["axes"]) != tuple(p_sum):
            return "its softmax is over another axis than the one summed over"
        if len(a_sum) != 1:
            return "its scores are sums over several dimensions"
        asked = {_precision(e.params["precision"]) for e in (first, self.second)}
        if len(asked) != 1:
            return "its products ask for different precisions"
        a, b = first.invars
        axes = self.scores.axes
        batch = axes[: len(a_batch)]
        a_free = _free(a, a_sum, a_batch)
        a_axes = axes[len(batch) : len(batch) + len(a_free)]
        b_axes = axes[len(batch) + len(a_free) :]
        sides = [(a, a_sum[0], a_batch, a_free, a_axes)]
        sides.append((b, b_sum[0], b_batch, _free(b, b_sum, b_batch), b_axes))
        keys = [s for s in sides if s[4] == (p_sum[0],)]
        if len(keys) != 1 or None in axes:
            return "its keys have other dimensions than the softmax's"
        if set(batch) != set(p_batch):
            return "its values are not batched as its keys are"
        key = keys[0]
        query = next(s for s in sides if s is not key)
        v = self.second.invars[1 - self.index]
        if len(_free(v, v_sum, v_batch)) != 1:
            return "its values are not vectors"
        self._dims(query, key, (v, v_sum[0], v_batch, p_batch), batch, p_sum[0])
        return None

    def _dims(self, query, key, value, batch: Axes, column) -> None:
        self.batch = tuple(sorted(a for a in batch if a is not None))
        rows = sorted(query[4])
        self.group, self.row = tuple(rows[:-1]), (rows[-1] if rows else None)
        self.column = column
        self.operands = [query[0], key[0], value[0]]
        by_axis = dict(zip(batch, query[2], strict=True))
        by_axis |= dict(zip(query[4], query[3], strict=True))
        rest = (*self.group, *(() if self.row is None else (self.row,)))
        self._q = [by_axis[a] for a in (*self.batch, *rest)] + [query[1]]
        by_axis = dict(zip(batch, key[2], strict=True))
        self._k = [by_axis[a] for a in self.batch] + [key[3][0], key[1]]
        by_axis = dict(zip(value[3], value[2], strict=True))
        (free,) = _free(value[0], (value[1],), value[2])
        self._v = [by_axis[a] for a in self.batch] + [value[1], free]

    def read(self, definitions: Definitions, known: dict) -> "_Attention | str":
        """Read masks and biases; their values become operands."""
        row = -1 if self.row is None else self.row
        reader = MaskReader(definitions, known, row, self.column)
        self.mask = read_masks(self.scores, reader)
        low, high = self.mask.low, self.mask.high
        if (low is not None and low > 0) or (high is not None and high < 0):
            return "its band of visible keys is off the diagonal"
        parts = (*self.scores.biases, *self.mask.parts)
        self.operands = [*self.operands, *(p.atom for p in parts)]
        return self

    def apply(self, q: Array, k: Array, v: Array, *rest: Array) -> list[Array]:
        """Compute the second product's result from the operands."""
        scores = self.softmax.invars[0].aval.shape
        heads = scores[self.batch[-1]] if self.batch else 1
        outer = math.prod(scores[a] for a in self.batch[:-1])
        groups = math.prod(scores[a] for a in self.group)
        rows = 1 if self.row is None else scores[self.row]
        depth, width = q.shape[self._q[-1]], v.shape[self._v[-1]]
        columns = scores[self.column]
        count = len(self.scores.biases)
        biases, parts = rest[:count], rest[count:]
        bias = sum(
            (
                self._four(x, p).astype(self.softmax.invars[0].aval.dtype)
                for x, p in zip(biases, self.scores.biases, strict=True)
            ),
            start=jnp.zeros((), self.softmax.invars[0].aval.dtype),
        )
        mask = None
        for x, part in zip(parts, self.mask.parts, strict=True):
            one = self._four(x, part)
            mask = one if mask is None else mask & one
        out, _ = attention_op(
            q.transpose(self._q).reshape(outer, heads * groups, rows, depth),
            k.transpose(self._k).reshape(outer, heads, columns, depth),
            v.transpose(self._v).reshape(outer, heads, columns, width),
            bias if biases else None,
            mask,
            None,
            None,
            **self._options(),
        )
        return [self._result(out, scores, width)]

    def _options(self) -> dict:
        low, high = self.mask.low, self.mask.high
        far = max(self.softmax.invars[0].aval.shape)
        return {
            "scale": self.scores.scale,
            "causal": high == 0 and low is None,
            "window": None
            if low is None and high in (None, 0)
            else (far if low is None else -low, far if high is None else high),
            "soft_cap": None,
            "masked_rows": "uniform",
            "precision": _precision(self.second.params["precision"]),
        }

    def _four(self, x: Array, part: Part) -> Array:
        """Bring a bias or mask to `[batch or 1, heads or 1, rows, columns]`."""
        scores = self.softmax.invars[0].aval.shape
        order = (*self.batch, *self.group)
        last = ((self.row,) if self.row is not None else ()) + (self.column,)
        where = {a: i for i, a in enumerate(part.axes) if a is not None}
        kept = [a for a in (*order, *last) if a in where]
        x = x.transpose(
            [where[a] for a in kept] + [i for i, a in enumerate(part.axes) if a is None]
        ).reshape([scores[a] for a in kept])
        sizes = []
        for axes in (self.batch[:-1], (*self.batch[-1:], *self.group)):
            is_one = not any(a in where for a in axes)
            sizes.append(tuple((a, 1 if is_one else scores[a]) for a in axes))
        full = [*sizes[0], *sizes[1], *((a, scores[a]) for a in last)]
        places = [i for i, (a, _) in enumerate(full) if a in where]
        x = jnp.expand_dims(x, [i for i in range(len(full)) if i not in places])
        x = jnp.broadcast_to(x, [n for _, n in full])
        rows = 1 if self.row is None else scores[self.row]
        flat = [math.prod(n for _, n in group) for group in sizes]
        return x.reshape(*flat, rows, scores[self.column])

    def _result(self, out: Array, scores: Sequence[int], width: int) -> Array:
        rows = (self.row,) if self.row is not None else ()
        dims = (*self.batch, *self.group, *rows)
        out = out.reshape(*(scores[a] for a in dims), width)
        (p_sum, _), (p_batch, _) = _sides(self.second, self.index)
        free = [a for a in range(len(scores)) if a not in (*p_sum, *p_batch)]
        front = [dims.index(a) for a in p_batch]
        sides = [[dims.index(a) for a in free], [len(dims)]]
        if self.index == 1:
            sides.reverse()
        order = [*front, *sides[0], *sides[1]]
        return out.transpose(order).astype(self.second.outvars[0].aval.dtype)


# What jax.nn asks for by itself, which is what attention does anyway.
_USUAL = ("BF16_BF16_F32", "F16_F16_F32", "DEFAULT")


def _precision(asked):
    names = asked if isinstance(asked, tuple) else (asked,)
    usual = all(n is None or str(n).rpartition(".")[2] in _USUAL for n in names)
    return None if usual else asked


def _sides(eqn: Eqn, index: int):
    """The dimension numbers with operand `index` first."""
    contract, batch = eqn.params["dimension_numbers"]
    step = -1 if index else 1
    return contract[::step], batch[::step]


def _free(atom: Atom, contract, batch) -> tuple[int, ...]:
    rank = len(atom.aval.shape)
    return tuple(i for i in range(rank) if i not in (*contract, *batch))
