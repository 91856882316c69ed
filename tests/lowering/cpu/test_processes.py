"""What needs a process of its own: few CPUs, small pools, JAX's caches."""

import os

import pytest

from tests.lowering.cpu.processes import run_python

# XLA makes its pool as large as NPROC says.
_BUSY = """
import os, threading
AFFINITY
import jax, numpy as np
from tests.lowering.cpu.steps import adder, row_sums
from tilejax.lowering.cpu import runtime
runtime.start()
allowed = runtime.allowed_threads()
THREADS
sums, add = row_sums(64, 9, arena_bytes=4096), adder(64)
x = np.arange(576, dtype=np.float32).reshape(64, 9)
program = jax.jit(lambda x: (add(sums(x), sums(2 * x)), add(x[:, 0], x[:, 1])))
def work():
    for _ in range(50):
        first, second = program(x)
        np.testing.assert_array_equal(first, 3 * x.sum(1))
        np.testing.assert_array_equal(second, x[:, 0] + x[:, 1])
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(allowed)
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="needs a process's affinity"
)
def test_a_process_on_one_cpu_uses_one_thread():
    cpus = sorted(os.sched_getaffinity(0))
    affinity = f"os.sched_setaffinity(0, {{{cpus[0]}}})"
    code = _BUSY.replace("AFFINITY", affinity).replace("THREADS", "")
    assert run_python(code, XLA_FLAGS="").split() == ["1"]


@pytest.mark.parametrize("size", ["1", "2"])
def test_four_callers_of_a_small_pool_do_not_hang(size):
    code = _BUSY.replace("AFFINITY", "").replace("THREADS", "runtime.set_threads(16)")
    run_python(code, XLA_FLAGS="", NPROC=size)


_CACHED = """
import jax, jax.monitoring, numpy as np
from tests.lowering.cpu.steps import row_sums
seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name))
x = np.arange(12, dtype=np.float32).reshape(3, 4)
y = jax.jit(lambda x: row_sums(3, 4)(x + 1))(x)
np.testing.assert_array_equal(y, (x + 1).sum(1))
print(seen.count("/jax/compilation_cache/cache_hits"))
"""


def test_jaxs_compilation_cache_serves_kernels_to_another_process(tmp_path):
    settings = {
        "XLA_FLAGS": "",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    assert int(run_python(_CACHED, **settings)) == 0
    assert int(run_python(_CACHED, **settings)) >= 1
    # Nor does it depend on our own cache: the name follows from the content.
    cold = {**settings, "TILEJAX_CACHE_DIR": ""}
    assert int(run_python(_CACHED, **cold)) >= 1
