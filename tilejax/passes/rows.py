"""Recognising an operand that is one vector along a dimension, or a number."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import Atom, Eqn, is_literal
from tilejax.passes.rules import Definitions

_STEPS = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "pvary")


@dataclass(frozen=True)
class Row:
    """What an array of some shape repeats.

    **Arguments:**

    - `atom`: of one element, or with a single dimension of more.
    - `is_number`: whether it is one number.
    """

    atom: Atom
    is_number: bool

    def vector(self, x: jax.Array, length: int) -> jax.Array:
        """Return the value `x` of the atom as `[length]`."""
        if self.is_number:
            return jnp.broadcast_to(jax.lax.reshape(x, ()), (length,))
        return x if x.ndim == 1 else jax.lax.reshape(x, (length,))

    def number_or_vector(self, x: jax.Array, length: int) -> jax.Array:
        """Return the value `x` of the atom as `[]` or `[length]`."""
        if not self.is_number:
            return self.vector(x, length)
        return x if x.ndim == 0 else jax.lax.reshape(x, ())


def row_of(
    atom: Atom, shape: tuple[int, ...], definitions: Definitions, along: int = -1
) -> Row | None:
    """Say what an operand, used where the shape is `shape`, repeats.

    **Arguments:**

    - `atom`: of that shape, or with dimensions of one element in it; or a scalar.
    - `shape`: of the other operand.
    - `along`: the dimension of `shape` along which a vector may run.

    **Returns:** the vector or number; None for an operand that differs along other
    dimensions.
    """
    if is_literal(atom) or atom.aval.shape == ():
        return Row(atom, True)
    if len(atom.aval.shape) != len(shape):
        return None
    # of which dimension of `shape` each dimension is; those of one element are of none
    places: list[int | None] = list(range(len(shape)))
    along %= max(1, len(shape))
    found = _row(atom, places, along)
    while (made := definitions.of(atom, *_STEPS)) is not None:
        inner = _before(made, places)
        if inner is None:
            break
        atom, places = made.invars[0], inner
        found = _row(atom, places, along) or found
        if is_literal(atom):
            break
    return found


def _row(atom: Atom, places: list[int | None], along: int) -> Row | None:
    sizes = zip(atom.aval.shape, places, strict=True)
    long = [place for size, place in sizes if size != 1]
    if not long:
        return Row(atom, True)
    return Row(atom, False) if long == [along] else None


def _before(made: Eqn, places: list[int | None]) -> list[int | None] | None:
    """The places of the dimensions of what an equation reads."""
    old, new = made.invars[0].aval.shape, made.outvars[0].aval.shape
    name = made.primitive.name
    if name == "pvary":
        return places
    if name == "broadcast_in_dim":
        dims = made.params["broadcast_dimensions"]
        return [
            places[d] if size == new[d] else None
            for size, d in zip(old, dims, strict=True)
        ]
    if name == "reshape" and made.params["dimensions"] is not None:
        return None
    long = [place for size, place in zip(new, places, strict=True) if size != 1]
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    there = iter(long)
    return [next(there) if size != 1 else None for size in old]
