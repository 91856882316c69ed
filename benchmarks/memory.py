"""What the memory of compiled programs is with and without the passes that lower it.

Prints a JSON line a program: XLA's own figures (`memory_analysis`), in bytes, of
`jax.jit`, of `tilejax.jit` without the passes `in_place` and `order`, and with them.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import tilejax
from benchmarks.passes import train_step_of
from tilejax.passes import without


def _scale(x_ref, y_ref):
    y_ref[...] = x_ref[...] * 1.5


def _kernels(x):
    """Kernels one after the other, each of which could write where it reads."""
    spec = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    for _ in range(4):
        x = pl.pallas_call(
            _scale,
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0] // 8,),
            in_specs=[spec],
            out_specs=spec,
        )(jnp.sin(x))
    return x


def _update(x, grad):
    """A kernel on an argument that is given away."""
    return _kernels(x + grad), grad


def _hungry(x):
    """Products that all wait for their sums."""
    found = [x @ (x + k) for k in range(8)]
    return sum(jnp.tanh(each).sum() for each in found)


def programs(size: int, layers: int) -> dict[str, tuple[Callable, tuple, dict]]:
    """Return functions with the types of their arguments and options."""
    matrix = jax.ShapeDtypeStruct((size, size), jnp.float32)
    step, args = train_step_of(layers)
    return {
        "kernels": (_kernels, (matrix,), {}),
        "donated": (_update, (matrix, matrix), {"donate_argnums": 0}),
        "products": (_hungry, (matrix,), {}),
        "train step": (step, args, {"donate_argnums": (0, 1, 2)}),
    }


def figures(compiled: Any) -> dict[str, int] | None:
    """Return XLA's figures of a compiled program; None where it has none."""
    found = compiled.memory_analysis()
    if found is None:
        return None
    return {
        "temporary": found.temp_size_in_bytes,
        "arguments": found.argument_size_in_bytes,
        "results": found.output_size_in_bytes,
        "shared": found.alias_size_in_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tiny", action="store_true", help="small and one layer")
    options = parser.parse_args()
    size, layers = (64, 1) if options.tiny else (options.size, options.layers)
    ways = {
        "jax": jax.jit,
        "before": partial(tilejax.jit, passes=without("in_place", "order")),
        "after": tilejax.jit,
    }
    for name, (fun, args, more) in programs(size, layers).items():
        line: dict[str, Any] = {"program": name}
        for way, jit in ways.items():
            with tilejax.native_pallas():
                line[way] = figures(jit(fun, **more).lower(*args).compile())
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
