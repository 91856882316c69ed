"""What padding to buckets saves in compiling, and what it costs a warm call.

Prints two JSON lines about a small network that is called with many batch sizes: the
ratio of `compile(bucket="pow2")` to `compile(bucket=None)` for the first calls of all
sizes, in turns and with JAX's caches cleared before each, and for warm calls.
"""

import argparse
import json

import jax
import numpy as np

import tilejax
from benchmarks._side_by_side import in_turns, ratio


def network(width: int) -> tilejax.GraphBuilder:
    graph = tilejax.GraphBuilder("network")
    x = graph.placeholder("x", shape=("batch", width))
    for _ in range(3):
        x = graph.relu(graph.dense(graph.layer_norm(x), units=width))
    graph.output(graph.softmax(graph.dense(x, units=10)))
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    width, sizes = (16, range(3, 5)) if options.tiny else (256, range(33, 65))
    graph = network(width)
    params = graph.init(0)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((n, width)).astype(np.float32) for n in sizes]

    def calls(bucket, *, first: bool):
        compiled = graph.compile(params=params, bucket=bucket)

        def run():
            again = compiled
            if first:
                jax.clear_caches()
                again = graph.compile(params=params, bucket=bucket)
            for x in given:
                jax.block_until_ready(again(x))

        return run

    for case, first in (("first calls", True), ("warm calls", False)):
        ways = {
            "ours": calls("pow2", first=first),
            "theirs": calls(None, first=first),
        }
        for run in ways.values():
            run()
        rounds = 2 if options.tiny else 3 if first else 51
        seconds = in_turns(ways, rounds)
        found = ratio(seconds["ours"], seconds["theirs"])
        line = {"benchmark": "buckets", "case": case, "sizes": len(given), **found}
        print(json.dumps(line))


if __name__ == "__main__":
    main()
