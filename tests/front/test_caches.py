"""What is kept between calls, when a function is traced again, and what is let go."""

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.front.agreement import check_agreement, counted

ROOT = str(Path(tilejax.__file__).parent.parent)
X = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3)


def body(x):
    return jnp.tanh(x @ x.T).sum()


def test_traces_are_as_many_as_in_jax():
    def case(jit):
        f, calls = counted(body)
        g = jit(f)
        for x in (X, X + 1, X.astype(jnp.float16), X, X[:1]):
            g(x)
        seen = [len(calls)]
        jit(f)(X)  # anew, on the same function
        jax.grad(g)(X)
        seen.append(len(calls))
        jit(lambda x: f(x))(X)  # another function
        seen.append(len(calls))
        g.clear_cache()
        g(X)
        seen.append(len(calls))
        return seen

    check_agreement(case)


def test_clearing_all_caches_traces_anew():
    def case(jit):
        f, calls = counted(lambda x: x + 1)
        g = jit(f)
        g(X)
        jax.clear_caches()
        return g(X), g(X), len(calls)

    check_agreement(case)


def test_settings_of_tilejax_are_part_of_the_key():
    f, calls = counted(lambda x: x - x)
    g = tilejax.jit(f)
    g(X)
    with tilejax.options(fast_math=True):
        g(X)
        g(X)
    g(X)
    assert len(calls) == 2


def test_other_targets_and_passes_are_other_functions():
    f, calls = counted(body)
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"passes": []},
        {"target": "tpu:v5e"},
        {"passes": ["dce"]},
        {},
    )
    for how in ways:
        tilejax.jit(f, **how).trace(X)
    assert len(calls) == 4


@pytest.mark.parametrize("collect", [False, True], ids=["by_count", "by_gc"])
def test_a_dropped_function_lets_go_of_what_it_closes_over(collect):
    def case(jit):
        big = jnp.ones(10)
        closed = (lambda big: lambda x: x @ x.T + big[0])(big)
        f = jit(closed)
        f(X)
        f(X)
        held = weakref.ref(big)
        del closed, big
        f(X)
        before = held() is None
        del f
        if collect:
            gc.collect()
        return before, held() is None

    check_agreement(case)
    assert case(tilejax.jit) == (False, True)


def test_the_function_is_let_go_after_lowering_too():
    def f(x):
        return x * 2

    held = weakref.ref(f)
    g = tilejax.jit(f)
    lowered = g.lower(X)
    lowered.as_text("tiled")
    del g, lowered, f
    gc.collect()
    assert held() is None


def test_results_are_the_same_from_run_to_run():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(40, 30)), jnp.float32)

    def f(x):
        return jax.nn.softmax(jnp.tanh(x @ x.T)) @ x, jnp.sum(x)

    first = [np.asarray(y) for y in tilejax.jit(f)(x)]
    text = tilejax.jit(f).lower(x).as_text()
    for _ in range(3):
        jax.clear_caches()
        again = tilejax.jit(f)
        assert again.lower(x).as_text() == text
        for a, b in zip(again(x), first, strict=True):
            np.testing.assert_array_equal(a, b)


def test_threads_may_call_at_once():
    def f(x, k):
        return jnp.tanh(x @ x.T) * k

    g = tilejax.jit(f, static_argnums=1)
    results: dict = {}
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        for k in range(3):
            results[i, k] = tilejax.jit(f, static_argnums=1)(X, k) + g(X, k)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24
    for (_, k), value in results.items():
        np.testing.assert_allclose(value, 2 * k * jnp.tanh(X @ X.T), rtol=1e-6)


SCRIPT = """
import collections, json, sys
import jax, jax.numpy as jnp
import tilejax

events = collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: events.update([name]))
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

@tilejax.jit
def step(p, x):
    def loss(p):
        return jnp.sum(jax.nn.softmax(jnp.tanh(x @ p)) ** 2)
    return jax.value_and_grad(loss)(p)

value, grad = step(jnp.ones((3, 4)), jnp.ones((2, 3)))
print(json.dumps({
    "value": float(value),
    "hits": events["/jax/compilation_cache/cache_hits"],
    "misses": events["/jax/compilation_cache/cache_misses"],
}))
"""


@pytest.mark.slow
def test_a_second_process_finds_everything_in_the_persistent_cache(tmp_path):
    def run():
        env = {**os.environ, "PYTHONPATH": ROOT}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        entries = {
            p.name for p in (tmp_path / "cache").iterdir() if "atime" not in p.name
        }
        return json.loads(done.stdout.splitlines()[-1]), entries

    cold, stored = run()
    warm, still = run()
    assert cold["misses"] > 0 and stored
    assert warm["misses"] == 0 and warm["hits"] >= cold["misses"]
    assert any("jit_step" in name for name in stored)
    assert still == stored
    assert warm["value"] == cold["value"]
