"""Compiled kernels handed to XLA under names that follow from their content."""

import ctypes
import re
import threading
from collections.abc import Sequence
from typing import Any

import jax

from tilejax.lowering.cpu import cache, compile, runtime
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import Host

_REGISTERED: set[str] = set()
_LOCK = threading.Lock()


def register(text: str, launch: Launch, host: Host) -> str:
    """Compile a module with `@handler`, or find it compiled, and tell XLA of it.

    The name is the same in every process for the same text, host and versions, so that
    programs which XLA or JAX have kept on disk find their kernels again.

    **Arguments:**

    - `text`: the module.
    - `launch`: what `add_driver` was given.
    - `host`: what to compile for.

    **Returns:** the name of the target for XLA.

    **Raises:** `compile.GeneratedCodeError`.
    """
    name = target_name(text, launch, host)
    with _LOCK:
        if name not in _REGISTERED:
            runtime.start()
            address = compile.load(text, host, "handler")
            handler = jax.ffi.pycapsule(ctypes.c_void_p(address))
            jax.ffi.register_ffi_target(name, handler, platform="cpu", api_version=1)
            _REGISTERED.add(name)
    return name


def target_name(text: str, launch: Launch, host: Host) -> str:
    """Return the name under which XLA knows a module's handler."""
    readable = re.sub(r"\W+", "_", launch.name)[:40]
    return f"tilejax_{readable}_{cache.key(text, host)[:32]}"


def call(ctx: Any, nodes: Sequence[Any], target: str, launch: Launch) -> Sequence[Any]:
    """Lower to a call of a registered target, in a lowering rule of JAX's.

    **Arguments:**

    - `ctx`: the rule's context, whose `avals_in` and `avals_out` are the call's.
    - `nodes`: the operands' values: grid sizes first, then the inputs.
    - `target`: what `register` returned.
    - `launch`: what `add_driver` was given.

    **Returns:** the results' values.
    """
    sizes = len(launch.dynamic)
    aliases = {sizes + i: o for i, o in launch.aliases} or None
    rule = jax.ffi.ffi_lowering(
        target, operand_output_aliases=aliases, has_side_effect=launch.is_seen
    )
    return rule(ctx, *nodes)
