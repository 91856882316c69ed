"""How long the passes take on a transformer's train step.

Prints one JSON line a pass and one for the whole, the least of several runs.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import Program, trace
from tilejax.ir import count
from tilejax.passes import run

WIDTH, HEADS, LENGTH, BATCH, WORDS = 64, 4, 32, 2, 128


def _parameters(layers: int) -> dict:
    shape = jax.ShapeDtypeStruct

    def dense(n, m):
        return {
            "w": shape((n, m), jnp.float32),
            "b": shape((m,), jnp.float32),
        }

    norm = {"scale": shape((WIDTH,), jnp.float32), "bias": shape((WIDTH,), jnp.float32)}
    layer = {
        "norm1": norm,
        "norm2": norm,
        "q": dense(WIDTH, WIDTH),
        "k": dense(WIDTH, WIDTH),
        "v": dense(WIDTH, WIDTH),
        "out": dense(WIDTH, WIDTH),
        "up": dense(WIDTH, 4 * WIDTH),
        "down": dense(4 * WIDTH, WIDTH),
    }
    return {
        "words": shape((WORDS, WIDTH), jnp.float32),
        "layers": [layer] * layers,
        "norm": norm,
    }


def _dense(p, x):
    return x @ p["w"] + p["b"]


def _norm(p, x):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * p["scale"] + p["bias"]


def _attention(p, x):
    def split(name):
        heads = _dense(p[name], x).reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS)
        return heads.transpose(0, 2, 1, 3)

    q, k, v = split("q"), split("k"), split("v")
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / jnp.sqrt(WIDTH // HEADS)
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf))
    mixed = jnp.einsum("bhst,bhtd->bhsd", weights, v)
    return _dense(p["out"], mixed.transpose(0, 2, 1, 3).reshape(x.shape))


def _loss(parameters, words):
    x = parameters["words"][words[:, :-1]]
    for p in parameters["layers"]:
        x = x + _attention(p, _norm(p["norm1"], x))
        x = x + _dense(p["down"], jax.nn.gelu(_dense(p["up"], _norm(p["norm2"], x))))
    logits = _norm(parameters["norm"], x) @ parameters["words"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), words[:, 1:, None], -1)
    return -picked.mean()


def _step(parameters, mean, variance, time, words):
    loss, grads = jax.value_and_grad(_loss)(parameters, words)
    time = time + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    variance = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, variance, grads)

    def update(p, m, v):
        return p - 1e-3 * (m / (1 - 0.9**time)) / (
            jnp.sqrt(v / (1 - 0.99**time)) + 1e-8
        )

    return jax.tree.map(update, parameters, mean, variance), mean, variance, time, loss


def train_step_of(layers: int) -> tuple[Callable, tuple]:
    """Return a step of Adam on a causal transformer, and its arguments' types."""
    parameters = _parameters(layers)
    return _step, (
        parameters,
        parameters,
        parameters,
        jax.ShapeDtypeStruct((), jnp.float32),
        jax.ShapeDtypeStruct((BATCH, LENGTH + 1), jnp.int32),
    )


def train_step(layers: int) -> Program:
    """Trace a step of Adam on a causal transformer of so many layers."""
    step, args = train_step_of(layers)
    return trace(step, *args)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="one layer, one run")
    options = parser.parse_args()
    if options.tiny:
        options.layers = options.repeat = 1
    start = time.perf_counter()
    program = train_step(options.layers)
    say = partial(print, flush=True)
    say(json.dumps({"trace": time.perf_counter() - start, "equations": count(program)}))
    runs = []
    for _ in range(options.repeat):
        start, used = time.perf_counter(), time.process_time()
        _, records = run(program)
        used = time.process_time() - used
        runs.append((time.perf_counter() - start, used, records))
    say(json.dumps({"first run": runs[0][0], "of it computing": runs[0][1]}))
    seconds, used, records = min(runs, key=lambda each: each[0])
    for record in records:
        say(
            json.dumps(
                {
                    "pass": record.name,
                    "round": record.round,
                    "before": record.before,
                    "after": record.after,
                    "seconds": record.seconds,
                    "notes": record.notes,
                }
            )
        )
    say(
        json.dumps(
            {
                "all passes": seconds,
                "of it computing": used,
                "rounds": records[-1].round,
            }
        )
    )


if __name__ == "__main__":
    main()
