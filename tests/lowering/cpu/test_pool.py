"""Calls at the same time, pools that are awkward, and what memory they take."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.lowering.cpu.frames import Pool
from tests.lowering.cpu.processes import run_python
from tests.lowering.cpu.steps import SUM_ROWS, adder, module_text, row_sums
from tilejax.lowering.cpu import cache, compile, runtime
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import current


@pytest.fixture
def sixteen_threads():
    runtime.start()
    runtime.set_threads(16)
    yield
    runtime.set_threads(runtime.allowed_threads())


def _text(rows, columns, *, body=SUM_ROWS, more="", inputs=1, **settings):
    """Return a module that sums rows."""
    settings = {"arena_bytes": 64, **settings}
    launch = Launch("sums", inputs, 1, (rows, columns), (True, False), **settings)
    body = body.replace("COLUMNS", str(columns)).replace("%a1,", f"%a{inputs},")
    return module_text(launch, body, current(), more)


def _handler(rows, columns, **settings):
    """Return the address of what sums rows."""
    runtime.start()
    return compile.load(_text(rows, columns, **settings), current(), "handler")


def _sums(pool, handler, rows, columns):
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) % 31
    y = np.full(rows, -1, np.float32)
    assert pool.call(handler, [x], [y])
    np.testing.assert_array_equal(y, x.sum(1))


def test_tasks_that_never_start_are_not_waited_for(sixteen_threads):
    pool = Pool(8, lambda task: True)
    _sums(pool, _handler(100, 3), 100, 3)
    assert pool.tasks == 7


def test_tasks_that_start_after_the_call_do_nothing(sixteen_threads):
    late = []
    pool = Pool(8, lambda task: late.append(task) or True)
    _sums(pool, _handler(100, 3), 100, 3)
    for task in late:
        task()


def test_tasks_may_run_at_once_on_the_calling_thread(sixteen_threads):
    pool = Pool(8, lambda task: task() or True)
    _sums(pool, _handler(100, 3), 100, 3)
    assert pool.tasks == 7


def test_a_pool_that_refuses_tasks_costs_only_speed(sixteen_threads):
    pool = Pool(8, lambda task: False)
    _sums(pool, _handler(100, 3), 100, 3)
    assert pool.tasks == pool.destroyed == 7


def test_real_threads_share_the_units(sixteen_threads):
    for _ in range(50):
        threads = []

        def start(task, threads=threads):
            threads.append(threading.Thread(target=task))
            threads[-1].start()
            return True

        _sums(Pool(8, start), _handler(1000, 7), 1000, 7)
        for thread in threads:
            thread.join()


_SLOW_SUMS = SUM_ROWS.replace(
    "%before =", "%slept = call i32 @usleep(i32 300)\n  %before ="
)
"""The same, with time for another worker to get at the scratch."""


def test_claimed_units_are_waited_for_and_scratch_is_each_workers_own(
    sixteen_threads,
):
    threads = []

    def start(task):
        threads.append(threading.Thread(target=task))
        threads[-1].start()
        return True

    more = "declare i32 @usleep(i32)"
    handler = _handler(40, 3, body=_SLOW_SUMS, more=more)
    for _ in range(5):
        _sums(Pool(5, start), handler, 40, 3)
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("rows", [203, 1003, 4001])
def test_claiming_several_units_at_once_stops_at_the_last(sixteen_threads, rows):
    pool = Pool(3, lambda task: task() or True)
    handler = _handler(rows, 3, step_ns=100)
    x = np.ones((rows + 500, 3), np.float32)
    y = np.full(rows + 500, -1, np.float32)
    assert pool.call(handler, [x], [y])
    assert pool.tasks == 2
    np.testing.assert_array_equal(y[:rows], np.full(rows, 3))
    np.testing.assert_array_equal(y[rows:], np.full(500, -1))


def test_a_pool_of_one_thread_gets_no_tasks(sixteen_threads):
    pool = Pool(1, lambda task: True)
    _sums(pool, _handler(100, 3), 100, 3)
    assert pool.tasks == 0


def test_no_more_tasks_than_units_or_allowed_threads(sixteen_threads):
    pool = Pool(1000, lambda task: True)
    _sums(pool, _handler(3, 3), 3, 3)
    assert pool.tasks == 2
    _sums(pool, _handler(100, 3), 100, 3)
    assert pool.tasks == 2 + 15


@pytest.mark.parametrize(("step_ns", "tasks"), [(1, 0), (100, 1), (1000, 15)])
def test_little_work_wakes_few_threads(sixteen_threads, step_ns, tasks):
    """100 units of 4 steps: 0.4, 40 and 400 microseconds."""
    pool = Pool(64, lambda task: True)
    _sums(pool, _handler(100, 4, step_ns=step_ns), 100, 4)
    assert pool.tasks == tasks


def test_no_memory_for_scratch_is_an_error_and_not_a_crash():
    pool = Pool(1, lambda task: True)
    handler = _handler(4, 3, arena_bytes=2**60)
    arrays = [np.ones((4, 3), np.float32)], [np.ones(4, np.float32)]
    assert not pool.call(handler, *arrays)
    assert pool.errors == ["8: tilejax: no memory for a kernel's scratch"]


def test_more_calls_at_once_than_arenas_are_kept():
    """Each call starts another from its pool, 80 deep, while it holds its scratch."""
    runtime.start()
    runtime.set_threads(2)
    handler = _handler(2, 3)
    depth = 0

    def schedule(_):
        nonlocal depth
        depth += 1
        if depth < 80:
            _sums(pool, handler, 2, 3)
        return True

    pool = Pool(2, schedule)
    _sums(pool, handler, 2, 3)
    runtime.set_threads(runtime.allowed_threads())
    assert depth == 80


def test_eight_threads_calling_kernels_agree(rng):
    sums = jax.jit(row_sums(200, 50, arena_bytes=1 << 16))
    add = jax.jit(adder(500))
    inputs = rng.integers(-9, 9, (8, 200, 50)).astype(np.float32)

    def work(x):
        for _ in range(40):
            np.testing.assert_array_equal(sums(x), x.sum(1))
            a = x.reshape(-1)[:500]
            np.testing.assert_array_equal(add(a, a), 2 * a)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, inputs))


def test_eight_threads_compile_one_kernel(rng):
    x = rng.integers(-9, 9, (31, 5)).astype(np.float32)

    def work(_):
        np.testing.assert_array_equal(jax.jit(row_sums(31, 5))(x), x.sum(1))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def test_kernels_run_on_several_devices_at_once(rng, eight_devices):
    x = rng.integers(-9, 9, (31, 5)).astype(np.float32)
    sums = jax.jit(row_sums(31, 5))
    results = [sums(jax.device_put(x, device)) for device in eight_devices]
    for result in results:
        np.testing.assert_array_equal(result, x.sum(1))


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1])


def growth() -> float:
    """Return how much memory a hundred kernels more take, all scratch being touched.

    Without XLA and from the disk cache, since JAX keeps what XLA compiles, and LLVM's
    optimiser 0.1 MB a kernel.
    """
    pool = Pool(2, lambda task: task() or True)
    more = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"

    def text(rows):
        size = (1 << 20) + 8192 * rows
        fill = f"call void @llvm.memset.p0.i64(ptr %arena, i8 0, i64 {size}, i1 false)"
        body = SUM_ROWS.replace("%first =", f"{fill}\n  %first =")
        # The scratch is filled at each step, so a row is of one element.
        return _text(rows, 1, body=body, more=more, arena_bytes=size)

    def run(rows):
        handler = compile.load(text(rows), current(), "handler")
        _sums(pool, handler, rows, 1)

    runtime.start()
    for rows in range(1, 111):
        data = compile.compile_object(text(rows), current())
        cache.write(cache.key(text(rows), current()), data)
    for rows in range(1, 11):
        run(rows)
    before = _resident()
    for rows in range(11, 111):
        run(rows)
    return _resident() / before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_a_hundred_kernels():
    """In a process in which no other test has made arenas."""
    code = "from tests.lowering.cpu.test_pool import growth\nprint(growth())"
    assert float(run_python(code)) < 1.05


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_a_call_gives_its_memory_back():
    """A call of a thousand operands takes 8 KiB."""
    pool = Pool(1, lambda task: True)
    handler = _handler(1, 1, inputs=1000)
    operands = [np.ones((1, 1), np.float32)] * 1000, [np.ones(1, np.float32)]
    call = pool.prepare(handler, *operands)
    for _ in range(100):
        call()
    before = _resident()
    for _ in range(10_000):
        call()
    assert (_resident() - before) * 4096 < 20 * 2**20
