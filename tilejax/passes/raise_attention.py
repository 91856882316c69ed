"""Raising attention: a product, a softmax over its scores, and a second product."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from tilejax._jax.jaxprs import Atom, Eqn, Program, consts, new_outvars, renamed, with_
from tilejax.ir import rewrite, source
from tilejax.passes.bands import Mask, MaskReader
from tilejax.passes.heads import Layout, layout_of
from tilejax.passes.magnitudes import magnitude
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.scores import Scores, follow, read_masks
from tilejax.passes.splice import splice
from tilejax.passes.uses import Uses
from tilejax.primitives.attention import attention_op
from tilejax.primitives.dtypes import FLOATS, accumulator


def raise_attention(program: Program, *, fast_math: bool = False) -> Program:
    """Turn attention, as `jax.nn.dot_product_attention` spells it, into one operation.

    **Rewrite:**

        s = dot_general q k
        p = tiled_softmax (select mask (add (mul s scale) bias))
        o = dot_general p v                --->   o lse = tiled_attention q k v bias

    Dimensions may come in any order. One whose probabilities are used elsewhere too (by
    a derivative) is left alone, since they would be computed all the same.

    **Arguments:**

    - `program`: Any program. It is not changed.
    - `fast_math`: Take it that no bias is -inf or nearly so. A mask then stays apart
      from a bias of unknown size; else it is joined to it, so that a query of whose
      visible keys the bias hides all gets what the user's equations give.

    **Returns:**

    A program with the same inputs and outputs.
    """
    return rewrite(program, lambda body, has_room: _raise(body, fast_math))


def _raise(body: Program, fast_math: bool) -> Program:
    if not any(eqn.primitive.name == "tiled_softmax" for eqn in body.eqns):
        return body
    known = dict(zip(body.constvars, consts(body), strict=True))
    finder = _Finder(Definitions(), Uses(body), known, fast_math)
    names: dict = {}
    eqns: list[Eqn] = []
    for old in body.eqns:
        finder.definitions.add(old)
        made = finder.replaced(old)
        if made is None:
            eqns.append(old)
            continue
        eqns += made[0]
        names[old.outvars[0]] = made[1][0]
    if not names:
        return body
    eqns = [renamed(eqn, names) for eqn in eqns]
    return with_(body, eqns=eqns, outvars=new_outvars(body, names))


@dataclass(frozen=True)
class _Finder:
    """Looks for attention in one body."""

    definitions: Definitions
    uses: Uses
    known: dict
    fast_math: bool

    def replaced(self, eqn: Eqn) -> tuple[list[Eqn], list[Atom]] | None:
        """Return what takes the place of an attention's second product."""
        found = self._match(eqn)
        if found is None:
            return None
        if isinstance(found, str):
            note(f"left attention at {source(eqn)}: {found}")
            return None
        made = splice(found.apply, found.operands, eqn)
        note("raised attention" if made else "left attention: its type would change")
        return made

    def _match(self, eqn: Eqn) -> "_Attention | str | None":
        if eqn.primitive.name != "dot_general":
            return None
        for index in (0, 1):
            softmax, casts = self._softmax_below(eqn.invars[index])
            if softmax is None:
                continue
            scores = follow(softmax.invars[0], self.definitions)
            if scores is None or isinstance(scores, str):
                return scores
            inner = (*casts, softmax, *scores.inner, eqn)
            if self.uses.outside(inner):
                return "its scores or probabilities are used elsewhere too"
            return _mismatch(eqn, index, softmax, casts, scores) or self._read(
                eqn, index, softmax, scores
            )
        return None

    def _softmax_below(self, atom: Atom) -> tuple[Eqn | None, list[Eqn]]:
        """The softmax that a value is, and the casts of it in between."""
        casts = []
        while (cast := self.definitions.of(atom, "convert_element_type")) is not None:
            casts.append(cast)
            atom = cast.invars[0]
        softmax = self.definitions.of(atom, "tiled_softmax")
        if softmax is None or softmax.params["log"]:
            return None, casts
        call = softmax.params["call"]
        return (None if call.levels or call.target else softmax), casts

    def _read(
        self, eqn: Eqn, index: int, softmax: Eqn, scores: Scores
    ) -> "_Attention | str":
        """Read layout, masks and biases; the values of those become operands."""
        layout = layout_of(scores.product, scores.axes, eqn, index)
        if isinstance(layout, str):
            return layout
        if tuple(softmax.params["axes"]) != (layout.column,):
            return "its softmax is over another axis than the one summed over"
        reader = MaskReader(self.definitions, self.known, layout.row, layout.column)
        mask = read_masks(scores, reader)
        if (mask.low or 0) > 0 or (mask.high or 0) < 0:
            return "its band of visible keys is off the diagonal"
        size = 0.0 if self.fast_math else self._size_of_biases(scores)
        if len(scores.biases) > 1 and size > _SMALL:
            return "it adds several biases of unknown size"
        return _Attention(eqn, layout, scores, mask, may_hide=size > _LARGE)

    def _size_of_biases(self, scores: Scores) -> float:
        atoms = [part.atom for part in scores.biases]
        return sum(magnitude(atom, self.definitions, self.known) for atom in atoms)


# Sums of biases up to here are about the same in any order.
_SMALL = 1e3
# Up to here, a key that a bias hides still wins over one that a mask hides.
_LARGE = 1e30


