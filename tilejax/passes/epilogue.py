"""Finding what follows a product that the product's own epilogue can do.

The epilogue is `activation(sum * scale + bias) + residual`, then a cast, in this order.
"""

from dataclasses import dataclass, field

import jax.numpy as jnp

from tilejax._jax.jaxprs import Atom, Eqn, is_literal
from tilejax._jax.values import is_placed
from tilejax.passes.rows import Row, row_of
from tilejax.passes.rules import Definitions
from tilejax.passes.spelled import activation_of
from tilejax.passes.uses import Uses

_VIEWS = ("broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "pvary")


@dataclass
class Epilogue:
    """What a product is followed by.

    **Arguments:**

    - `result`: the value that it gives; its shape is the product's, but for reshapes.
    - `eqns`: after the product's, in an order in which each follows what it reads.
    - `stage`: how many of scale, bias, activation and residual cannot follow any more.
    - `cast_in`: what the sum is converted to at first; None for nothing.
    - `dtype`: what scale to residual are computed in; None without them.
    - `out`: the dtype of the result, if the last equation converts it.
    """

    result: Atom
    eqns: list[Eqn] = field(default_factory=list)
    stage: int = 0
    scale: Row | None = None
    bias: Row | None = None
    activation: str | None = None
    residual: Atom | None = None
    cast_in: jnp.dtype | None = None
    dtype: jnp.dtype | None = None
    out: jnp.dtype | None = None
    parts: list[str] = field(default_factory=list)
    why: str = ""


class Finder:
    """Follow a product through a body.

    **Arguments:**

    - `definitions`: all equations of the body by their results.
    - `uses`: who reads what.
    - `claimed`: by identity the equations that belong to another product.
    """

    def __init__(self, definitions: Definitions, uses: Uses, claimed: set[int]):
        self._definitions, self._uses, self._claimed = definitions, uses, claimed

    def find(self, start: Epilogue, *, fast_math: bool) -> Epilogue:
        """Return the longest epilogue from a product, or from where one ends."""
        found, done = start, len(start.eqns)
        while found.out is None and self._step(found, fast_math):
            if found.eqns[-1].primitive.name != "reshape":
                done = len(found.eqns)
        del found.eqns[done:]  # reshapes that nothing follows
        if found.eqns:
            found.result = found.eqns[-1].outvars[0]
        if found.cast_in is not None and found.dtype is None:
            found.out = found.cast_in
        return found

    def with_views(self, eqns: list[Eqn]) -> list[Eqn]:
        """Put what only names or repeats values in front of equations that read it."""
        found, waiting = list(eqns), list(eqns)
        while waiting:
            for v in waiting.pop().invars:
                made = self._definitions.of(v, *_VIEWS)
                if made is not None and not any(made is eqn for eqn in found):
                    found.insert(0, made)
                    waiting.append(made)
        return found

    def _step(self, found: Epilogue, fast_math: bool) -> bool:
        z = found.result
        readers = self._uses.of(z)
        if self._uses.is_output(z) or not readers:
            return False
        if any(id(eqn) in self._claimed for eqn in readers):
            return False
        floating = jnp.issubdtype(z.aval.dtype, jnp.floating)
        if floating and found.stage <= 2 and found.activation is None:
            activation = activation_of(
                z, self._definitions, self._uses, fast_math=fast_math
            )
            if activation is not None:
                self._computed(found)
                found.activation, found.stage = activation.name, 3
                return self._took(found, activation.name, *activation.eqns)
        if len(readers) > 1:
            found.why = "what it gives is read several times"
            return False
        (eqn,) = readers
        step = _STEPS.get(eqn.primitive.name)
        return step is not None and step(self, found, eqn)

    def _computed(self, found: Epilogue) -> None:
        found.dtype = found.result.aval.dtype

    def _took(self, found: Epilogue, what: str, *eqns: Eqn) -> bool:
        found.eqns += eqns
        found.result = eqns[-1].outvars[0]
        if what:
            found.parts.append(what)
        return True

    def _convert(self, found: Epilogue, eqn: Eqn) -> bool:
        dtype = eqn.outvars[0].aval.dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            return False
        if eqn.params.get("sharding") is not None:
            return False
        if found.dtype is not None:
            found.out = dtype
        elif found.cast_in is None:
            found.cast_in = dtype
        else:
            return False
        return self._took(found, "cast", eqn)

    def _reshape(self, found: Epilogue, eqn: Eqn) -> bool:
        old, new = eqn.invars[0].aval, eqn.outvars[0].aval
        free = not is_placed(old) and not is_placed(new)
        along = old.shape[-1:] == new.shape[-1:] != ()
        if not free or not along or eqn.params["dimensions"] is not None:
            return False
        return self._took(found, "", eqn)

    def _mul(self, found: Epilogue, eqn: Eqn) -> bool:
        row = self._row(found, _other(found.result, eqn))
        if row is None or found.stage > 0 or not self._is_real(found):
            return False
        self._computed(found)
        found.scale, found.stage = row, 1
        return self._took(found, "scale", eqn)

    def _add(self, found: Epilogue, eqn: Eqn) -> bool:
        other = _other(found.result, eqn)
        if other is None or not self._is_real(found):
            return False
        row = self._row(found, other)
        if row is not None and found.stage <= 1 and found.result.aval.ndim:
            self._computed(found)
            found.bias, found.stage = row, 2
            return self._took(found, "bias", eqn)
        if found.stage > 3 or is_literal(other):
            return False
        if other.aval.shape != found.result.aval.shape:
            return False
        self._computed(found)
        found.residual, found.stage = self._narrow(other), 4
        return self._took(found, "residual", eqn)

    def _is_real(self, found: Epilogue) -> bool:
        return jnp.issubdtype(found.result.aval.dtype, jnp.floating)

    def _row(self, found: Epilogue, other: Atom | None) -> Row | None:
        if other is None:
            return None
        return row_of(other, found.result.aval.shape, self._definitions)

    def _narrow(self, atom: Atom) -> Atom:
        """What a residual in f32 was converted from, which the epilogue does too."""
        made = self._definitions.of(atom, "convert_element_type")
        if made is None or str(atom.aval.dtype) != "float32":
            return atom
        narrow = str(made.invars[0].aval.dtype) in ("bfloat16", "float16")
        return made.invars[0] if narrow else atom


_STEPS = {
    "convert_element_type": Finder._convert,
    "reshape": Finder._reshape,
    "mul": Finder._mul,
    "add": Finder._add,
    "add_any": Finder._add,
}


def _other(z: Atom, eqn: Eqn) -> Atom | None:
    """The operand beside `z`; None if it is `z` again."""
    a, b = eqn.invars
    if a is b:
        return None
    return b if a is z else a


def is_exact(found: Epilogue, own, wide, *, fast_math: bool) -> bool:
    """Say whether the epilogue rounds as the equations do.

    **Arguments:**

    - `own`: the dtype of the product by itself.
    - `wide`: what the epilogue is computed in.
    - `fast_math`: let it round less.
    """
    dtype = own if found.dtype is None else found.dtype
    is_whole = own == wide or jnp.issubdtype(own, jnp.integer)
    if is_whole and dtype == wide:
        return True
    narrow = jnp.promote_types(dtype, wide) == wide
    # Kernels, and XLA by default, keep the sum of a narrow product as wide as it was
    # summed, which the equations round before the epilogue.
    return fast_math and narrow
