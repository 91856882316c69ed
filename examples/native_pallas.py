"""A Pallas kernel compiled for the CPU: inside `tilejax.jit`, and in plain JAX code."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import tilejax


def softmax_kernel(x_ref, y_ref):
    e = jnp.exp(x_ref[...] - x_ref[...].max(axis=1, keepdims=True))
    y_ref[...] = e / e.sum(axis=1, keepdims=True)


def softmax(x, **options):
    block = pl.BlockSpec((32, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        softmax_kernel,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(x.shape[0], 32),),
        in_specs=[block],
        out_specs=block,
        **options,
    )(x)


def main() -> None:
    x = jax.random.normal(jax.random.key(0), (1000, 257))
    interpreted = softmax(x, interpret=True)

    compiled = tilejax.jit(softmax)(x)
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-5, atol=1e-7)

    with tilejax.native_pallas():
        compiled = jax.jit(jax.vmap(softmax))(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(compiled[0], interpreted, rtol=1e-5, atol=1e-7)

    lowered = tilejax.jit(softmax).lower(x)
    print(lowered.as_text("tile"))


if __name__ == "__main__":
    main()
