"""Kernels to normalise, and the way from one to its tile program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax._jax import pallas
from tilejax._jax.jaxprs import trace
from tilejax.ir import walk
from tilejax.lowering.cpu.rule import tile_program
from tilejax.lowering.tile.program import TileProgram
from tilejax.lowering.tile.verify import verify


def program_of(fun: Callable, *types) -> TileProgram:
    """The tile program of the one `pallas_call` in a function, verified."""
    traced, _ = trace(fun, *types)
    (found,) = [
        visit.eqn
        for visit in walk(traced)
        if visit.eqn.primitive is pallas.pallas_call_p
    ]
    program = tile_program(found.params)
    verify(program)
    return program


def struct(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def _matmul_step(a, b, out, acc):
    k = pl.program_id(2)

    @pl.when(k == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    acc[...] += jnp.dot(a[...], b[...], preferred_element_type=jnp.float32)

    @pl.when(k == pl.num_programs(2) - 1)
    def _():
        out[...] = acc[...].astype(out.dtype)


def matmul(a, b, *, semantics=None, tile=16, **options):
    """A tiled product with its sum in scratch."""
    (m, k), n = a.shape, b.shape[1]
    params = {}
    if semantics is not None:
        params["compiler_params"] = pltpu.CompilerParams(dimension_semantics=semantics)
    return pl.pallas_call(
        _matmul_step,
        jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(pl.cdiv(m, tile), pl.cdiv(n, tile), pl.cdiv(k, tile)),
        in_specs=[
            pl.BlockSpec((tile, tile), lambda i, j, k: (i, k)),
            pl.BlockSpec((tile, tile), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((tile, tile), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((tile, tile), jnp.float32)],
        **params,
        **options,
    )(a, b)


def _softmax_step(x, y):
    e = jnp.exp(x[...] - x[...].max(axis=1, keepdims=True))
    y[...] = e / e.sum(axis=1, keepdims=True)


def softmax(x, *, rows=8, **options):
    """Softmax of rows, some of them a step."""
    spec = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        _softmax_step,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], rows),),
        in_specs=[spec],
        out_specs=spec,
        **options,
    )(x)


def _loop_step(n, x, y):
    def body(i, total):
        return total + x[i]

    y[...] = jax.lax.fori_loop(0, n[0], body, jnp.zeros(y.shape, y.dtype))


def sum_of_some_rows(n, x, **options):
    """The sum of as many rows as a prefetched number says, in a `while` loop."""
    return pl.pallas_call(
        _loop_step,
        jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[pl.BlockSpec(x.shape, lambda i, n: (0, 0))],
            out_specs=pl.BlockSpec(x.shape[1:], lambda i, n: (0,)),
        ),
        **options,
    )(n, x)