def _mismatch(eqn: Eqn, index, softmax, casts, scores: Scores) -> str | None:
    """Say what attention would compute in other dtypes or precisions, if anything."""
    first = scores.product
    q, k = (v.aval.dtype for v in first.invars)
    v = eqn.invars[1 - index].aval.dtype
    if not q == k == v or q.name not in FLOATS:
        return "its queries, keys and values are not of one floating dtype"
    sums = accumulator(q)
    if first.outvars[0].aval.dtype not in (q, sums):
        return "its scores are of another dtype than its queries or float32"
    if softmax.outvars[0].aval.dtype not in (q, sums):
        return "its softmax is in another dtype than its queries or float32"
    if any(cast.outvars[0].aval.dtype not in (v, sums) for cast in casts) or (
        eqn.invars[index].aval.dtype != v
    ):
        return "its probabilities are rounded to another dtype than its values'"
    if eqn.outvars[0].aval.dtype != q:
        return "its result is of another dtype than its queries"
    asked = {_precision(e.params["precision"]) for e in (first, eqn)}
    return "its products ask for different precisions" if len(asked) > 1 else None


@dataclass(frozen=True)
class _Attention:
    """A match.

    **Arguments:**

    - `second`: the second product.
    - `may_hide`: whether a bias may hide a key as well as a mask does.
    """

    second: Eqn
    layout: Layout
    scores: Scores
    mask: Mask
    may_hide: bool

    @property
    def operands(self) -> list[Atom]:
        """Queries, keys, values, biases, and the parts of the mask."""
        parts = (*self.scores.biases, *self.mask.parts)
        return [*self.layout.operands, *(part.atom for part in parts)]

    def apply(self, q: Array, k: Array, v: Array, *rest: Array) -> list[Array]:
        """Compute the second product's result from the operands."""
        at, count = self.layout, len(self.scores.biases)
        q, k, v = at.queries(q), at.keys(k), at.values(v)
        bias = self._bias(q.dtype, rest[:count])
        mask = self._mask(rest[count:])
        causal, window = _band(self.mask, at.grid)
        if self.may_hide:
            hidden = _joined(mask, self.mask, at.grid)
            mask, causal, window = None, False, None
            if hidden is not None:
                q, bias = self._join(q, bias, hidden)
        out, lse = attention_op(
            q,
            k,
            v,
            bias,
            mask,
            None,
            None,
            scale=self.scores.scale,
            causal=causal,
            window=window,
            soft_cap=None,
            masked_rows="uniform",
            precision=_precision(self.second.params["precision"]),
        )
        if self.may_hide and at.grid[1]:
            # Where a bias is -inf for all keys, the softmax divides by zero. A factor,
            # so that the gradient is NaN there too.
            blind = jnp.where(lse[..., None] == -jnp.inf, jnp.nan, 1)
            out = out * blind.astype(out.dtype)
        return [at.result(out)]

    def _join(self, q: Array, bias, mask: Array) -> tuple[Array, Array]:
        """Put into the bias what the user's select puts into the scores.

        A row where the select's number is the largest has no scores any more, so no
        gradient reaches its query or, through it, the keys. It is moved up to zero,
        where its logsumexp can be told apart from that of one more key.
        """
        fill = self.scores.fill
        bias = jnp.where(mask, bias, fill)
        is_lost = jnp.max(bias, -1, keepdims=True, initial=-jnp.inf) == fill
        q = jnp.where(is_lost, jnp.zeros_like(q), q)
        return q, jnp.where(is_lost, bias - fill, bias)

    def _bias(self, dtype, values) -> Array | None:
        bias = None
        for x, part in zip(values, self.scores.biases, strict=True):
            one = self.layout.like_scores(x, part).astype(accumulator(dtype))
            bias = one if bias is None else bias + one
        return bias

    def _mask(self, values) -> Array | None:
        mask = None
        for x, part in zip(values, self.mask.parts, strict=True):
            one = self.layout.like_scores(x, part)
            mask = one if mask is None else mask & one
        return mask


def _band(mask: Mask, grid: tuple[int, int]) -> tuple[bool, tuple[int, int] | None]:
    """The band as attention's parameters `causal` and `window`."""
    low, high = mask.low, mask.high
    if low is None and high in (None, 0):
        return high == 0, None
    far = max(grid)
    return False, (far if low is None else -low, far if high is None else high)


def _joined(mask: Array | None, band: Mask, grid: tuple[int, int]) -> Array | None:
    """The mask and the band as one mask; None if there is neither."""
    apart = lax.broadcasted_iota(jnp.int32, (1, 1, *grid), 3) - lax.broadcasted_iota(
        jnp.int32, (1, 1, *grid), 2
    )
    tests = [] if mask is None else [mask]
    if band.low is not None:
        tests.append(apart >= band.low)
    if band.high is not None:
        tests.append(apart <= band.high)
    return functools.reduce(jnp.logical_and, tests) if tests else None


# What jax.nn asks for by itself, which is what attention does anyway.
_USUAL = ("BF16_BF16_F32", "F16_F16_F32", "DEFAULT")


def _precision(asked):
    names = asked if isinstance(asked, tuple) else (asked,)
    usual = all(n is None or str(n).rpartition(".")[2] in _USUAL for n in names)
    return None if usual else asked
