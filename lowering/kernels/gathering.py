"""Fetching rows of a table whose numbers are known only when the kernel runs.

A TPU moves whole hardware tiles: of a table it cannot fetch one row, only the group of
rows (8, or more of a narrow type) that holds it. So a step that needs `count` rows has
the table `count` times among its operands, each with an index map that looks up its own
row's group among the prefetched row numbers, and picks the row out of the group. The
pipeline then fetches the groups of the next step while this one is computed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tilejax.errors import DTypeError, ParameterError
from tilejax.lowering.kernels.tiles import fit, float_like

# Row numbers are prefetched into scalar memory, a megabyte on a TPU; more of them are
# taken in several calls.
MOST_PREFETCHED = 32 * 1024


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """Choose the tiles of lookups in a table and of their gradients.

    **Arguments:**

    - `rows`: Rows that one step looks up.
    - `group`: Rows of the table that are fetched to get one; a hardware tile's on a
      TPU.
    - `columns`: Columns that one step handles.
    - `vocabulary`: Rows of the table's gradient that one block holds.
    """

    rows: int = 8
    group: int = 8
    columns: int = 512
    vocabulary: int = 256


def wide_type(dtype) -> Any:
    """Return the type in which rows are picked out of their group and summed.

    **Arguments:**

    - `dtype`: Of the table.

    **Returns:**

    f32 for f32, f16 and bf16, f64 for itself, int32 for integers of up to 32 bits.

    **Raises:**

    `tilejax.errors.DTypeError` for any other type.

        >>> str(wide_type("bfloat16")), str(wide_type("int8"))
        ('float32', 'int32')
    """
    dtype = jnp.dtype(dtype)
    if float_like(dtype):
        return jnp.dtype(jnp.promote_types(dtype, jnp.float32))
    if jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize <= 4:
        return jnp.dtype(jnp.int32)
    raise DTypeError(
        "embedding takes tables of floats or of integers of up to 32 bits, got "
        f"{dtype}; cast first"
    )


def fill_value(dtype):
    """Return what stands for a row that is not in the table, as JAX's gather has it.

    **Arguments:**

    - `dtype`: Of the table.

    **Returns:**

    NaN for floats, the lowest value of a signed integer, the highest of an unsigned.

        >>> fill_value("int8")
        -128
    """
    if float_like(dtype):
        return float("nan")
    info = jnp.iinfo(dtype)
    return int(info.min if info.min < 0 else info.max)


def encode(ids: jax.Array, rows: int, out_of_range: str, choices: Sequence[str]):
    """Turn row numbers into int32 codes: the row, or -1 for one to leave out.

    **Arguments:**

    - `ids`: Integers of any shape.
    - `rows`: Of the table. A negative number is out of range too.
    - `out_of_range`: "clip" takes the nearest row; any other of `choices` gives -1.
    - `choices`: What `out_of_range` may be.

    **Returns:**

    int32 of the shape of `ids`.

    **Raises:**

    `tilejax.errors.ParameterError` or `DTypeError`.

        >>> encode(jnp.array([0, 9]), 5, "fill", ("clip", "fill")).tolist()
        [0, -1]
    """
    if out_of_range not in choices:
        raise ParameterError(
            f"out_of_range is one of {', '.join(choices)}, got {out_of_range!r}"
        )
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise DTypeError(f"row numbers are integers, got {ids.dtype}{list(ids.shape)}")
    if rows == 0:
        return jnp.full(ids.shape, -1, jnp.int32)
    # Clipped in their own type, or a 64-bit number might fall into the range when cast.
    most = min(rows - 1, int(jnp.iinfo(ids.dtype).max))
    near = jnp.clip(ids, 0, most).astype(jnp.int32)
    if out_of_range == "clip":
        return near
    return jnp.where((ids >= 0) & (ids <= most), near, -1)


@dataclasses.dataclass(frozen=True)
class Gather:
    """Describe how a step fetches `count` rows of an array of `rows` by `columns`.

    **Arguments:**

    - `count`: Rows a step fetches.
    - `group`: Rows fetched to get one.
    - `columns`: Columns of a block.
    - `dtype`: Of the array.
    """

    count: int
    group: int
    columns: int
    dtype: Any

    @staticmethod
    def of(array: Any, config: EmbeddingConfig) -> "Gather":
        """Fit a config to an array."""
        rows, columns = array.shape
        group, tile = fit(config.group, rows), fit(config.columns, columns)
        return Gather(config.rows, group, tile, jnp.dtype(array.dtype))

    @property
    def wide(self) -> Any:
        """Return the type that rows are handed out in."""
        return wide_type(self.dtype)

    @property
    def staged(self) -> bool:
        """Say whether a group is widened before its row can be picked.

        Narrow types are packed, several rows to a register row, so a row of them cannot
        be read at a place known only at run time.
        """
        return self.group > 1 and self.dtype.itemsize < 4

    def specs(self, number: Callable) -> list[pl.BlockSpec]:
        """Return the blocks of the `count` copies of the array.

        **Arguments:**

        - `number`: From a slot, the grid step and the prefetched references to the
          number of the wanted row, and the tile of columns.
        """

        def spec(slot):
            def index(*step):
                row, column = number(slot, *step)
                return jax.lax.div(
                    jax.lax.max(row, jnp.int32(0)), jnp.int32(self.group)
                ), column

            return pl.BlockSpec((self.group, self.columns), index)

        return [spec(slot) for slot in range(self.count)]

    def scratch(self) -> list:
        """Return the memory that `row` needs."""
        shape = (self.group if self.staged else 1, self.columns)
        return [pltpu.VMEM(shape, self.wide)]

    def row(self, ref, stage_ref, number) -> jax.Array:
        """Pick a row out of the group that was fetched for it.

        **Arguments:**

        - `ref`: The group's block.
        - `stage_ref`: What `scratch` asked for.
        - `number`: Of the row; negative ones give some row.

        **Returns:**

        `[1, columns]`, widened.
        """
        if self.group == 1:
            return ref[...].astype(self.wide)
        place = pl.ds(
            jax.lax.rem(jax.lax.max(number, jnp.int32(0)), jnp.int32(self.group)), 1
        )
        if not self.staged:
            return ref[place, :].astype(self.wide)
        stage_ref[...] = ref[...].astype(self.wide)
        return stage_ref[place, :]
