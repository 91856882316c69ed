"""What a target is: memories, units and limits, each figure with its source.

A figure is a number about the machine. One that nobody has published is `None`, never
a zero and never a guess; `Target.unknown` lists those, and the cost model refuses to
answer where it needs one. Rates are dense (no structured sparsity), in operations a
second for the whole chip, a multiply-add counting as two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tilejax.errors import TargetError
from tilejax.targets.figures import dtype_key, figures, with_figure
from tilejax.targets.table import Table


@dataclass(frozen=True)
class Memory:
    """Describe one level of memory.

    **Arguments:**

    - `name`: Lower case, as the vendor calls it.
    - `bytes`: Size of one instance: the chip's, or one core's when `scope` is "core".
    - `align`: Alignment in bytes that an allocation or a fast transfer wants.
    - `bandwidth`: Bytes a second that all instances of the chip deliver together.
    - `scope`: "chip" when all cores share it, "core" when each has its own.

    Example:

    >>> Memory("hbm", 16 * 2**30, 512, 8.1e11, "chip").scope
    'chip'
    """

    name: str
    bytes: int | None
    align: int | None
    bandwidth: float | None
    scope: Literal["chip", "core"]


@dataclass(frozen=True)
class Unit:
    """Describe one kind of arithmetic unit, all of the chip's together.

    **Arguments:**

    - `name`: Lower case, as the vendor calls it.
    - `kind`: "matrix", "vector" or "scalar".
    - `rates`: Operations a second of the chip by dtype; `None` where the unit has the
      dtype and nobody says how fast. A dtype that the unit lacks is left out. "float8"
      is either 8-bit float, "tf32" is float32 operands rounded to 10 bits.
    - `tile`: What a dimension is rounded up to: `(m, n, k)` for a matrix unit, the
      shape of a register or vector for others.
    - `k_bytes`: For a matrix unit whose `k` is fixed in bytes, not in elements.

    Example:

    >>> mma = Unit("tensor", "matrix", {"int8": 2.0}, (16, 8, 16), k_bytes=32)
    >>> mma.granularity("int8")
    (16, 8, 32)
    """

    name: str
    kind: Literal["matrix", "vector", "scalar"]
    rates: Mapping[str, float | None]
    tile: tuple[int, ...] | None
    k_bytes: int | None = None

    def __post_init__(self) -> None:
        """Freeze the rates."""
        object.__setattr__(self, "rates", Table(self.rates))

    def granularity(self, dtype: Any) -> tuple[int, ...] | None:
        """Return what each dimension is rounded up to for a dtype.

        **Arguments:**

        - `dtype`: Anything JAX takes for a dtype, or a key of `rates`.

        **Returns:**

        `tile`, with its last entry in elements of `dtype`; `None` if unknown.
        """
        if self.tile is None or self.k_bytes is None:
            return self.tile
        _, bits = dtype_key(dtype)
        return (*self.tile[:-1], max(1, self.k_bytes * 8 // bits))


@dataclass(frozen=True)
class Limits:
    """Bound what one block of a kernel may use.

    **Arguments:**

    - `threads`: Most threads in a block.
    - `registers`: Most 32-bit registers a thread.
    - `fast_bytes`: Most bytes of fast memory one block may allocate.
    - `launch_seconds`: Time to start a kernel, paid once.
    - `step_seconds`: Time a grid step costs beside its work.
    """

    threads: int | None = None
    registers: int | None = None
    fast_bytes: int | None = None
    launch_seconds: float | None = None
    step_seconds: float | None = None


@dataclass(frozen=True)
class Target:
    """Describe a machine that kernels are tiled and costed for.

    **Arguments:**

    - `name`: As `tilejax.targets.get` takes it, e.g. "tpu:v5e".
    - `kind`: "cpu", "gpu", "tpu" or "ascend": which kernels and emitter serve it.
    - `platform`: "cpu", "cuda", "rocm", "tpu" or "ascend", as in JAX's lowering.
    - `cores`: What blocks are spread over: cores, multiprocessors, compute units.
    - `memories`: From the largest to the nearest the units.
    - `units`: Arithmetic units.
    - `limits`: Bounds for one block.
    - `fast`: Name of the memory that blocks are staged in.
    - `devices`: JAX devices that one chip presents; a kernel runs on one.
    - `device_kinds`: Strings of `jax.Device.device_kind` that mean this target.
    - `absent`: Limits that mean nothing here (threads on a TPU), so are not figures.
    - `code`: Figures of code that runs here, not of the machine; see `reached`.
    - `details`: Facts that are not figures: compute capability, CPU features.
    - `sources`: Where each figure comes from, by path; a prefix covers all below it.

    Example:

    >>> import tilejax.targets
    >>> v5e = tilejax.targets.get("tpu:v5e")
    >>> v5e.rate("bfloat16") / v5e.memory("hbm").bandwidth > 200
    True
    """

    name: str
    kind: Literal["cpu", "gpu", "tpu", "ascend"]
    platform: Literal["cpu", "cuda", "rocm", "tpu", "ascend"]
    cores: int | None
    memories: tuple[Memory, ...]
    units: tuple[Unit, ...]
    limits: Limits
    fast: str
    devices: int = 1
    device_kinds: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    code: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        object.__setattr__(self, "code", Table(self.code))
        object.__setattr__(self, "details", Table(self.details))
        object.__setattr__(self, "sources", Table(self.sources))

    @property
    def main(self) -> Memory:
        """Return the memory that arrays live in."""
        return self.memories[0]

    @property
    def fast_memory(self) -> Memory:
        """Return the memory that blocks are staged in."""
        return self.memory(self.fast)

    @property
    def block_bytes(self) -> int | None:
        """Return the bytes of fast memory that one block may use, `None` if unknown."""
        if self.limits.fast_bytes is not None:
            return self.limits.fast_bytes
        return self.fast_memory.bytes

    def memory(self, name: str) -> Memory:
        """Return a memory by name.

        **Arguments:**

        - `name`: One of the names in `memories`.

        **Raises:**

        `tilejax.errors.TargetError` that lists the names there are.
        """
        for memory in self.memories:
            if memory.name == name:
                return memory
        known = ", ".join(memory.name for memory in self.memories)
        raise TargetError(f"{self.name} has no memory {name!r}; it has {known}")

    def unit(self, kind: str) -> Unit | None:
        """Return the first unit of a kind ("matrix", "vector", "scalar"), if any."""
        return next((unit for unit in self.units if unit.kind == kind), None)

    def unit_for(self, dtype: Any, kind: str = "matrix") -> Unit | None:
        """Return the unit that computes a dtype, of `kind` where one has it.

        A contraction goes to the vector unit where the matrix unit lacks the dtype;
        elementwise work never goes to a matrix unit.
        """
        key, _ = dtype_key(dtype)
        for wanted in dict.fromkeys((kind, "vector", "scalar")):
            for unit in self.units:
                if unit.kind == wanted and key in unit.rates:
                    return unit
        return None

    def rate(self, dtype: Any, kind: str = "matrix") -> float | None:
        """Return the operations a second of the chip, `None` if unknown.

        **Arguments:**

        - `dtype`: Anything JAX takes for a dtype, or "tf32" or "float8".
        - `kind`: "matrix" for contractions, "vector" for elementwise work.
        """
        unit = self.unit_for(dtype, kind)
        return None if unit is None else unit.rates[dtype_key(dtype)[0]]

    def reached(self, path: str) -> float:
        """Return the share of the roofline that some code reaches; 1 if none is known.

        **Arguments:**

        - `path`: Whose code and what it does, the dtypes last, as
          "xla.product.float32.float32" or "kernel.attention.backward.bfloat16". What
          `code` has for a part of it from the start holds for all that begins so.

        Example:

        >>> import dataclasses, tilejax.targets
        >>> v4 = tilejax.targets.get("tpu:v4")
        >>> slow = dataclasses.replace(v4, code={"xla.conv": 0.5})
        >>> slow.reached("xla.conv.int8"), slow.reached("xla.product.int8")
        (0.5, 1.0)
        """
        while path:
            if path in self.code:
                return self.code[path]
            path = path.rpartition(".")[0]
        return 1.0

    def figures(self) -> dict[str, Any]:
        """Return every figure by its path, e.g. "memories.hbm.bandwidth"."""
        return figures(self)

    def unknown(self) -> tuple[str, ...]:
        """Return the paths of the figures that nobody has published."""
        return tuple(path for path, value in self.figures().items() if value is None)

    def source(self, path: str) -> str | None:
        """Return where the figure at a path comes from, `None` if it is unknown."""
        while path not in self.sources:
            path, dot, _ = path.rpartition(".")
            if not dot:
                return None
        return self.sources[path]

    def with_figure(self, path: str, value: Any, source: str) -> "Target":
        """Return a copy with one figure replaced, e.g. by a measured one.

        **Arguments:**

        - `path`: One of the keys of `figures()`.
        - `value`: The new figure.
        - `source`: Where it comes from.

        **Raises:**

        `tilejax.errors.TargetError` if there is no such figure.

        Example:

        >>> import tilejax.targets
        >>> v4 = tilejax.targets.get("tpu:v4")
        >>> v4.with_figure("limits.step_seconds", 3e-7, "measured").limits.step_seconds
        3e-07
        """
        if path not in self.figures():
            raise TargetError(
                f"{self.name} has no figure {path!r}; it has "
                f"{', '.join(self.figures())}"
            )
        sources = {**self.sources, path: source}
        return replace(with_figure(self, path, value), sources=sources)
