"""An operation: its meaning, and everything that is derived from it."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from tilejax._jax import primitives as _p
from tilejax.errors import (
    DeclarationError,
    DTypeError,
    ParameterError,
    ShapeError,
    TileJAXError,
)
from tilejax.primitives import factors
from tilejax.primitives.call import Call
from tilejax.primitives.sizes import show


@dataclass(frozen=True, eq=False, repr=False)
class Op:
    """One declaration; call it with arrays to use it. Made by `define`.

    **Arguments:**

    - `name`: as errors, tables and `tiled_<name>` in a jaxpr show it.
    - `reference`: the meaning, in plain JAX: `(*operands, **params)` to an array or a
      tuple of arrays. An operand may be optional (None).
    - `sharding`: the factor rule, or a function `(operand avals, params)` to it
      (an operand that is not given is None there); None if only whole arrays go in.
    - `backward`: `(operands, saved, cotangents, **params)` to a gradient an operand
      (None where there is none); None for the reference's own `vjp`.
    - `saves`: which results the backward reads.
    - `linear`: the operands in each of which alone the operation is linear, or a
      function of `(given, params)` to them; then it is differentiated by itself.
    - `transpose`: `(cotangents, operands, index, aval, call, params)` to the gradient
      of given operand `index` (None there), for a linear operation.
    - `tangent_params`: `(params, index)` to those with which a linear operation gives
      the tangent that given operand `index` causes, where they differ (a lookup that
      fills with NaN has zero tangents).
    - `fold`: `(operands, axes, axis_data, call, params)` to the results and their axes
      under `vmap`, of wider uses of operations; None for a level of the call.
    - `typed_by_reference`: Explicit-mode types are the reference's own, traced on the
      operands' types, and not the rule's: for an operation that JAX has too. Or a
      function of the parameters that says so.
    - `cost`: `(*operand avals, **params)` to a `tilejax.targets.Cost`.
    - `check`: `(*operand avals, **params)` raises what a user should read.
    - `dtypes`: names of the dtypes that floating and integer operands may have.
    - `apart`: `(call, params)` to a function of the given operands, of equations that
      mean the same, as which a call that says `apart` is differentiated; or to None.
    - `saveable_as`: `(avals, params)` to the JAX primitive and parameters that a
      checkpoint policy is asked about.
    """

    name: str
    reference: Callable
    sharding: str | Callable | None = None
    backward: Callable | None = None
    saves: tuple[int, ...] = ()
    linear: tuple[int, ...] | Callable = ()
    transpose: Callable | None = None
    tangent_params: Callable | None = None
    fold: Callable | None = None
    typed_by_reference: bool | Callable = False
    cost: Callable | None = None
    check: Callable | None = None
    dtypes: tuple[str, ...] = ()
    apart: Callable | None = None
    saveable_as: Callable | None = None
    forward_p: Any = field(init=False, repr=False)
    tangent_p: Any = field(init=False, repr=False)
    backward_p: Any = field(init=False, repr=False)

    def __post_init__(self):
        for part, suffix in (
            ("forward", ""),
            ("tangent", "_jvp"),
            ("backward", "_bwd"),
        ):
            primitive = _p.new_primitive(f"tiled_{self.name}{suffix}")
            object.__setattr__(self, f"{part}_p", primitive)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def __call__(self, /, *operands, **params) -> Any:
        """Check the operands, then bind the primitive.

        **Raises:** `ShapeError`, `DTypeError`, `ParameterError`, `ShardingError`.
        """
        given = tuple(x is not None for x in operands)
        arrays = [self.array(at, x) for at, x in enumerate(operands) if x is not None]
        call = Call(given)
        self.validate(arrays, call, params)
        outs = self.bind(arrays, call, params)
        avals = tuple(_p.plain(jax.typeof(x)) for x in arrays)
        return outs[0] if self.signature(avals, call, params)[1] else tuple(outs)

    def bind(self, arrays: Sequence, call: Call, params: Mapping) -> list:
        """Use the primitive without checks, as passes and rules do."""
        return self.forward_p.bind(*_p.match_varying(*arrays), call=call, **params)

    def array(self, at: int, x) -> jax.Array:
        """Return operand `at` as a JAX array; raise `DTypeError` if it is none."""
        try:
            return x if isinstance(x, jax.Array) else jnp.asarray(x)
        except TypeError as error:
            raise DTypeError(
                f"{self.name}: operand {at} is no array: {error}"
            ) from error

    def validate(self, arrays: Sequence, call: Call, params: Mapping) -> None:
        """Raise one of `tilejax.errors` unless the reference can take the operands."""
        avals = [jax.typeof(x) for x in arrays]
        try:
            hash(tuple(params.items()))
        except TypeError as error:
            raise ParameterError(
                f"{self.name}: a parameter cannot be hashed ({error}); parameters are "
                f"static, pass arrays as operands: {dict(params)}"
            ) from error
        if "call" in params:
            raise ParameterError(
                f"{self.name}: no parameter can be named 'call', which every use of an "
                "operation has already; choose another name"
            )
        self._check_dtypes(avals)
        structs = call.expand([_struct(a) for a in avals])
        if self.check is not None:
            self.check(*structs, **params)
        rule = self.rule(avals, call, params)
        if rule is not None:
            factors.check_sizes(self.name, rule, [a.shape for a in avals])
        try:
            results, _ = self.signature(tuple(map(_p.plain, avals)), call, params)
        except TileJAXError:
            raise
        except (TypeError, ValueError) as error:
            shown = ", ".join(show(a) for a in avals)
            raise ShapeError(f"{self.name}({shown}): {error}") from error
        self._check_declared(rule, results)

    def _check_declared(self, rule: factors.Rule | None, results: Sequence) -> None:
        """Raise `DeclarationError` unless what is declared fits what came out."""
        if not all(0 <= at < len(results) for at in self.saves):
            raise DeclarationError(
                f"{self.name}: saves={tuple(self.saves)}, but its reference returns "
                f"{len(results)} arrays"
            )
        ranks = [len(x.shape) for x in results]
        if rule is not None and [len(dims) for dims in rule.results] != ranks:
            raise DeclarationError(
                f"{self.name}: its factor rule '{rule}' does not fit the results of "
                f"its reference, {', '.join(show(x) for x in results)}"
            )

    def _check_dtypes(self, avals) -> None:
        if not self.dtypes:
            return
        for at, aval in enumerate(avals):
            if aval.dtype.name not in self.dtypes:
                raise DTypeError(
                    f"{self.name}: operand {at} is {show(aval)}; it takes "
                    f"{', '.join(self.dtypes)}. Convert it first (x.astype)"
                )

    def signature(
        self, avals: tuple, call: Call, params: Mapping
    ) -> tuple[tuple, bool]:
        """Return the plain types of the results, and whether it is one array alone."""
        return _signature(self, avals, call, tuple(params.items()), _p.settings())

    def params(self, params: Mapping) -> dict:
        """Drop the sharding of the result, which the mechanism itself sets."""
        return {k: (None if k == "out_sharding" else v) for k, v in params.items()}

    def flat(self, call: Call, params: Mapping) -> Callable:
        """Return the reference as a function of the given operands to a list."""

        def run(*operands):
            out = self.reference(*call.expand(operands), **self.params(params))
            return list(out) if isinstance(out, (tuple, list)) else [out]

        return run

    def rule(self, avals: Sequence, call: Call, params: Mapping) -> factors.Rule | None:
        """Return the factor rule of the plain (not mapped) operands."""
        if self.sharding is None:
            return None
        if isinstance(self.sharding, str):
            try:
                return factors.parse(self.sharding, tuple(a.ndim for a in avals))
            except ShapeError as error:
                raise ShapeError(f"{self.name}: {error}") from error
        return factors.parse(self.sharding(call.expand(avals), self.params(params)))

    def is_typed_by_reference(self, params: Mapping) -> bool:
        """Say whether Explicit-mode types are the reference's own."""
        asked = self.typed_by_reference
        return asked(params) if callable(asked) else asked

    def linear_in(self, call: Call, params: Mapping) -> tuple[int, ...]:
        """Return the given operands (counted among the given) it is linear in."""
        linear = self.linear
        if callable(linear):
            linear = linear(call.given, params)
        return tuple(sum(call.given[:at]) for at in linear if call.given[at])


