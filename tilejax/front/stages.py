"""`jit`'s stages with the texts and counts that TileJAX adds; else they are JAX's."""

import re
from collections.abc import Callable
from typing import Any

from jax.errors import JaxRuntimeError

from tilejax.errors import ParameterError
from tilejax.front.counts import native_work
from tilejax.front.faults import awaited, fault_of, is_checked
from tilejax.front.tile import Tiled, recording
from tilejax.ir import as_text
from tilejax.lowering.cpu.rule import kernel_text

_OWN = ("jaxpr", "tiled")
_OF_KERNELS = ("tile", "llvm", "asm")
_OF_JAX = (None, "stablehlo", "hlo")
_CALL = re.compile(r"custom_call @(tilejax_\w+)")


class _Stage:
    """A stage of JAX's, with `_what` to find what the passes did."""

    def __init__(self, stage: Any, what: Callable[[], Tiled]):
        self._stage = stage
        self._what = what

    def __getattr__(self, name: str):
        return getattr(self._stage, name)

    # For `isinstance(stage, jax.stages.Lowered)` and its like.
    @property
    def __class__(self):
        return type(self._stage)

    def cost_analysis(self) -> Any:
        """Return what XLA counts, with the work of kernels, which it does not see into.

        **Returns:** a mapping with `flops` and `bytes accessed` among its keys; None
        where there is nothing to tell.
        """
        found = self._stage.cost_analysis()
        native = native_work(self._what().after)
        if not native.operations and not native.bytes:
            return found
        counts = dict(found or {})
        for key, more in (
            ("flops", native.operations),
            ("bytes accessed", native.bytes),
        ):
            counts[key] = counts.get(key, 0.0) + more
        return counts

    def __repr__(self) -> str:
        return f"tilejax.{type(self).__name__}({self._stage!r})"


class Traced(_Stage):
    """A traced function; `lower` is the next stage."""

    def lower(self, **options) -> "Lowered":
        """Lower for a platform, as `jax.stages.Traced.lower`."""
        return Lowered(self._stage.lower(**options), self._what)


class Lowered(_Stage):
    """A lowered function; `compile` is the next stage."""

    def __init__(self, stage: Any, what: Callable[[], Tiled]):
        super().__init__(stage, what)
        self._is_checked = is_checked()

    def as_text(self, dialect: str | None = None, **options) -> str:
        """Return the program as text.

        **Arguments:**

        - `dialect`: `"jaxpr"` (as traced), `"tiled"` (after the passes), `"stablehlo"`
          or `"hlo"`; of the kernels compiled for the CPU `"tile"` (the tile program),
          `"llvm"` and `"asm"`, one after the other.

        **Raises:** `ParameterError` for another dialect.
        """
        if dialect in _OWN:
            made = self._what()
            return as_text(made.before if dialect == "jaxpr" else made.after)
        if dialect in _OF_KERNELS:
            called = dict.fromkeys(_CALL.findall(self._stage.as_text("stablehlo")))
            texts = [kernel_text(name, dialect) for name in called]
            return "\n\n".join(text for text in texts if text is not None)
        if dialect not in _OF_JAX:
            known = ", ".join((*_OWN, *_OF_KERNELS, "stablehlo", "hlo"))
            raise ParameterError(f"as_text({dialect!r}): use one of {known}")
        return self._stage.as_text(dialect, **options)

    def compile(self, *args, **options) -> "Compiled":
        """Compile, as `jax.stages.Lowered.compile`."""
        stage = self._stage.compile(*args, **options)
        return Compiled(stage, self._what, self._is_checked)


class Compiled(_Stage):
    """A compiled function, to be called."""

    def __init__(self, stage: Any, what: Callable[[], Tiled], is_checked: bool):
        super().__init__(stage, what)
        self._is_checked = is_checked

    def __call__(self, *args, **kwargs):
        """Run it, as `jax.stages.Compiled`.

        **Raises:** `KernelFault` if it was lowered under `tilejax.checked()` and one of
        its kernels does what it may not.
        """
        if not self._is_checked:
            return self._stage(*args, **kwargs)
        try:
            return awaited(self._stage(*args, **kwargs))
        except (ValueError, JaxRuntimeError) as error:
            fault = fault_of(error)
            if fault is None:
                raise
            raise fault from None


def last_of(run: Callable[[], Any]) -> Tiled:
    """Trace by `run`, and return what the outermost tiled function became."""
    with recording() as records:
        run()
    return records[-1]
