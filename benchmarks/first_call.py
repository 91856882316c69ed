"""What the first call of the demo's training step costs beside JAX's own.

Prints a JSON line: the ratio of `tilejax.filter_jit`'s first call (tracing, passes,
lowering, compiling, running) to `equinox.filter_jit`'s of the plain model, in turns,
with JAX's caches cleared before each.
"""

import argparse
import json

import equinox as eqx
import jax
import jax.numpy as jnp

from benchmarks._side_by_side import in_turns, ratio
from tilejax.demo import train
from tilejax.demo.model import PLAIN, TILED, Size, Transformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    size = Size(width=16, heads=2, layers=1, length=8) if options.tiny else Size()
    model = Transformer(64, size, jax.random.key(0))
    optimiser = train.optimizer(100)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    pieces = jnp.zeros((2, size.length + 1), jnp.int32)

    def first(ops):
        def run():
            jax.clear_caches()
            step = train.make_step(optimiser, ops, donate="none")
            jax.block_until_ready(step(model, state, pieces)[2])

        return run

    seconds = in_turns(
        {"ours": first(TILED), "theirs": first(PLAIN)}, 2 if options.tiny else 9
    )
    found = ratio(seconds["ours"], seconds["theirs"])
    print(json.dumps({"benchmark": "first_call", **found}))


if __name__ == "__main__":
    main()