@lru_cache(maxsize=8192)
def _signature(
    op: Op, avals: tuple, call: Call, params: tuple, settings: Any
) -> tuple[tuple, bool]:
    del settings  # part of the key
    alone = []

    def run(*operands):
        out = op.reference(*call.expand(operands), **op.params(dict(params)))
        alone.append(not isinstance(out, (tuple, list)))
        outs = [out] if alone[-1] else list(out)
        _check_arrays(op.name, outs)
        return outs

    shapes = tuple(plain_shapes(op, "reference", run, avals))
    return shapes, alone[-1]


def _check_arrays(name: str, outs: Sequence) -> None:
    wrong = [x for x in outs if not (hasattr(x, "shape") and hasattr(x, "dtype"))]
    if wrong or not outs:
        what = f"returns {reprlib.repr(wrong[0])}" if wrong else "returns nothing"
        raise DeclarationError(
            f"{name}: its reference {what}; it must return an array or a tuple of "
            "arrays (jnp.asarray makes one of a number)"
        )


def plain_shapes(op: Op, what: str, fun: Callable, avals: Sequence) -> list:
    """Return the types that `fun` gives, one of the functions that declare `op`.

    **Raises:** `DeclarationError` if it uses a value of a trace around it.
    """
    try:
        return _p.plain_shapes(fun, avals)
    except _p.ClosedOverError as error:
        raise DeclarationError(
            f"{op.name}: its {what} uses a traced value ({error}) from outside; "
            "pass it as an operand"
        ) from None


def _struct(aval) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
