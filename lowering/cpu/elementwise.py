"""The table of element-wise primitives: what each emits, and about what it costs."""

from collections.abc import Callable
from dataclasses import dataclass

from tilejax.lowering.cpu import (
    elementwise_arithmetic as arithmetic,
    elementwise_bits as bits,
    elementwise_functions as functions,
)
from tilejax.lowering.cpu.nest import Nest
from tilejax.lowering.cpu.types import Elt


@dataclass(frozen=True)
class Op:
    """How an element-wise primitive is emitted.

    **Arguments:**

    - `rule`: from where to emit, the operands, the result's dtype and the equation's
      params to the result.
    - `cost`: about how many simple instructions that is, of a float32 vector.
    """

    rule: Callable[[Nest, list[Elt], str, dict], Elt]
    cost: int = 1

    def __call__(
        self, nest: Nest, args: list[Elt], dtype: str, params: dict | None = None
    ) -> Elt:
        """Emit it."""
        return self.rule(nest, args, dtype, params or {})


OPS: dict[str, Op] = {
    "add": Op(arithmetic.add),
    "add_any": Op(arithmetic.add),
    "sub": Op(arithmetic.sub),
    "mul": Op(arithmetic.mul),
    "div": Op(arithmetic.div, 4),
    "rem": Op(arithmetic.rem, 40),
    "max": Op(arithmetic.maximum, 3),
    "min": Op(arithmetic.minimum, 3),
    "clamp": Op(arithmetic.clamp, 6),
    "neg": Op(arithmetic.neg),
    "abs": Op(arithmetic.absolute),
    "sign": Op(arithmetic.sign, 3),
    "square": Op(arithmetic.square),
    "one_minus_square": Op(arithmetic.one_minus_square, 3),
    "integer_pow": Op(arithmetic.integer_pow, 3),
    **{
        name: Op(arithmetic.comparison(name))
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
    },
    **{
        f"{name}_to": Op(arithmetic.total_order(name), 6) for name in ("lt", "le", "eq")
    },
    "and": Op(bits.logical("and")),
    "or": Op(bits.logical("or")),
    "xor": Op(bits.logical("xor")),
    "not": Op(bits.invert),
    "shift_left": Op(bits.shift("shl"), 2),
    "shift_right_logical": Op(bits.shift("lshr"), 2),
    "shift_right_arithmetic": Op(bits.shift("ashr"), 2),
    "population_count": Op(bits.population_count, 4),
    "clz": Op(bits.leading_zeros, 4),
    "mulhi": Op(bits.mulhi, 6),
    "is_finite": Op(bits.is_finite, 2),
    "convert_element_type": Op(bits.convert_element_type),
    "bitcast_convert_type": Op(bits.bitcast_convert_type, 0),
    "reduce_precision": Op(bits.reduce_precision, 8),
    "nextafter": Op(bits.nextafter, 12),
    "select_n": Op(bits.select_n),
    "stop_gradient": Op(bits.same, 0),
    "copy": Op(bits.same, 0),
    "copy_p": Op(bits.same, 0),
    **{name: Op(*entry) for name, entry in functions.RULES.items()},
}
"""What an equation's primitive emits, by its name; what is absent has no rule."""
