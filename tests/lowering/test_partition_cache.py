"""JAX's persistent compilation cache, with a kernel that the partitioner splits."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_CACHED = """
import sys
import jax, jax.monitoring, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.lowering.partitioned import ROWS
seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name))
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
x = jax.device_put(ROWS.operands()[0], NamedSharding(mesh, P("x")))
y, _ = jax.jit(ROWS.op)(x)
np.testing.assert_allclose(y, ROWS.reference(ROWS.operands()[0])[0], 1e-5)
assert ROWS.last() == ((2, 16),) or not ROWS.seen or sys.argv[1] == "warm"
print("hits", seen.count("/jax/compilation_cache/cache_hits"))
"""


def _in_a_process(cache, *words, **settings) -> str:
    env = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "PYTHONPATH": str(ROOT),
        **settings,
    }
    done = subprocess.run(
        [sys.executable, "-c", _CACHED, *words],
        env=env, capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_compilation_cache_works_across_processes(tmp_path):
    """JAX keeps a callback's address in the key, unless it is told to leave it out."""
    setting = {"JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "true"}
    _in_a_process(tmp_path, "cold", **setting)
    entries = {p.name for p in tmp_path.iterdir() if not p.name.endswith("-atime")}
    assert entries
    warm = _in_a_process(tmp_path, "warm", **setting)
    assert int(warm.split()[-1]) >= 1
    after = {p.name for p in tmp_path.iterdir() if not p.name.endswith("-atime")}
    assert after == entries, "the second process compiled something anew"
    _in_a_process(tmp_path, "cold")  # right without the setting as well
