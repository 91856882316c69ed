"""Units, steps, sizes and buffers of a kernel's grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.cpu.steps import ADD, SUM_ROWS, adder, native, row_sums
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import forced

STEP_COSTS = [0, 1, 10_000]


@pytest.mark.parametrize("step_ns", STEP_COSTS)
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_every_step_of_a_parallel_grid_runs_once(rng, size, step_ns):
    a, b = rng.normal(size=(2, size)).astype(np.float32)
    c = jax.jit(adder(size, step_ns=step_ns))(a, b)
    np.testing.assert_array_equal(c, a + b)


def test_a_kernel_runs_without_jit(rng):
    a, b = rng.normal(size=(2, 5)).astype(np.float32)
    np.testing.assert_array_equal(adder(5)(a, b), a + b)


def test_a_kernel_without_a_grid_runs_once():
    launch = Launch("once", 2, 1)
    body = ADD.replace("%i = zext i32 %pid0 to i64", "%i = add i64 0, 0")
    a, b = np.array([1], np.float32), np.array([2], np.float32)
    c = native(launch, body, ((1,), np.float32))(a, b)
    np.testing.assert_array_equal(c, [3])


@pytest.mark.parametrize("step_ns", STEP_COSTS)
@pytest.mark.parametrize("shape", [(1, 1), (64, 3), (300, 17)])
def test_scratch_lives_through_the_sequential_steps_of_a_unit(rng, shape, step_ns):
    x = rng.integers(-9, 9, shape).astype(np.float32)
    y = jax.jit(row_sums(*shape, step_ns=step_ns))(x)
    np.testing.assert_array_equal(y, x.sum(1))


@pytest.mark.parametrize("arena_bytes", [64, 5000, 2**21, 3 * 2**20 + 1, 2**28 + 1])
def test_scratch_has_its_size_and_alignment(arena_bytes):
    """Its last byte is written; its address comes out modulo 2 MiB."""
    launch = Launch("aligned", 0, 1, (4,), (True,), arena_bytes=arena_bytes)
    body = f"""
  %end = getelementptr i8, ptr %arena, i64 {arena_bytes - 1}
  store i8 1, ptr %end
  %address = ptrtoint ptr %arena to i64
  %rest = and i64 %address, {2**21 - 1}
  %i = zext i32 %pid0 to i64
  %py = getelementptr i64, ptr %a0, i64 %i
  store i64 %rest, ptr %py
  ret void"""
    with jax.enable_x64(True):
        rests = np.asarray(native(launch, body, ((4,), np.int64))())
    assert not (rests % (2**21 if arena_bytes >= 2**21 else 4096)).any()


def _order_kernel(grid, parallel, sizes=False):
    """Return for every step its number in row-major order, and the sizes it is told."""
    launch = Launch(
        "order", 1, 1, grid, parallel, arena_bytes=64, sizes=sizes, step_ns=10_000
    )
    count = len(grid)
    lines = ["%s0 = add i64 0, 0"]
    for d in range(count):
        lines += [
            f"%w{d} = zext i32 %pid{d} to i64",
            f"%px{d} = getelementptr i32, ptr %a0, i64 {d}",
            f"%n{d}_ = load i32, ptr %px{d}",
            f"%n{d} = zext i32 %n{d}_ to i64",
            f"%m{d} = mul i64 %s{d}, %n{d}",
            f"%s{d + 1} = add i64 %m{d}, %w{d}",
        ]
    lines += [
        f"%at = getelementptr i32, ptr %a1, i64 %s{count}",
        "%old = load i32, ptr %at",
        "%new = add i32 %old, " + ("%size1" if sizes else "1"),
        "store i32 %new, ptr %at",
        "ret void",
    ]
    return launch, "\n".join(lines)


@pytest.mark.parametrize(
    "parallel",
    [(True, True, True), (True, False, True), (False, True, False), (False,) * 3],
)
@pytest.mark.parametrize("dynamic", [(), (0,), (1,), (2,), (0, 1, 2)])
def test_a_grid_is_covered_whatever_is_parallel_or_dynamic(parallel, dynamic):
    grid = (3, 4, 5)
    given = tuple(None if d in dynamic else n for d, n in enumerate(grid))
    launch, body = _order_kernel(given, parallel)
    launch = Launch(**{**vars(launch), "aliases": ((1, 0),), "inputs": 2})
    body = body.replace("%a1", "%a2")
    kernel = native(launch, body, ((60,), np.int32))
    counts = jax.jit(kernel)(
        *(np.int32(grid[d]) for d in dynamic),
        np.array(grid, np.int32),
        np.zeros(60, np.int32),
    )
    np.testing.assert_array_equal(counts, np.ones(60))


def test_a_step_may_be_told_the_sizes_of_the_grid():
    launch, body = _order_kernel((3, None, 5), (True, False, True), sizes=True)
    launch = Launch(**{**vars(launch), "aliases": ((1, 0),), "inputs": 2})
    kernel = native(launch, body.replace("%a1", "%a2"), ((60,), np.int32))
    told = kernel(np.int32(4), np.array((3, 4, 5), np.int32), np.zeros(60, np.int32))
    np.testing.assert_array_equal(told, np.full(60, 4))


@pytest.mark.parametrize(
    ("size", "columns"),
    [(-3, 3), (0, 3), (1, 3), (6, 3), (-3, 0), (6, 0), (2**31 - 1, 0)],
)
def test_a_dynamic_size_may_be_zero_or_less(size, columns):
    launch = Launch(
        "dynamic", 2, 1, (None, columns), (True, False),
        arena_bytes=64, aliases=((1, 0),),
    )  # fmt: skip
    body = SUM_ROWS.replace("COLUMNS", "3").replace("%a1", "%a2")
    kernel = jax.jit(native(launch, body, ((6,), np.float32)))
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    y = kernel(np.int32(size), x, np.full(6, -1, np.float32))
    wanted = np.full(6, -1, np.float32)
    if columns:
        wanted[: max(size, 0)] = x.sum(1)[: max(size, 0)]
    np.testing.assert_array_equal(y, wanted)


def test_two_negative_sizes_do_not_make_a_positive_one():
    launch = Launch("negative", 3, 1, (None, None), (True, True), aliases=((2, 0),))
    kernel = native(launch, ADD.replace("%a2", "%a3"), ((6,), np.float32))
    x = np.ones(6, np.float32)
    y = kernel(np.int32(-2), np.int32(-3), x, x, -x)
    np.testing.assert_array_equal(y, -x)


def test_a_large_output_on_huge_pages_is_written_whole():
    rows, columns = 9, 2**18 + 7  # 9 MiB, no whole number of pages
    launch = Launch("large", 0, 1, (rows,), (True,), output_bytes=(4 * rows * columns,))
    body = f"""
  %r = zext i32 %pid0 to i64
  %start = mul i64 %r, {columns}
  br label %next
