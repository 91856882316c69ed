"""Following the scores of an attention from its softmax back to their product."""

from dataclasses import dataclass, field

import numpy as np

from tilejax._jax.jaxprs import Atom, Eqn
from tilejax.passes.bands import Axes, Mask, MaskReader, Part, sized
from tilejax.passes.rules import Definitions


@dataclass
class Scores:
    """What is done to the product of queries and keys before the softmax.

    **Arguments:**

    - `product`: the `dot_general`.
    - `axes`: where its result's dimensions lie among those of the softmax's operand.
    - `scale`: the product is multiplied by it.
    - `biases`: what is added after that.
    - `masks`: what selects scores after that.
    - `fill`: what stands in the place of the others.
    - `inner`: the equations in between, and the product.
    """

    product: Eqn
    axes: Axes
    scale: float = 1.0
    biases: list[Part] = field(default_factory=list)
    masks: list[Part] = field(default_factory=list)
    fill: float = 0.0
    inner: list[Eqn] = field(default_factory=list)


# At most this is put where nothing may be seen: no score that counts is as low.
_LOWEST = -0.5 * float(np.finfo(np.float32).max)


def follow(atom: Atom, definitions: Definitions) -> Scores | str | None:
    """Return what led to the softmax's operand.

    **Returns:** None if it does not stem from a product by such steps; a reason, if it
    does but in a way that attention does not have.
    """
    axes: Axes = tuple(range(len(atom.aval.shape)))
    found = _find(atom, axes, definitions)
    if found is None:
        return None
    steps, product, axes = found
    scores = Scores(product, axes)
    scores.inner = [eqn for eqn, _ in steps] + [product]
    for eqn, at in steps:  # from the softmax back
        reason = _STEPS[eqn.primitive.name](eqn, at, scores, definitions)
        if reason:
            return reason
    return scores


def _find(atom: Atom, axes: Axes, definitions: Definitions):
    """The steps between the operand and the product, nearest the softmax first."""
    eqn = definitions.of(atom, "dot_general", *_STEPS)
    if eqn is None:
        return None
    if eqn.primitive.name == "dot_general":
        return [], eqn, axes
    for index in _ways(eqn):
        operand = eqn.invars[index]
        if operand.aval.shape != eqn.outvars[0].aval.shape and eqn.primitive.name != (
            "transpose"
        ):
            continue
        inner = _permuted(eqn, axes) if eqn.primitive.name == "transpose" else axes
        rest = _find(operand, inner, definitions)
        if rest is not None:
            return [(eqn, (index, axes)), *rest[0]], rest[1], rest[2]
    return None


def _permuted(eqn: Eqn, axes: Axes) -> Axes:
    order = eqn.params["permutation"]
    return tuple(axes[order.index(i)] for i in range(len(order)))


def _ways(eqn: Eqn) -> tuple[int, ...]:
    """Through which operands the scores may have come."""
    name = eqn.primitive.name
    if name == "select_n":
        return (2,)
    return (0, 1) if name in ("add", "mul") else (0,)


def _transposed(eqn, at, scores, definitions) -> str | None:
    del eqn, at, scores, definitions
    return None


def _converted(eqn, at, scores, definitions) -> str | None:
    del at, scores, definitions
    old, new = (np.dtype(v.aval.dtype) for v in (eqn.invars[0], eqn.outvars[0]))
    if new.kind not in "fV" or (new != old and new.itemsize <= old.itemsize):
        return "its scores are rounded on the way"
    return None


def _selected(eqn, at, scores: Scores, definitions) -> str | None:
    _, axes = at
    which, fill, _ = eqn.invars
    value = definitions.splat(fill)
    if value is None or scores.biases or scores.scale != 1.0:
        return "its mask is not the last step before the softmax"
    if len(which.aval.shape) != len(axes):
        return "its mask is one truth value for all scores"
    if not -np.inf < float(value) <= _LOWEST:
        return f"its mask puts {float(value):g} where nothing may be seen"
    if scores.masks and scores.fill != float(value):
        return "its masks put different numbers where nothing may be seen"
    if np.dtype(which.aval.dtype).kind != "b":
        return "its mask selects by numbers"
    scores.masks.append(Part(which, sized(axes, which.aval.shape)))
    scores.fill = float(value)
    return None


def _added(eqn, at, scores: Scores, definitions) -> str | None:
    del definitions
    index, axes = at
    if scores.scale != 1.0:
        return "it is scaled after a bias"
    other = eqn.invars[1 - index]
    if len(other.aval.shape) != len(axes):
        return "it adds one number to all scores"
    scores.biases.append(Part(other, sized(axes, other.aval.shape)))
    return None


def _scaled(eqn, at, scores: Scores, definitions) -> str | None:
    index, _ = at
    value = definitions.splat(eqn.invars[1 - index])
    if value is None:
        return "its scores are multiplied by an array"
    factor = float(value)
    if eqn.primitive.name == "div":
        factor = 1.0 / factor if factor else np.inf
    scores.scale *= factor
    return None if np.isfinite(scores.scale) else "its scale is not finite"


_STEPS = {
    "transpose": _transposed,
    "convert_element_type": _converted,
    "select_n": _selected,
    "add": _added,
    "mul": _scaled,
    "div": _scaled,
}


def read_masks(scores: Scores, reader: MaskReader) -> Mask:
    """Part all masks into a band and the rest."""
    mask = Mask()
    for part in scores.masks:
        reader.read(part.atom, part.axes, mask)
    return mask
