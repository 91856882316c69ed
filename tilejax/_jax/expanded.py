"""Primitives as programs of plain ones: random numbers, and what sorting gives."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.random import prng, threefry2x32 as threefry

from tilejax._jax.jaxprs import Eqn, Program


def is_key(aval) -> bool:
    """Tell whether a type is one of random keys."""
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)


def plain_type(aval) -> jax.ShapeDtypeStruct:
    """Return the type of the numbers that keys consist of; of others the same."""
    if not is_key(aval):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    shape = (*aval.shape, *aval.dtype._impl.key_shape)
    return jax.ShapeDtypeStruct(shape, np.dtype(np.uint32))


def plain_program(eqn: Eqn) -> Program | None:
    """Return what a primitive computes, in plain ones; keys are their numbers.

    **Returns:** a closed program; None for other primitives.
    """
    make = _PROGRAMS.get(eqn.primitive.name)
    if make is None:
        return None
    avals = [v.aval for v in eqn.invars]
    arguments = [plain_type(aval) for aval in avals]
    return jax.make_jaxpr(make(avals, eqn.params))(*arguments)


def _bits(avals, params) -> Callable:
    impl, rank = avals[0].dtype._impl, len(avals[0].shape)
    return lambda keys: prng.random_bits_impl_base(impl, keys, rank, **params)


def _split(avals, params) -> Callable:
    impl, rank = avals[0].dtype._impl, len(avals[0].shape)
    return lambda keys: prng.random_split_impl_base(impl, keys, rank, **params)


def _fold_in(avals, params) -> Callable:
    impl, shape = avals[0].dtype._impl, avals[0].shape
    return lambda keys, data: prng.random_fold_in_impl_base(impl, keys, data, shape)


def _seed(avals, params) -> Callable:
    return lambda seeds: prng.random_seed_impl_base(seeds, impl=params["impl"])


def _threefry(avals, params) -> Callable:
    return partial(threefry._threefry2x32_lowering, use_rolled_loops=False)


def _places(avals, params) -> Callable:
    """The number of each element in row-major order, in two words."""
    shape = params["shape"]

    def count():
        total, step = jnp.zeros(shape, np.uint32), 1
        for d in reversed(range(len(shape))):
            total += lax.broadcasted_iota(np.uint32, shape, d) * np.uint32(step)
            step *= shape[d]
        return [jnp.zeros(shape, np.uint32), total]

    return count


def _top(avals, params) -> Callable:
    """The greatest elements: the last ones of the reversed operand, sorted."""
    (aval,), k = avals, params["k"]
    axis = params.get("axis", -1) % len(aval.shape)

    def top(x):
        places = lax.broadcasted_iota(np.int32, aval.shape, axis)
        pair = [jnp.flip(v, axis) for v in (x, places)]
        found = lax.sort(pair, dimension=axis, num_keys=1, is_stable=True)
        return [lax.slice_in_dim(jnp.flip(v, axis), 0, k, axis=axis) for v in found]

    return top


_PROGRAMS: dict[str, Callable] = {
    "random_bits": _bits,
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_seed": _seed,
    "random_wrap": lambda avals, params: lambda keys: keys,
    "random_unwrap": lambda avals, params: lambda keys: keys,
    "threefry2x32": _threefry,
    "iota_2x32_shape": _places,
    "top_k": _top,
}
