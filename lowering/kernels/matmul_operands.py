"""How a matrix product is cut: checked operands, grid, blocks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tilejax.errors import DTypeError, ShapeError
from tilejax.lowering.kernels.tiles import accumulator, ceil_div, fit, float_like


@dataclasses.dataclass(frozen=True)
class Plan:
    """Hold everything about a matrix product that is known before it runs.

    The grid is (batch, m, n, k), and (m, n, batch, k) when the batches are summed, so
    that the dimensions over which a sum runs come last.
    """

    batches: tuple[int, int]
    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int
    tile_k: int
    transpose_a: bool
    transpose_b: bool
    reduce_batch: bool
    dtype: Any
    sum_dtype: Any
    out_dtype: Any
    precision: Any

    @property
    def batch(self) -> int:
        """Return the number of products."""
        return 0 if 0 in self.batches else max(self.batches)

    @property
    def out_batch(self) -> int:
        """Return the number of results."""
        return 1 if self.reduce_batch else self.batch

    @property
    def empty(self) -> bool:
        """Say whether nothing is to be multiplied."""
        return 0 in (self.batch, self.m, self.n, self.k)

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of steps in each dimension."""
        m = ceil_div(self.m, self.tile_m)
        n, k = ceil_div(self.n, self.tile_n), ceil_div(self.k, self.tile_k)
        return (m, n, self.batch, k) if self.reduce_batch else (self.batch, m, n, k)

    @property
    def semantics(self) -> tuple[Any, ...]:
        """Return which grid dimensions may run in any order."""
        batch = "arbitrary" if self.reduce_batch else "parallel"
        return ("parallel", "parallel", batch, "arbitrary")

    @property
    def k_dim(self) -> int:
        """Return the grid dimension of the contraction."""
        return 3

    def place(self, *step):
        """Return (batch, m, n, k) of a grid step."""
        if not self.reduce_batch:
            return step
        m, n, batch, k = step
        return batch, m, n, k

    def is_first(self):
        """Say whether a sum starts at this grid step."""
        first = pl.program_id(self.k_dim) == 0
        return first & (pl.program_id(2) == 0) if self.reduce_batch else first

    def is_last(self):
        """Say whether a sum ends at this grid step."""
        last = pl.program_id(self.k_dim) == self.grid[self.k_dim] - 1
        if self.reduce_batch:
            last &= pl.program_id(2) == self.batch - 1
        return last

    def a_spec(self) -> pl.BlockSpec:
        """Return the blocks of the left operand."""
        many = self.batches[0] > 1

        def index(*step):
            batch, m, _, k = self.place(*step)
            pair = (k, m) if self.transpose_a else (m, k)
            return (batch if many else 0, *pair)

        shape = (self.tile_m, self.tile_k)
        return pl.BlockSpec(
            (None, *(shape[::-1] if self.transpose_a else shape)), index
        )

    def b_spec(self) -> pl.BlockSpec:
        """Return the blocks of the right operand."""
        many = self.batches[1] > 1

        def index(*step):
            batch, _, n, k = self.place(*step)
            pair = (n, k) if self.transpose_b else (k, n)
            return (batch if many else 0, *pair)

        shape = (self.tile_k, self.tile_n)
        return pl.BlockSpec(
            (None, *(shape[::-1] if self.transpose_b else shape)), index
        )

    def extra_spec(self, name: str) -> pl.BlockSpec:
        """Return the blocks of bias, scale or residual; those of the result too."""
        if name != "residual":
            return pl.BlockSpec((1, self.tile_n), lambda *s: (0, self.place(*s)[2]))

        def index(*step):
            batch, m, n, _ = self.place(*step)
            return (0 if self.reduce_batch else batch, m, n)

        return pl.BlockSpec((None, self.tile_m, self.tile_n), index)

    def rows(self, bias, scale) -> list[jax.Array]:
        """Return bias and scale, those that are there, as rows of `n` entries."""
        present = [x for x in (bias, scale) if x is not None]
        return [jnp.broadcast_to(x.reshape(1, -1), (1, self.n)) for x in present]


