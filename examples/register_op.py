"""An operation of one's own: a kernel for TPUs, plain JAX everywhere else.

Run it with `python -m examples.register_op`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding, PartitionSpec as P

import tilejax


def swish(x, scale):
    return x * jax.nn.sigmoid(x) * scale


def swish_kernel(x, scale, *, config):
    def body(x_ref, scale_ref, y_ref):
        y_ref[...] = swish(x_ref[...], scale_ref[...])

    block = pl.BlockSpec((config, x.shape[1]), lambda i: (i, 0))
    row = pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))
    grid = (pl.cdiv(x.shape[0], config),)
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    call = pl.pallas_call(body, out, grid=grid, in_specs=[block, row], out_specs=block)
    return call(x, scale.reshape(1, -1))


tiled_swish = tilejax.register_op(
    "example_swish",
    reference=swish,
    sharding="m n, n -> m n",
    kernels={"tpu": swish_kernel},
    config_space=[256],  # rows of a block
    dtypes=["float32"],
)


def main() -> None:
    x = jnp.linspace(-3.0, 3.0, 512 * 128).reshape(512, 128)
    scale = jnp.linspace(0.5, 2.0, 128)

    # here the reference runs, and JAX sees through the operation
    assert jnp.allclose(tiled_swish(x, scale), swish(x, scale))
    loss = lambda op: lambda *args: jnp.sum(jnp.sin(op(*args)))  # noqa: E731
    ours, theirs = (jax.grad(loss(op), (0, 1))(x, scale) for op in (tiled_swish, swish))
    assert all(jnp.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))
    many = jnp.stack([x, 2 * x])
    mapped = jax.vmap(tiled_swish, (0, None))(many, scale)
    assert jnp.allclose(mapped[1], swish(2 * x, scale))

    # over devices it stays where it is: no collective but the gradient's sum
    mesh = jax.make_mesh((len(jax.devices()),), ("rows",))
    shared = jax.device_put(x, NamedSharding(mesh, P("rows", None)))
    run = jax.jit(tiled_swish)
    assert run(shared, scale).sharding.spec[0] == "rows"
    assert "all-gather" not in str(run.lower(shared, scale).compile().as_text())

    # for a TPU the kernel is compiled, by Mosaic
    lowered = (
        tilejax.jit(tiled_swish).trace(x, scale).lower(lowering_platforms=("tpu",))
    )
    assert "tpu_custom_call" in lowered.as_text("stablehlo")
    here = functools.partial(tilejax.explain, tiled_swish, x, scale)
    (kernel,), (reference,) = here(target="tpu:v5e").kernels, here().kernels
    assert (kernel.impl, kernel.config, reference.impl) == ("native", 256, "reference")
    print(f"on a TPU v5e: {kernel.impl}, {kernel.reason}; here: {reference.reason}")


if __name__ == "__main__":
    main()
