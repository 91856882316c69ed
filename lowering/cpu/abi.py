"""Where things lie in the records that kernels, the pool and XLA share, in bytes."""

from types import SimpleNamespace

LAYOUT = 1
"""Raised with every change of what is in this file, so that cached objects that follow
an older layout are not found again."""

# A constant of the kernel's module.
PLAN = SimpleNamespace(
    layout=0,
    units=8,  # void(ptr block, i64 from, i64 to, ptr arena, ptr fault)
    enter=16,  # void(), null if a worker has nothing to set up
    leave=24,
    describe=32,  # void(ptr fault, ptr text, i64 size), null unless checked
    arena_bytes=40,
    step_ns=48,
    dynamic=56,  # how many operands are grid sizes
    static_units=64,  # product of the known parallel sizes
    static_steps=72,  # product of the known sequential sizes
    parallel_sizes=80,  # bit k: the k-th grid size is of a parallel dimension
    output_bytes=88,  # of each output
)

# A call's, on the heap: a worker may start after the call is over. Two counters that
# workers change have a cache line each.
BLOCK = SimpleNamespace(
    next=0,
    done=64,
    refs=128,
    allocation=136,
    plan=144,
    units=152,
    chunk=160,
    fault=192,  # 16 i64
    slots=320,  # an i64 a dynamic grid size, then a pointer a buffer
)

# XLA's, as jaxlib's c_api.h declares them.
FRAME = SimpleNamespace(
    extension=8,
    api=16,
    context=24,
    stage=32,
    arguments=56,
    argument_list=72,
    results=96,
    result_list=112,
)
BUFFER_DATA = 24
EXECUTE = 3

METADATA = SimpleNamespace(type=8, kind=1, record=24, major=24, minor=28, traits=32)

_FUNCTIONS = 48
API = SimpleNamespace(
    error_create=_FUNCTIONS,
    error_destroy=_FUNCTIONS + 2 * 8,
    schedule=_FUNCTIONS + 11 * 8,
    threads=_FUNCTIONS + 12 * 8,
)

INVALID_ARGUMENT, RESOURCE_EXHAUSTED = 3, 8
