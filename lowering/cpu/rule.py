"""How JAX lowers a Pallas call for the CPU: to a kernel compiled here."""

import threading

from tilejax._jax import pallas
from tilejax.errors import UnsupportedKernel
from tilejax.lowering.cpu import compile, ffi, host
from tilejax.lowering.cpu.checked_call import lower_checked
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import Host
from tilejax.lowering.cpu.kernel import build
from tilejax.lowering.tile.normal import normalise
from tilejax.lowering.tile.program import Ref, TileProgram
from tilejax.lowering.tile.static_checks import check_blocks
from tilejax.lowering.tile.text import as_text
from tilejax.options import current as options_in_force

_MADE: dict[tuple[str, Host], tuple[str, Launch]] = {}
_SHOWN: dict[str, tuple[str, str, Host]] = {}
_LOCK = threading.Lock()


def tile_program(params: dict) -> TileProgram:
    """Normalise the kernel of a `pallas_call` equation's parameters.

    **Raises:** `UnsupportedKernel`.
    """
    try:
        call = pallas.describe(params)
    except pallas.NotDescribable as error:
        name = pallas.name_of(params)
        raise UnsupportedKernel(f"kernel {name}: {error} is not supported") from None
    return normalise(call)


def lower(ctx, *operands, **params):
    """Lower a `pallas_call` equation to a call of its compiled kernel.

    **Raises:** `UnsupportedKernel`, unless the options ask for the interpreter then;
    `KernelFault` for a fault of its blocks, if the options say that it is checked.
    """
    settings = options_in_force()
    try:
        program = tile_program(params)
        names = {} if settings.checked == "off" else _names(program, params)
        if settings.checked != "off":
            check_blocks(program, names)
        if settings.checked == "full":
            return lower_checked(ctx, operands, program, names, host.current())
        target, launch = _compiled(program, host.current())
    except UnsupportedKernel:
        if settings.pallas_fallback == "error":
            raise
        return pallas.interpreted(ctx, *operands, interpret=True, **params)
    return ffi.call(ctx, operands, target, launch)


def _names(program: TileProgram, params: dict) -> dict[Ref, str]:
    """What to call each reference: its part in the call, and the user's name of it."""
    parts = [o.role for o in program.operands] + ["scratch"] * len(program.scratch)
    parts = ["index operand" if part == "index" else part for part in parts]
    refs = [o.ref for o in program.operands] + list(program.scratch)
    told = pallas.reference_names(params)
    named = zip(refs, parts, told, strict=True)
    return {ref: f"the {part} {name}" for ref, part, name in named}


def _compiled(program: TileProgram, cpu: Host) -> tuple[str, Launch]:
    """The same kernel reaches the rule once for every jit around it."""
    key = (as_text(program), cpu)
    with _LOCK:
        found = _MADE.get(key)
    if found is None:
        module, launch = build(program, cpu)
        text = module.text()
        found = ffi.register(text, launch, cpu), launch
        with _LOCK:
            _MADE[key] = found
            _SHOWN[found[0]] = (key[0], text, cpu)
    return found


def kernel_text(target: str, dialect: str) -> str | None:
    """Return the code of a kernel that this process has lowered.

    **Arguments:**

    - `target`: the name that the program calls it by.
    - `dialect`: `"tile"`, `"llvm"` (after LLVM's passes) or `"asm"`.

    **Returns:** its text; None for a name that is no kernel's.
    """
    with _LOCK:
        found = _SHOWN.get(target)
    if found is None:
        return None
    tile, text, cpu = found
    made = {"tile": None, "llvm": compile.llvm_text, "asm": compile.asm_text}[dialect]
    return tile if made is None else made(text, cpu)