next:
  %k = phi i64 [0, %0], [%after, %next]
  %at = add i64 %start, %k
  %p = getelementptr i32, ptr %a0, i64 %at
  %value = trunc i64 %at to i32
  store i32 %value, ptr %p
  %after = add i64 %k, 1
  %more = icmp ult i64 %after, {columns}
  br i1 %more, label %next, label %end
end:
  ret void"""
    y = jax.jit(native(launch, body, ((rows, columns), np.int32)))()
    np.testing.assert_array_equal(y, np.arange(rows * columns).reshape(rows, columns))


def test_an_alias_is_updated_in_place_and_its_operand_is_not_changed(rng):
    launch = Launch("inplace", 2, 1, (8,), (True,), aliases=((1, 0),))
    kernel = native(launch, ADD, ((8,), np.float32))
    a, b = map(jnp.asarray, rng.normal(size=(2, 8)).astype(np.float32))
    wanted = np.asarray(a) + np.asarray(b)
    np.testing.assert_array_equal(jax.jit(kernel)(a, b), wanted)
    kept = b + 0
    donating = jax.jit(kernel, donate_argnums=1)
    place = b.unsafe_buffer_pointer()
    c = donating(a, b)
    np.testing.assert_array_equal(c, wanted)
    assert c.unsafe_buffer_pointer() == place
    np.testing.assert_array_equal(kernel(a, kept), wanted)


def test_kernels_of_one_program_see_each_others_results(rng):
    add, sums = adder(12), row_sums(3, 4)

    def program(a, b):
        c = add(a, b)
        return sums(add(c, c).reshape(3, 4)), sums(c.reshape(3, 4))

    a, b = rng.integers(-9, 9, (2, 12)).astype(np.float32)
    first, second = jax.jit(program)(a, b)
    np.testing.assert_array_equal(first, 2 * (a + b).reshape(3, 4).sum(1))
    np.testing.assert_array_equal(second, (a + b).reshape(3, 4).sum(1))


def test_a_kernel_runs_inside_loops_and_branches():
    add = adder(4)

    @jax.jit
    def program(x):
        x = jax.lax.fori_loop(0, 5, lambda _, y: add(y, x), x)
        return jax.lax.cond(x[0] > 3, lambda y: add(y, y), lambda y: y, x)

    np.testing.assert_array_equal(program(np.ones(4, np.float32)), np.full(4, 12))


@pytest.mark.parametrize("name", ["plain", "avx2", "avx512"])
def test_code_for_another_cpu_gives_the_same(rng, name):
    x = rng.integers(-9, 9, (5, 7)).astype(np.float32)
    with forced(name) as host:
        if not host.runs_here:
            pytest.skip(f"this CPU cannot run code for {name}")
        np.testing.assert_array_equal(jax.jit(row_sums(5, 7))(x), x.sum(1))