def plan_matmul(
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    residual: Any = None,
    *,
    activation: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: Any = None,
    precision: Any = None,
    reduce_batch: bool = False,
    config: Any,
) -> Plan:
    """Check the operands of a matrix product and cut it into tiles.

    **Arguments:**

    - `a`, `b`, `bias`, `scale`, `residual`: As of `matmul`, which needs of them only a
      shape and a dtype here.
    - The others as of `matmul`.

    **Returns:**

    A `Plan`.

    **Raises:**

    `tilejax.errors.ShapeError` or `DTypeError`.
    """
    names = f"a {a.dtype}{list(a.shape)} and b {b.dtype}{list(b.shape)}"
    if len(a.shape) != 3 or len(b.shape) != 3:
        raise ShapeError(f"matmul takes operands of three axes, got {names}")
    a_batch, m, k = (a.shape[0], *(a.shape[:0:-1] if transpose_a else a.shape[1:]))
    b_batch, b_k, n = (b.shape[0], *(b.shape[:0:-1] if transpose_b else b.shape[1:]))
    if k != b_k:
        raise ShapeError(
            f"matmul cannot contract {k} with {b_k}: {names}, "
            f"transpose_a={transpose_a}, transpose_b={transpose_b}"
        )
    if a_batch != b_batch and 1 not in (a_batch, b_batch):
        raise ShapeError(f"matmul takes equal batches, or one of size 1, got {names}")
    dtype = _operand_dtype(a.dtype, b.dtype, names)
    sum_dtype = accumulator(dtype)
    extra = activation is not None or any(
        x is not None for x in (bias, scale, residual)
    )
    plan = Plan(
        batches=(a_batch, b_batch),
        m=m,
        n=n,
        k=k,
        tile_m=max(1, fit(config.m, m)),
        tile_n=max(1, fit(config.n, n)),
        tile_k=max(1, fit(config.k, k)),
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        reduce_batch=reduce_batch,
        dtype=dtype,
        sum_dtype=sum_dtype,
        out_dtype=_out_dtype(out_dtype, dtype, extra),
        precision=dot_precision(precision, dtype),
    )
    _check_extra("bias", bias, [(n,)])
    _check_extra("scale", scale, [(n,), (1,)])
    _check_extra("residual", residual, [(plan.out_batch, m, n)])
    return plan


def _operand_dtype(a, b, names):
    for dtype in (a, b):
        if not float_like(dtype) and jnp.dtype(dtype) != jnp.int8:
            raise DTypeError(
                f"matmul takes f64, f32, f16, bf16 or int8, got {names}; cast first"
            )
    return jnp.dtype(jnp.promote_types(a, b))


def _out_dtype(out_dtype, dtype, has_epilogue):
    if out_dtype is not None:
        return jnp.dtype(out_dtype)
    if float_like(dtype):
        return dtype
    return jnp.dtype(jnp.float32 if has_epilogue else jnp.int32)


def _check_extra(name, x, shapes):
    if x is not None and tuple(x.shape) not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ShapeError(f"matmul takes {name} {wanted}, got {list(x.shape)}")


def dot_precision(precision, dtype):
    """Return the precision to give to a product inside a kernel.

    Precision concerns wide floats alone: Mosaic refuses it for narrow operands, whose
    products are exact in f32. It has no rule for HIGH, so HIGHEST stands in for it.

    **Arguments:**

    - `precision`: As `jax.lax.dot_general` takes it.
    - `dtype`: Of both operands.

    **Returns:**

    What to pass to `jax.lax.dot_general`.

        >>> dot_precision("high", "float32") is jax.lax.Precision.HIGHEST
        True
    """
    if jnp.dtype(dtype).itemsize < 4:
        return jax.lax.Precision.DEFAULT
    if precision is None:
        precision = jax.config.jax_default_matmul_precision  # pyright: ignore
    each = precision if isinstance(precision, tuple) else (precision,)
    known = [_known_precision(one) for one in each]
    if {jax.lax.Precision.HIGH, jax.lax.Precision.HIGHEST}.intersection(known):
        return jax.lax.Precision.HIGHEST
    return known[0]


def _known_precision(precision):
    """Turn a name into a `Precision`; leave algorithms, which Mosaic may refuse."""
    if precision is None or isinstance(precision, jax.lax.Precision):
        return precision
    try:
        return jax.lax.Precision(precision)
    except (ValueError, KeyError):
        return precision
