"""`tilejax.checked`: kernels that say what they read or write wrongly."""

from contextlib import AbstractContextManager

from tilejax.options import options, set_for_all


class Checked:
    """Check what Pallas kernels that are compiled for the CPU read and write.

    - `with tilejax.checked():` for what is called inside;
    - `tilejax.checked.enable()` for the rest of the process.

    Before a kernel runs, its index maps are evaluated over the grid: blocks that lie
    outside of their array, outputs or blocks of them that nobody writes, and blocks
    that two parallel indices of the grid write are faults. While it runs, each index
    is compared with the bounds of what it indexes (where a mask is true), reads of
    scratch and outputs that nobody has written are found, and elements that two
    parallel steps write, or that no step has written in the end. Scratch starts out as
    NaN, or as all ones. The numbers of a kernel without faults do not change.

    A fault is a `tilejax.errors.KernelFault` where the kernel is lowered, and under
    `tilejax.jit`, whose calls then wait for their results, where it runs. Under
    `jax.jit` it is JAX's own runtime error with the same text. There, kernels must be
    compiled to be checked: see `tilejax.native_pallas`.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> from jax.experimental import pallas as pl
    >>> def shift(x_ref, y_ref):
    ...     y_ref[...] = x_ref[pl.ds(pl.program_id(0) + 1, 4)]
    >>> @tilejax.jit
    ... def f(x):
    ...     return pl.pallas_call(shift, x, grid=(1,))(x)
    >>> with tilejax.checked():
    ...     f(jnp.arange(4.0))  # doctest: +ELLIPSIS, +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    tilejax.errors.KernelFault: kernel shift: read of the input x_ref at ...
    """

    def __call__(self, *, static_only: bool = False) -> AbstractContextManager[None]:
        """Return a context in which kernels are checked.

        **Arguments:**

        - `static_only`: only before they run, at no cost while they do.
        """
        return options(checked=_extent(static_only))

    def enable(self, *, static_only: bool = False) -> None:
        """Check kernels from now on, in all threads."""
        set_for_all(checked=_extent(static_only))

    def disable(self) -> None:
        """Check kernels no more where no `with` says so."""
        set_for_all(checked="off")

    def __repr__(self) -> str:
        return "<tilejax.checked>"


def _extent(static_only: bool) -> str:
    return "static" if static_only else "full"


checked = Checked()
