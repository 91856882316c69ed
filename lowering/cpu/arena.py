"""Scratch memory of one unit of work, laid out while code is generated."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from tilejax.lowering.cpu.access import View, dense_strides
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.types import itemsize

LINE = 64
"""Bytes of a cache line."""


class Arena:
    """A stack of tiles in `%arena`; what a scope took is free again after it.

    **Arguments:**

    - `function`: whose code addresses the tiles.
    """

    def __init__(self, function: Function):
        self.function = function
        self.top = 0
        self.peak = 0
        self._storages = count(1)

    def storage(self) -> int:
        """Return a new number for memory that nothing else shares."""
        return next(self._storages)

    def tile(self, shape, dtype: str, *, dense: bool = False) -> View:
        """Reserve a tile.

        Rows are padded to whole vectors, and to an odd number of cache lines so that
        rows do not fall into the same cache set; a `dense` tile has none between them.
        """
        shape = tuple(shape)
        strides = dense_strides(shape) if dense else self._padded(shape, dtype)
        extent = max(
            [s * t for s, t in zip(shape, strides, strict=True)] or [1], default=1
        )
        vector = self.function.module.host.lanes * itemsize(dtype)
        size = extent * itemsize(dtype) + (vector if dense else 0)
        pointer = self.reserve(size)
        return View(
            pointer,
            dtype,
            shape,
            strides,
            self.storage(),
            (None,) * len(shape),
            padded=not dense,
        )

    def reserve(self, size: int) -> str:
        """Reserve bytes that start a cache line; return their address."""
        offset = -(-self.top // LINE) * LINE
        self.top = offset + size
        self.peak = max(self.peak, self.top)
        return self.function.at_entry(
            f"getelementptr i8, ptr %arena, i64 {offset}", "t"
        )

    def _padded(self, shape, dtype: str) -> tuple[int, ...]:
        line = LINE // itemsize(dtype)
        unit = max(line, self.function.module.host.lanes)
        wide = [d for d, size in enumerate(shape) if size != 1]
        lane = wide[-1] if wide else len(shape) - 1
        strides, step = [0] * len(shape), 1
        for d in reversed(range(len(shape))):
            strides[d] = step
            if d == lane:
                row = -(-shape[d] // unit) * unit
                if len(wide) > 1 and (row // line) % 2 == 0:
                    row += line
                step *= row
            elif d < lane:
                step *= shape[d]
        return tuple(strides)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Free what is reserved inside of the `with` at its end."""
        top = self.top
        yield
        self.top = top
