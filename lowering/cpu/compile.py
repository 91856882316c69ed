"""LLVM IR text to machine code: optimised, turned into an object, loaded."""

import ctypes
import os
import re
import threading
from functools import cache

import llvmlite.binding as llvm

from tilejax.lowering.cpu import cache as disk
from tilejax.lowering.cpu.elf import stub_calls, undefined_symbols
from tilejax.lowering.cpu.host import Host, detect


class GeneratedCodeError(RuntimeError):
    """Generated code that LLVM refuses: a fault of TileJAX, not of its user."""


_ENGINES: dict[str, llvm.ExecutionEngine] = {}
"""Loaded code stays for good: compiled programs hold its addresses."""

_LOCK = threading.RLock()


def load(text: str, host: Host, symbol: str) -> int:
    """Return the address of a function of a module, compiled for this process.

    The object comes from the disk cache if it is there.

    **Arguments:**

    - `text`: the module, as LLVM IR.
    - `host`: what to compile for; it must be able to run here.
    - `symbol`: the function's name.

    **Raises:** `GeneratedCodeError` for a module that LLVM refuses, that this CPU
    cannot run or that calls what the process does not have.
    """
    if not host.runs_here:
        lacking = ", ".join(sorted(host.features - detect().features))
        raise GeneratedCodeError(
            f"code for {host.cpu} cannot run on this {detect().cpu}: it lacks {lacking}"
        )
    key = disk.key(text, host)
    # LLVM is behind one lock of llvmlite's anyway, so a finer one would gain nothing;
    # this one keeps two threads from compiling the same kernel.
    with _LOCK:
        if key not in _ENGINES:
            data = disk.read(key)
            if data is None:
                data = compile_object(text, host)
                disk.write(key, data)
            _ENGINES[key] = _engine(data)
        return _ENGINES[key].get_function_address(symbol)


def compile_object(text: str, host: Host) -> bytes:
    """Compile a module to an object file's bytes.

    **Arguments:** as of `load`, but the host need not be this process's.
    """
    with _LOCK:
        machine = _machine(host)
        return machine.emit_object(_optimised(text, host, machine))


def llvm_text(text: str, host: Host) -> str:
    """Return the LLVM IR of a module after optimisation."""
    with _LOCK:
        return str(_optimised(text, host, _machine(host)))


def asm_text(text: str, host: Host) -> str:
    """Return the assembly of a module after optimisation."""
    with _LOCK:
        machine = _machine(host)
        return machine.emit_assembly(_optimised(text, host, machine))


def _engine(data: bytes) -> llvm.ExecutionEngine:
    missing = [name for name in undefined_symbols(data) if not _exists(name)]
    if missing:  # LLVM itself would end the process
        raise GeneratedCodeError(
            f"the code calls {', '.join(missing)}, which this process does not have"
        )
    if stubs := stub_calls(data):
        raise GeneratedCodeError(f"{', '.join(stubs)} must be called through a table")
    # An engine wants a module to begin with; an empty one costs next to nothing.
    empty = llvm.parse_assembly("", llvm.create_context())
    # LLVM's own memory manager may place sections further apart than the small code
    # model reaches; llvmlite's keeps them together.
    engine = llvm.create_mcjit_compiler(empty, _machine(detect()), use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine


def _exists(symbol: str) -> bool:
    if llvm.address_of_symbol(symbol):
        return True
    return os.name == "posix" and hasattr(ctypes.CDLL(None), symbol)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(host: Host) -> llvm.TargetMachine:
    cross = host.triple.split("-")[0] != detect().triple.split("-")[0]
    (_initialize_all if cross else _initialize)()
    # Position-independent and small: constants are read relative to the code, at no
    # cost, where the default for such engines would load a 64-bit address for each.
    return llvm.Target.from_triple(host.triple).create_target_machine(
        cpu=host.cpu,
        features=",".join(_flags(host)),
        opt=3,
        reloc="pic",
        codemodel="small",
    )


def _flags(host: Host) -> list[str]:
    flags = [f"+{name}" for name in sorted(host.features)]
    if host == detect():
        # The name implies features that a virtual machine may have masked.
        known = llvm.get_host_cpu_features()
        flags += [f"-{n}" for n in sorted(known) if n not in host.features]
    if host.is_x86:
        flags.append("-prefer-256-bit")
    return flags


def _optimised(text: str, host: Host, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    whole = _whole(text, host)
    try:
        # A context of its own, so that what the module's types take is given back.
        module = llvm.parse_assembly(whole, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise GeneratedCodeError(_explain(str(error), whole)) from None
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # The code is vector code already; vectorising its scalar rest only makes it slow.
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


_EXTERNAL = re.compile(r"^(declare [^\n]*@(?!llvm\.)[\w.$]+\([^)\n]*\))", re.MULTILINE)


def _whole(text: str, host: Host) -> str:
    """Name the platform; let all calls of other modules go through address tables.

    LLVM's loader would else add a table for them that llvmlite's memory manager has not
    been told of, and does not survive.
    """
    text = f'target triple = "{host.triple}"\n' + text
    if not host.is_x86:
        return text
    flags = '!llvm.module.flags = !{!99999}\n!99999 = !{i32 7, !"RtLibUseGOT", i32 1}'
    return _EXTERNAL.sub(r"\1 nonlazybind", text) + f"\n{flags}\n"


def _explain(message: str, text: str) -> str:
    """Add the lines around the one that LLVM's message names, if it names one."""
    parts = ["LLVM refuses generated code, which is a bug in TileJAX:", message.strip()]
    where = re.search(r"<string>:(\d+):", message)
    if where:
        line, lines = int(where[1]), text.splitlines()
        first = max(0, line - 6)
        shown = enumerate(lines[first : line + 3], first + 1)
        parts += [f"{'>' if n == line else ' '}{n:5} {code}" for n, code in shown]
    return "\n".join(parts)
