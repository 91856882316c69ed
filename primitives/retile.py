"""JAX's own rules for its primitives, with tiled operations in their place.

The transpose of a contraction is made of contractions. JAX knows which ones, with their
shardings; here its rule is traced to a program, and each equation in it that a family
has an operation for becomes that operation.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import jax

from tilejax._jax import primitives as _p
from tilejax._jax.retiled import ShardingTypeError, batched_equation, run, traced
from tilejax.errors import ParameterError, ShardingError
from tilejax.primitives.call import Call
from tilejax.primitives.op import Op

_REPLACEMENTS: dict[Any, Callable] = {}


def retile(primitive, replace: Callable) -> None:
    """State what takes the place of one of JAX's primitives.

    **Arguments:**

    - `primitive`: of `jax.lax`.
    - `replace`: `(operands, params, target)` to a list of results, or None to keep
      JAX's.
    """
    _REPLACEMENTS[primitive] = replace


def replacements(target: str | None = None) -> dict[Any, Callable]:
    """Return what takes the place of each primitive: `(operands, params)` to results.

    **Arguments:**

    - `target`: for which kernels are chosen; None for the device at hand.
    """
    return {p: partial(f, target=target) for p, f in _REPLACEMENTS.items()}


def evaluate(fun: Callable, *operands) -> list:
    """Run `fun(*arrays) -> list of arrays` with tiled operations in it.

    >>> import jax.numpy as jnp
    >>> from tilejax.primitives import matmul
    >>> def tiled(a, b):
    ...     return evaluate(lambda a, b: [jax.lax.dot(a, b)], a, b)[0]
    >>> print(jax.make_jaxpr(tiled)(jnp.ones(2), jnp.ones(2)).eqns[0].primitive)
    tiled_matmul
    """
    program = traced(fun, [jax.typeof(x) for x in operands])
    return run(program, replacements(), *operands)


@lru_cache(maxsize=4096)
def canonical(fun: Callable, primitive, avals: tuple, options: tuple, settings) -> dict:
    """Return the parameters with which `fun(*operands, **options)` uses a primitive.

    JAX itself fills in defaults and resolves names of paddings, precisions and
    shardings.

    **Arguments:**

    - `fun`: of `jax.lax`, whose program has one equation of the primitive.
    - `avals`: the operands' types.
    - `options`: pairs of a name and a value.
    - `settings`: `tilejax._jax.primitives.settings()`.
    """
    del settings  # part of the key
    program = traced(lambda *xs: [fun(*xs, **dict(options))], avals)
    (eqn,) = (e for e in program.eqns if e.primitive is primitive)
    return dict(eqn.params)


@contextmanager
def _sharding_errors(name: str):
    """Say which operation JAX cannot carry a sharding through."""
    try:
        yield
    except ShardingTypeError as error:
        raise ShardingError(f"{name}: {error}") from error


def canonical_params(name: str, fun: Callable, primitive, operands, **options) -> dict:
    """Return what `canonical` does, with errors that name an operation.

    **Raises:** `ShardingError` or `ParameterError` with what JAX says.
    """
    avals = tuple(jax.typeof(x) for x in operands)
    pairs = tuple(options.items())
    try:
        with _sharding_errors(name):
            return canonical(fun, primitive, avals, pairs, _p.settings())
    except ShardingError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        shown = ", ".join(a.str_short(True) for a in avals)
        raise ParameterError(f"{name}({shown}): {error}") from error


def transpose_of(op: Op, cotangents, operands, at: int, aval, call: Call, params):
    """Transpose a linear operation in operand `at`, as `Op.transpose` should.

    **Arguments:** those of `Op.transpose`, and the operation.
    """
    known = [x for i, x in enumerate(operands) if i != at]
    avals = tuple(jax.typeof(x) for x in (*known, *cotangents))
    with _sharding_errors(op.name):
        program = _transposed(
            op, at, aval, avals, call, tuple(params.items()), _p.settings()
        )
    (grad,) = run(program, replacements(call.target), *known, *cotangents)
    return grad


@lru_cache(maxsize=4096)
def _transposed(op: Op, at: int, aval, avals, call: Call, params, settings):
    del settings  # part of the key
    count = sum(call.given)

    def apply(*args):
        known, cotangents = list(args[: count - 1]), list(args[count - 1 :])

        def of(x):
            full = [*known[:at], x, *known[at:]]
            return [op.reference(*call.expand(full), **dict(params))]

        return jax.linear_transpose(of, aval)(cotangents)

    return traced(apply, avals)


def fold_as(
    primitive,
    operands: Sequence,
    axes: Sequence,
    axis_data,
    params: Mapping[str, Any],
    target: str | None,
) -> tuple[list, list]:
    """Map one of JAX's primitives by its own rule, tiled, as `Op.fold` should."""
    avals = [jax.typeof(x) for x in operands]
    with _sharding_errors(f"vmap of {primitive.name}"):
        program, axis = batched_equation(primitive, axis_data, avals, axes, params)
    return run(program, replacements(target), *operands), [axis]
