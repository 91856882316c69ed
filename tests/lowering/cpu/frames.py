"""XLA's side of a call, played by Python: any pool, however awkward."""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

_WORD = ctypes.c_uint64
_SCHEDULE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_WORD * 5))
_THREADS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_WORD * 4))
_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_WORD * 4))
_DESTROY = ctypes.CFUNCTYPE(None, ctypes.POINTER(_WORD * 3))
_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

_AN_ERROR = 0xE0


class Pool:
    """A pool of so many threads; `schedule` gets each task as a function.

    `schedule` returns whether it takes the task. `errors` and `destroyed` are what the
    kernel has made: texts and a count.
    """

    def __init__(self, threads: int, schedule: Callable[[Callable], bool]):
        self.errors: list[str] = []
        self.destroyed = 0
        self.tasks = 0

        def _schedule(arguments):
            _, _, _, task, data = arguments.contents
            self.tasks += 1
            taken = schedule(lambda: _TASK(task)(data))
            return None if taken else _AN_ERROR

        def _threads(arguments):
            ctypes.cast(arguments.contents[3], ctypes.POINTER(ctypes.c_int64))[0] = (
                threads
            )

        def _create(arguments):
            text = ctypes.string_at(arguments.contents[2]).decode()
            self.errors.append(f"{arguments.contents[3] & 0xFFFFFFFF}: {text}")
            return _AN_ERROR

        def _destroy(arguments):
            assert arguments.contents[2] == _AN_ERROR
            self.destroyed += 1

        callbacks = {
            0: _CREATE(_create),
            2: _DESTROY(_destroy),
            11: _SCHEDULE(_schedule),
            12: _THREADS(_threads),
        }
        self._callbacks = callbacks  # they must outlive the table of their addresses
        self.api = (_WORD * 32)()
        for entry, callback in callbacks.items():
            self.api[6 + entry] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def call(
        self, handler: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> bool:
        """Call a handler's address on arrays; return whether it went well."""
        return self.prepare(handler, inputs, outputs)()

    def prepare(
        self, handler: int, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> Callable[[], bool]:
        """Return what makes the call whenever it is called."""
        kept = [self._buffers(inputs), self._buffers(outputs)]
        frame = (_WORD * 20)()
        frame[2], frame[4] = ctypes.addressof(self.api), 3
        for first, (count, pointers, _) in zip((5, 10), kept, strict=True):
            frame[first + 2], frame[first + 4] = count, ctypes.addressof(pointers)
        function = _HANDLER(handler)

        def call() -> bool:
            assert kept
            return not function(ctypes.addressof(frame))

        return call

    @staticmethod
    def _buffers(arrays: Sequence[np.ndarray]):
        records = []
        for array in arrays:
            record = (_WORD * 6)()
            record[3] = array.ctypes.data
            records.append(record)
        pointers = (_WORD * max(len(records), 1))(*map(ctypes.addressof, records))
        return len(records), pointers, records
