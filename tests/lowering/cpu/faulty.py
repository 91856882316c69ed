"""Kernels with a planted fault, each beside one that does the same rightly."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu, triton as plgpu

F32 = jnp.float32
X = np.arange(32, dtype=np.float32)


def like(*shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def semantics(*words):
    return pltpu.CompilerParams(dimension_semantics=words)


def call(kernel, out, **settings):
    return lambda *arrays: pl.pallas_call(kernel, out, **settings)(*arrays)


def read_past(start: int):
    def shift(x_ref, y_ref):
        y_ref[...] = x_ref[pl.ds(pl.program_id(0) + start, 16)]

    return call(shift, like(16), grid=(1,))


def read_one_past(index: int):
    def pick(x_ref, y_ref):
        y_ref[...] = jnp.full(16, x_ref[pl.program_id(0) + index])

    return call(pick, like(16), grid=(1,))


def write_past(start: int):
    def put(x_ref, y_ref):
        at = pl.program_id(0) * 16 + start
        y_ref[pl.ds(at, 16)] = x_ref[...][:16]

    return call(put, like(32), grid=(2,))


def gather_past(top: int):
    def gather(x_ref, y_ref):
        at = jnp.minimum(jax.lax.iota(jnp.int32, 16) * 3, top)
        y_ref[...] = x_ref[at]

    return call(gather, like(16), grid=(1,))


def masked_past(limit: int):
    def masked(x_ref, y_ref):
        at = pl.ds(pl.program_id(0) * 0 + 24, 16)
        mask = jax.lax.iota(jnp.int32, 16) < limit
        y_ref[...] = plgpu.load(x_ref.at[at], mask=mask, other=0.0)

    return call(masked, like(16), grid=(1,))


def view_past(start: int):
    def view(x_ref, y_ref):
        part = x_ref.at[pl.ds(pl.program_id(0) + start, 16)]
        y_ref[...] = part[pl.ds(0, 16)]

    return call(view, like(16), grid=(1,))


def picked_block(last: int):
    """The blocks are picked by an operand, of which nothing is known before."""

    def copy(s_ref, x_ref, y_ref):
        y_ref[...] = x_ref[...]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2,),
        in_specs=[pl.BlockSpec((8,), lambda i, s: (s[i] * last,))],
        out_specs=pl.BlockSpec((8,), lambda i, s: (i,)),
    )
    return call(copy, like(16), grid_spec=spec)


def missing(upto: int):
    def half(x_ref, y_ref):
        y_ref[pl.ds(0, upto)] = x_ref[pl.ds(0, upto)]

    return call(half, like(32))


def missing_condition(last: int):
    def some(x_ref, y_ref):
        @pl.when(pl.program_id(0) <= last)
        def _():
            y_ref[...] = x_ref[...]

    spec = pl.BlockSpec((8,), lambda i: (i,))
    return call(some, like(32), grid=(4,), in_specs=[spec], out_specs=spec)


def overlapping(step: int):
    def pieces(x_ref, y_ref):
        at = pl.program_id(0) * step
        y_ref[pl.ds(at, 8)] = x_ref[pl.ds(at, 8)]

    params = semantics("parallel")
    return call(pieces, like(3 * step + 8), grid=(4,), compiler_params=params)


def neighbours(distance: int):
    """Each step reads what another one may be writing."""

    def reading(x_ref, y_ref):
        i = pl.program_id(0)
        y_ref[pl.ds(i * 8, 8)] = x_ref[pl.ds(i * 8, 8)]
        y_ref[pl.ds(i * 8, 8)] += y_ref[pl.ds(jnp.maximum(i - distance, 0) * 8, 8)]

    params = semantics("parallel")
    return call(reading, like(32), grid=(4,), compiler_params=params)


def scratch_unwritten(first: int):
    def totals(x_ref, y_ref, total_ref):
        @pl.when(pl.program_id(1) == first)
        def _():
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        y_ref[...] = total_ref[...]

    return call(
        totals,
        like(2, 8),
        grid=(2, 2),
        in_specs=[pl.BlockSpec((None, 8), lambda i, k: (2 * i + k, 0))],
        out_specs=pl.BlockSpec((None, 8), lambda i, k: (i, 0)),
        scratch_shapes=[pltpu.VMEM((8,), F32)],
        compiler_params=semantics("parallel", "arbitrary"),
    )


def scoped_unwritten(count: int):
    def scoped(x_ref, y_ref):
        def body(s_ref):
            s_ref[pl.ds(0, count)] = x_ref[pl.ds(0, count)]
            y_ref[...] = s_ref[...]

        pl.run_scoped(body, pltpu.VMEM((32,), F32))

    return call(scoped, like(32))


def output_unwritten(first: int):
    def sums(x_ref, y_ref):
        @pl.when(pl.program_id(0) == first)
        def _():
            y_ref[...] = jnp.zeros_like(y_ref)

        y_ref[...] += x_ref[...]

    return call(
        sums,
        like(8),
        grid=(4,),
        in_specs=[pl.BlockSpec((8,), lambda k: (k,))],
        out_specs=pl.BlockSpec((8,), lambda k: (0,)),
        compiler_params=semantics("arbitrary"),
    )


def semaphore(signals: int):
    def waiting(x_ref, y_ref, sem):
        pl.semaphore_signal(sem, signals)
        pl.semaphore_wait(sem, 2)
        y_ref[...] = x_ref[...]

    shapes = [pltpu.SemaphoreType.REGULAR]
    return call(waiting, like(32), scratch_shapes=shapes)


S = np.array([0, 1], np.int32)

AT_RUN_TIME = {
    # name: (made by, right, wrong, arrays, what the fault says)
    "read": (read_past, 16, 17, (X,), r"read of the input x_ref at .*\.py:\d+.*"
             r"index 32 is outside of dimension 0, of size 32; grid step \(0\)"),
    "read_below": (read_past, 0, -3, (X,), "read of the input x_ref.*index -3 "),
    "scalar": (read_one_past, 31, 32, (X,), "read of the input x_ref.*index 32 "),
    "write": (write_past, 0, 8, (X,), "write of the output y_ref.*index 39 .*step .1"),
    "gather": (gather_past, 31, 99, (X,), "read of the input x_ref.*index 33 "),
    "masked": (masked_past, 8, 9, (X,), "read of the input x_ref.*index 32 "),
    "view": (view_past, 16, 20, (X,), "part of the input x_ref.*index 35 "),
    "block": (picked_block, 3, 4, (S, X), r"block of the input x_ref.* starts at 32 "
              r"along dimension 0 of its array, of size 32.*grid step \(1\)"),
    "missing": (missing, 32, 31, (X,), r"the output y_ref: element \(31\) is never"),
    "guarded": (missing_condition, 3, 1, (X,), r"element \(16\) is never written"),
    "overlapping": (overlapping, 8, 7, (X,), r"write of the output y_ref.*element "
                    r"\(\d+\) is written by another parallel index.*\(\d\)"),
    "neighbours": (neighbours, 0, 1, (X,), "read of the output y_ref.*element"),
    "scratch": (scratch_unwritten, 0, 1, (X.reshape(4, 8),), r"read of the scratch "
                r"total_ref.*element \(0\) has not been written.*step \([01], 0\)"),
    "scoped": (scoped_unwritten, 32, 30, (X,), r"scoped scratch.*element \(30\)"),
    "output": (output_unwritten, 0, 1, (X,), r"read of the output y_ref.*"
               r"element \(0\) has not been written before; grid step \(0\)"),
    "semaphore": (semaphore, 2, 1, (X,), "wait for the scratch sem.*becomes -1"),
}  # fmt: skip


def blocks(grid, in_map, out_map, words, *, in_block=(8,), out_block=(8,), out=32):
    def copy(x_ref, y_ref):
        y_ref[...] = x_ref[...]

    return call(
        copy,
        like(out),
        grid=grid,
        in_specs=[pl.BlockSpec(in_block, in_map)],
        out_specs=pl.BlockSpec(out_block, out_map),
        compiler_params=semantics(*words),
    )


def outside(steps: int):
    # the last of five blocks of eight: beyond the array's end
    return blocks(
        (steps,), lambda i: (i,), lambda i: (jnp.minimum(i, 3),), ["arbitrary"]
    )


def before(first: int):
    return blocks((4,), lambda i: (i + first,), lambda i: (i,), ["parallel"])


def unvisited(step: int):
    return blocks((4,), lambda i: (i,), lambda i: (i // step,), ["arbitrary"])


def revisited(word: str):
    first = lambda i, k: (i,)  # noqa: E731
    return blocks((4, 2), first, first, ["parallel", word])


def revisited_apart(modulus: int):
    return blocks((4,), lambda i: (i,), lambda i: (i % modulus,), ["parallel"],
                  out=8 * modulus)  # fmt: skip


def elements(step: int):
    block = (pl.Element(8),)
    return blocks((4,), lambda i: (i * 8,), lambda i: (i * step,), ["parallel"],
                  in_block=block, out_block=block, out=3 * step + 8)  # fmt: skip


def untouched(write: bool):
    def two(x_ref, y_ref, z_ref):
        y_ref[...] = x_ref[...]
        if write:
            z_ref[...] = x_ref[...]

    return call(two, [like(32), like(32)])


BEFORE_RUNNING = {
    "outside": (outside, 4, 5, r"the index map of the input x_ref gives 4 for "
                r"dimension 0 at grid step \(4\): the block \[32:40\].*clamp"),
    "before": (before, 0, -1, r"gives -1 for dimension 0 at grid step \(0\)"),
    "unvisited": (unvisited, 1, 2, r"block of the output y_ref with the element "
                  r"\(16\)"),
    "revisited": (revisited, "arbitrary", "parallel", r"the output y_ref is written in "
                  r"the block \[0:8\] at grid step \(0, 0\).*\(0, 1\).*dimension 1 "),
    "apart": (revisited_apart, 4, 3, r"at grid step \(0\).*at \(3\); declare grid"),
    "elements": (elements, 8, 6, r"\[0:8\] at grid step \(0\).*overlaps it at \(1\)"),
    "untouched": (untouched, True, False, "the output z_ref is never written"),
}  # fmt: skip
