"""`tilejax.native_pallas`: compiled Pallas kernels on CPUs in plain JAX code."""

from contextlib import AbstractContextManager

from tilejax._jax import pallas
from tilejax.lowering.cpu import rule
from tilejax.options import current, options, set_for_all

pallas.on_cpu(rule.lower, lambda: current().native_pallas)


class NativePallas:
    """Compile `pl.pallas_call` for the CPU, where JAX itself only interprets it.

    Inside of `tilejax.jit` this is on by itself. For all other code there are

    - `with tilejax.native_pallas():` for what is traced and lowered inside;
    - `tilejax.native_pallas.enable()` for the rest of the process.

    Calls with `interpret=True` are interpreted as before. A kernel that holds something
    for which there is no native code raises `tilejax.errors.UnsupportedKernel`, or is
    interpreted with `fallback="interpret"`.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> with tilejax.native_pallas():
    ...     x = jnp.arange(4.0)
    ...     pl.pallas_call(double, jax.ShapeDtypeStruct(x.shape, x.dtype))(x).tolist()
    [0.0, 2.0, 4.0, 6.0]
    """

    def __call__(self, *, fallback: str = "error") -> AbstractContextManager[None]:
        """Return a context in which kernels are compiled for the CPU.

        **Arguments:**

        - `fallback`: `"error"` or `"interpret"`, for a kernel without native code.

        **Raises:** `ParameterError`.
        """
        return options(native_pallas=True, pallas_fallback=fallback)

    def enable(self, *, fallback: str = "error") -> None:
        """Compile kernels for the CPU from now on, in all threads.

        **Raises:** `ParameterError`.
        """
        set_for_all(native_pallas=True, pallas_fallback=fallback)

    def disable(self) -> None:
        """Leave kernels outside of `tilejax.jit` to JAX again."""
        set_for_all(native_pallas=False, pallas_fallback="error")

    def __repr__(self) -> str:
        return "<tilejax.native_pallas>"


native_pallas = NativePallas()
