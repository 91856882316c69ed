"""Orders and shapes: what a value looks like in another one, and at what cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from jax import lax

from tilejax._jax.jaxprs import Atom, Eqn, is_literal, is_pure, new_var
from tilejax._jax.primitives import ShapedArray
from tilejax._jax.values import is_placed
from tilejax.ir.work import is_elementwise
from tilejax.passes.rules import Definitions
from tilejax.passes.turned import turned_product
from tilejax.passes.uses import Uses

# How many equations one after the other a view is taken through.
_DEPTH = 12


@dataclass(frozen=True)
class View:
    """A transpose, or a reshape.

    **Arguments:**

    - `kind`: the primitive's name.
    - `what`: the permutation, or the new shape.
    """

    kind: str
    what: tuple[int, ...]

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape that an array of `shape` gets."""
        if self.kind == "reshape":
            return self.what
        return tuple(shape[d] for d in self.what)

    def undoes(self, made: Eqn) -> bool:
        """Say whether the view of what an equation makes is what it was made from."""
        if made.primitive.name != self.kind:
            return False
        if self.kind == "reshape":
            same = made.invars[0].aval.shape == self.what
            return same and made.params["dimensions"] is None
        return self.what == inverse(made.params["permutation"])


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes another.

    >>> inverse((1, 2, 0))
    (2, 0, 1)
    """
    return tuple(sorted(range(len(order)), key=lambda d: order[d]))


def view_of(eqn: Eqn) -> View | None:
    """Return the view that an equation takes, if it takes one."""
    if eqn.primitive.name == "transpose":
        return View("transpose", tuple(eqn.params["permutation"]))
    if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is None:
        return View("reshape", tuple(eqn.params["new_sizes"]))
    return None


class Puller:
    """Find or make views of values where no element has to be moved for them.

    **Arguments:**

    - `definitions`: the equations before, by their results.
    - `uses`: who reads what in the body.
    """

    def __init__(self, definitions: Definitions, uses: Uses):
        self._definitions, self._uses = definitions, uses

    def pull(self, atom: Atom, view: View) -> tuple[Atom, list[Eqn]] | None:
        """Return a view of a value, and the equations that make it.

        A view of what the opposite view made is what that was made from; one of an
        element-wise result, used for nothing else, is computed from such views; and a
        product gives its result in another order.
        """
        made: list[Eqn] = []
        found = self._pull(atom, view, made, _DEPTH)
        return None if found is None else (found, made)

    def order_of(self, atom: Atom) -> tuple[int, ...] | None:
        """Return the order in which a value's dimensions were put, if they were."""
        for _ in range(_DEPTH):
            made = None if is_literal(atom) else self._definitions.any(atom)
            if made is None:
                return None
            if made.primitive.name == "transpose":
                return tuple(made.params["permutation"])
            if not self._passes(made):
                return None
            full = [v for v in made.invars if v.aval.shape == atom.aval.shape]
            atom = next((v for v in full if not is_literal(v)), made.invars[0])
        return None

    def _passes(self, made: Eqn) -> bool:
        """Say whether a view can be taken of what an equation reads instead."""
        if not is_elementwise(made.primitive.name) or len(made.outvars) != 1:
            return False
        (v,) = made.outvars
        alone = len(self._uses.of(v)) == 1 and not self._uses.is_output(v)
        return alone and is_pure(made) and made.params.get("sharding") is None

    def _pull(self, atom: Atom, view: View, made: list[Eqn], depth: int):
        if atom.aval.shape == ():
            return atom
        if depth == 0 or is_literal(atom) or is_placed(atom.aval):
            return None
        eqn = self._definitions.any(atom)
        if eqn is None:
            return None
        if view.undoes(eqn):
            return eqn.invars[0]
        if view.kind == "transpose" and len(self._uses.of(atom)) == 1:
            turned = turned_product(eqn, view.what, self._uses)
            if turned is not None:
                made.append(turned)
                return turned.outvars[0]
        if not self._passes(eqn):
            return None
        shape = atom.aval.shape
        operands = []
        for v in eqn.invars:
            operand = self._operand(v, eqn, view, made, depth - 1)
            if operand is None:
                return None
            operands.append(operand)
        return _added(eqn, operands, view.of(shape), made)

    def _operand(self, v: Atom, reader: Eqn, view: View, made: list[Eqn], depth: int):
        shape = reader.outvars[0].aval.shape
        if v.aval.shape != shape:
            return _spread(v, shape, view, reader, made)
        filled = self._definitions.of(v, "broadcast_in_dim")
        if filled is not None and filled.invars[0].aval.shape == ():
            params = {**filled.params, "shape": view.of(shape)}
            filled = filled.replace(params=params)
            return _added(filled, filled.invars, view.of(shape), made)
        return self._pull(v, view, made, depth)


def _added(eqn: Eqn, operands, shape: tuple[int, ...], made: list[Eqn]) -> Atom:
    old = eqn.outvars[0].aval
    result = new_var(ShapedArray(shape, old.dtype, weak_type=old.weak_type))
    made.append(eqn.replace(invars=list(operands), outvars=[result]))
    return result


def _spread(v: Atom, shape, view: View, eqn: Eqn, made: list[Eqn]) -> Atom | None:
    """A view of an operand that has one element where the others have more."""
    sizes = v.aval.shape
    if sizes == ():
        return v
    if is_literal(v) or is_placed(v.aval) or len(sizes) != len(shape):
        return None
    long = [d for d, size in enumerate(sizes) if size != 1]
    if len(long) > 1:
        return None
    if view.kind == "transpose":
        new = view.of(sizes)
    elif not long:
        new = (1,) * len(view.what)
    elif long == [len(shape) - 1] and view.what[-1:] == shape[-1:]:
        new = (*(1 for _ in view.what[1:]), sizes[-1])
    else:
        return None
    if new == sizes:
        return v
    result = new_var(ShapedArray(new, v.aval.dtype, weak_type=v.aval.weak_type))
    params = {"new_sizes": new, "dimensions": None, "sharding": None}
    made.append(
        eqn.replace(
            primitive=lax.reshape_p, invars=[v], outvars=[result], params=params
        )
    )
    return result
