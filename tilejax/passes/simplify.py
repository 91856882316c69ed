"""Rewrite equations by the laws of arithmetic and of shapes."""

from tilejax._jax.jaxprs import Eqn, Program, is_pure, new_outvars, renamed, with_
from tilejax.ir import rewrite
from tilejax.passes.record import note
from tilejax.passes.rules import Definitions
from tilejax.passes.rules_arithmetic import EXACT as ARITHMETIC, FAST_MATH
from tilejax.passes.rules_shapes import EXACT as SHAPES

# Enough for any chain of rules on one equation; each rule makes it smaller.
_MAX_STEPS = 16


def simplify(program: Program, *, fast_math: bool = False) -> Program:
    """Replace equations by simpler ones with the same result, to the last bit.

    **Rewrite:** (some of the rules)

        x * 1, x / 1, x ** 1, x - 0.0, x + -0.0, -(-x)    -->   x
        transpose(transpose x), reshape(reshape x)        -->   one, or x
        convert x to the type that it has                 -->   x
        select(true, a, b)                                -->   the one selected
        reduce over axes of size one                      -->   reshape

    `x + 0.0` is left, since it turns -0.0 into 0.0, and so is `x * 0`, which may be
    NaN. Signs of NaN and values too small to be normal numbers, which XLA takes for
    zero in arithmetic, are not counted as bits.

    **Arguments:**

    - `program`: Any closed program. It is not changed.
    - `fast_math`: Also use `x + 0 = x`, `x * 0 = 0`, `x - x = 0`, `(x * a) * b =
      x * (a * b)` and `log(exp x) = x`, which hold for real numbers but not for
      rounded, infinite or undefined ones.

    **Returns:**

    A program with the same inputs and outputs, of the same types.
    """
    tables = [ARITHMETIC, SHAPES, *([FAST_MATH] if fast_math else [])]
    rules: dict[str, list] = {}
    for table in tables:
        for primitive, found in table.items():
            rules.setdefault(primitive, []).extend(found)
    return rewrite(program, lambda body, has_room: _simplify(body, rules))


def _simplify(body: Program, rules: dict[str, list]) -> Program:
    names: dict = {}
    definitions = Definitions()
    eqns: list[Eqn] = []
    is_same = True
    for old in body.eqns:
        eqn = renamed(old, names)
        result = _apply(eqn, rules, definitions)
        if isinstance(result, Eqn):
            eqns.append(result)
            definitions.add(result)
            is_same = is_same and result is eqn
        else:
            names[eqn.outvars[0]] = result
    if is_same and not names:
        return body
    outvars = new_outvars(body, names)
    return with_(body, eqns=eqns, outvars=outvars)


def _apply(eqn: Eqn, rules: dict[str, list], definitions: Definitions):
    """Return the equation as the rules leave it, or the operand that it equals."""
    for _ in range(_MAX_STEPS):
        found = rules.get(eqn.primitive.name)
        if not found or not is_pure(eqn):
            return eqn
        for rule in found:
            result = rule(eqn, definitions)
            if result is not None and _fits(result, eqn):
                note(f"{eqn.primitive.name}: {rule.__doc__.rstrip('.')}")
                break
        else:
            return eqn
        if not isinstance(result, Eqn):
            return result
        eqn = result
    return eqn


def _fits(result, eqn: Eqn) -> bool:
    """Say whether the result has the very type that it must: weak, placed, varying."""
    return isinstance(result, Eqn) or result.aval == eqn.outvars[0].aval
