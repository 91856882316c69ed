"""What a target lets a kernel's blocks be: dtypes, alignment, bytes."""

from collections.abc import Iterable

import jax.numpy as jnp

from tilejax.lowering.kernels.tiles import LANES, sublanes
from tilejax.targets import Target

# Mosaic keeps part of the scoped memory for spills and for its own buffers.
# Kernels count two buffers of each block, of which a CPU has none: there, blocks lie in
# the arrays themselves.
_SHARE = {"tpu": 0.75, "cpu": 2.0}


def takes(target: Target, dtypes: Iterable) -> bool:
    """Say whether a kernel with operands of these types can be compiled for a target.

    **Arguments:**

    - `target`: The machine.
    - `dtypes`: The types of all operands and results.

    **Returns:**

    False for f64 and f16 on a TPU: Mosaic has no 64-bit types, and its compiler refuses
    to load f16.

        >>> import tilejax.targets
        >>> takes(tilejax.targets.get("tpu:v5e"), ["float16"])
        False
    """
    refused = {"tpu": ("float64", "float16")}.get(target.kind, ())
    return all(jnp.dtype(dtype).name not in refused for dtype in dtypes)


def alignment(target: Target, dtype) -> tuple[int, int]:
    """Return what the last two sizes of a block must be multiples of.

    A block as long as its dimension is legal whatever its size.

    **Arguments:**

    - `target`: The machine.
    - `dtype`: Of the block.

    **Returns:**

    Rows and columns.

        >>> import tilejax.targets
        >>> alignment(tilejax.targets.get("tpu:v5e"), "bfloat16")
        (16, 128)
    """
    return (sublanes(dtype), LANES) if target.kind == "tpu" else (16, 16)


def worth_packing(target: Target, tiles: Iterable[int], least: int) -> list[int]:
    """Return the tiles that are long enough for the product of a step.

    A CPU brings a block into another order before it multiplies, which pays where the
    block is used often.

    **Arguments:**

    - `target`: The machine.
    - `tiles`: To choose from.
    - `least`: What a CPU wants.

    **Returns:**

    Those of at least that on a CPU, all of them elsewhere.

        >>> import tilejax.targets
        >>> worth_packing(tilejax.targets.get("cpu"), (16, 64, 256), 64)
        [64, 256]
    """
    return [tile for tile in tiles if tile >= least or target.kind != "cpu"]


def room(target: Target) -> int:
    """Return the bytes that all blocks and scratch of a kernel may take together.

    **Arguments:**

    - `target`: The machine.

    **Returns:**

    What one block may use, less what the compiler needs for itself; 128 KiB where
    nobody has published a figure.

        >>> import tilejax.targets
        >>> room(tilejax.targets.get("tpu:v5e")) == 12 * 2**20
        True
    """
    whole = target.block_bytes or 128 * 1024
    return int(whole * _SHARE.get(target.kind, 1.0))
