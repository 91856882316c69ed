"""Lowering to a checked kernel: one more result, the owners of the outputs."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from tilejax._jax.primitives import lower_plain
from tilejax.lowering.cpu import ffi
from tilejax.lowering.cpu.checked_owners import owner_words
from tilejax.lowering.cpu.host import Host
from tilejax.lowering.cpu.kernel import build
from tilejax.lowering.tile.program import Ref, TileProgram


def lower_checked(
    ctx,
    operands: Sequence,
    program: TileProgram,
    names: Mapping[Ref, str],
    host: Host,
) -> Sequence:
    """Lower to a call of the kernel that checks what it reads and writes.

    **Arguments:**

    - `ctx`, `operands`: of the lowering rule.
    - `names`: what the user calls each reference.

    **Raises:** `UnsupportedKernel`.
    """
    # Kernels with the same operations may have other names and lines.
    module, launch = build(program, host, names)
    target = ffi.register(module.text(), launch, host)
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ctx.avals_out]
    owners = jax.ShapeDtypeStruct((owner_words(program),), jnp.uint32)
    sizes = len(launch.dynamic)
    call = jax.ffi.ffi_call(
        target,
        [*types, owners],
        input_output_aliases={sizes + i: o for i, o in launch.aliases},
    )

    def run(*arrays):
        return call(*arrays, jnp.zeros(owners.shape, owners.dtype))[:-1]

    return lower_plain(ctx, run, operands)
