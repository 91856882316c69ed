"""What a warm call costs beside JAX's and Equinox's own.

Prints a JSON line a case: the ratio of `tilejax.jit` to `jax.jit`, and of
`tilejax.filter_jit` to `equinox.filter_jit`, each on the same function and arguments:
of the time that the calling thread computes, so that a busy machine changes little.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import tilejax
from benchmarks._side_by_side import in_turns, ratio


def _many(f, *args, calls):
    def run():
        for _ in range(calls):
            out = f(*args)
        jax.block_until_ready(out)

    run()
    return run


def _cases() -> Iterator[tuple[str, Any, Any, Any, tuple]]:
    def add(x):
        return x + 1

    def affine(tree, x):
        return tree["w"] * x + tree["b"]

    x = jnp.ones(8)
    tree = {"w": x, "b": x}
    model = eqx.nn.MLP(4, 4, 8, 2, key=jax.random.key(0))
    yield "one array", jax.jit, tilejax.jit, add, (x,)
    yield "a tree", jax.jit, tilejax.jit, affine, (tree, x)
    yield (
        "a module",
        eqx.filter_jit,
        tilejax.filter_jit,
        lambda m, x: m(x),
        (model, jnp.ones(4)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    rounds, calls = (3, 10) if options.tiny else (101, 500)
    for case, theirs, ours, fun, args in _cases():
        few = calls if theirs is jax.jit else calls // 10
        ways = {
            "ours": _many(ours(fun), *args, calls=few),
            "theirs": _many(theirs(fun), *args, calls=few),
        }
        seconds = in_turns(ways, rounds, time.thread_time)
        found = ratio(seconds["ours"], seconds["theirs"])
        print(json.dumps({"benchmark": "dispatch", "case": case, **found}))


if __name__ == "__main__":
    main()
