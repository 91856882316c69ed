"""What this machine can do at most: products of a dtype, reading, updating memory."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.cpu import peak_code
from benchmarks.cpu.cases import Case
from tilejax.lowering.cpu import compile
from tilejax.lowering.cpu.host import detect
from tilejax.lowering.cpu.runtime import allowed_threads

_BYTES, _FEW_BYTES = 2**29, 2**14
_TURNS, _FEW_TURNS = 2**19, 2**6


class Machine:
    """The limit of a case, on all cores that this process may use.

    **Arguments:**

    - `case`: whose limit it is.
    - `tiny`: do hardly anything.
    """

    def __init__(self, case: Case, tiny: bool):
        host, limit = detect(), case.limit or ""
        in_memory = {"read": peak_code.read, "update": peak_code.update}.get(limit)
        code = in_memory(host) if in_memory else peak_code.products(host, limit)
        if code is None:
            raise NotImplementedError(f"no instruction multiplies {limit} by itself")
        threads = allowed_threads()
        size = (_FEW_BYTES if tiny else _BYTES) // threads if in_memory else 256
        # FMAs of a zero sum, and of numbers that stay what they are.
        self.memory = [np.full(size // 4, 0.5, np.float32) for _ in range(threads)]
        if not in_memory and limit != "float32":
            for each in self.memory:
                each[:] = 0
        step = int(code.work) // (2 if limit == "update" else 1)
        self.turns = size // step if in_memory else _FEW_TURNS if tiny else _TURNS
        self.work = code.work * self.turns * threads
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
        self.run = kind(compile.load(code.text, host, "peak"))
        self.pool = ThreadPoolExecutor(threads)

    def __call__(self) -> None:
        """Do it once, on all threads."""
        list(self.pool.map(self._part, self.memory))

    def _part(self, memory: np.ndarray) -> None:
        self.run(self.turns, memory.ctypes.data)

    def description(self) -> dict:
        """Say how much one call does."""
        return {"work": self.work}
