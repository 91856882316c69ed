"""The host's CPU as a record, from what the system tells; nothing is measured.

Rates are derived: cores x fused multiply-adds a cycle x lanes x 2 x frequency. The
bandwidth of main memory is not to be had without measuring, so it is unknown until
someone gives it, `target.with_figure("memories.ram.bandwidth", ...)`. What code makes
of such rates was measured elsewhere, once: see `code.py`.
"""

from tilejax.targets.code import CODE, CODE_SOURCES
from tilejax.targets.host import Host
from tilejax.targets.microarch import amx_operations, fma_pipes
from tilejax.targets.records import Limits, Memory, Target, Unit

_X86 = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw"),
    *("avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)
_ARM = ("asimd", "advsimd", "asimdhp", "fphp", "feat_fp16", "asimddp", "bf16", "i8mm")
_SCALABLE = ("sve", "sve2", "svebf16", "svei8mm", "sme")
_KNOWN = (*_X86, *_ARM, *_SCALABLE)

_MATRIX_SOURCES = {
    "units.dot.tile": "detected: the widest vector the features name",
    "units.amx": "derived: cores x operations a cycle x frequency (detected; "
    "Intel Optimization Reference Manual)",
    "units.amx.tile": "Intel Optimization Reference Manual: 16 rows, 64 bytes",
}


def cpu_record(host: Host) -> Target:
    """Make a record of a CPU.

    **Arguments:**

    - `host`: What `tilejax.targets.host.read_host` returned, or a made-up one.

    **Returns:**

    A `Target` named "cpu", whose `details` hold the model's name, `features`,
    `vector_bits`, and the `physical` and `logical` cores of the whole machine.

    Example:

    >>> from tilejax.targets.host import Host
    >>> zen3 = Host(
    ...     vendor="AuthenticAMD", family=0x19, part=1, features=frozenset(["avx2"]),
    ...     allowed=4, frequency=3e9,
    ... )
    >>> cpu_record(zen3).rate("float32") == 4 * 2 * 8 * 2 * 3e9
    True
    """
    cores = host.allowed
    bits = vector_bits(host)
    units = [_vector(host, bits), *_dot(host, bits)]
    amx = amx_operations(host)
    if amx:
        rates = {
            dtype: _product(cores, host.frequency, operations)
            for dtype, operations in amx.items()
        }
        # a tile has up to 16 rows of 64 bytes
        # before the dot products, so that AMX is taken where it has the dtype
        units.insert(1, Unit("amx", "matrix", rates, (16, 16, 32), k_bytes=64))
    line = host.line
    caches = [
        Memory(f"l{level}", size, line, None, "core" if sharing == 1 else "chip")
        for level, size, sharing in sorted(host.caches, reverse=True)
    ]
    if not any(cache.name == "l2" for cache in caches):
        caches.append(Memory("l2", None, line, None, "core"))
    pipes = fma_pipes(host)
    guide = pipes.source if pipes else "no guide"
    return Target(
        name="cpu",
        kind="cpu",
        platform="cpu",
        cores=cores,
        memories=(Memory("ram", host.memory, line, None, "chip"), *caches),
        units=tuple(units),
        limits=Limits(),
        fast="l2",
        device_kinds=("cpu",),
        absent=("threads", "registers"),
        code=CODE,
        details={
            "model": host.model,
            "features": tuple(name for name in _KNOWN if name in host.features),
            "vector_bits": bits,
            "frequency": host.frequency,
            "physical": host.physical,
            "logical": host.logical,
        },
        sources={
            "cores": "detected: topology, affinity and CPU quota",
            "memories": "detected: the operating system's tables (align: a cache line)",
            "units.vector": "derived: cores x multiply-adds a cycle x lanes x 2 x "
            f"frequency (detected; {guide})",
            "units.vector.tile": "detected: the widest vector the features name",
            **CODE_SOURCES,
            **{
                path: source
                for path, source in _MATRIX_SOURCES.items()
                if path.split(".")[1] in {unit.name for unit in units}
            },
        },
    )


def vector_bits(host: Host) -> int | None:
    """Return the widest vector register that the features name, `None` if none does.

    **Arguments:**

    - `host`: A `Host`. With SVE the width is the microarchitecture's.
    """
    features = host.features
    if "avx512f" in features:
        return 512
    if "avx2" in features or "avx" in features or "avx1.0" in features:
        return 256
    pipes = fma_pipes(host)
    if "sve" in features:
        return None if pipes is None else pipes.bits
    if features & {"asimd", "advsimd", "sse2", "sse4_2", "sse4.2"}:
        return 128
    return None


def _product(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def _vector(host: Host, bits: int | None) -> Unit:
    pipes = fma_pipes(host)
    # what a pipe does in a cycle is bounded by the widest instruction there is
    width = None if pipes is None or bits is None else min(pipes.bits, bits)
    count = None if pipes is None else pipes.count
    rates: dict[str, float | None] = {}
    for dtype, size in (("float32", 32), ("float64", 64)):
        lanes = None if width is None else width // size
        rates[dtype] = _product(host.allowed, count, lanes, 2, host.frequency)
    half = {"avx512_fp16", "asimdhp", "feat_fp16"} & host.features
    if half:
        rates["float16"] = _product(rates["float32"], 2)
    return Unit("vector", "vector", rates, None if bits is None else (bits // 32,))


def _dot(host: Host, bits: int | None) -> list[Unit]:
    """Return the vector unit's dot products of narrow operands, their rates unknown.

    The guides give them for some cores and dtypes only, and not as one figure.
    """
    rates: dict[str, float | None] = {}
    if {"avx512_bf16", "bf16", "svebf16"} & host.features:
        rates["bfloat16"] = None
    if {"avx512_vnni", "avx_vnni", "asimddp", "i8mm"} & host.features:
        rates["int8"] = None
    if not rates:
        return []
    lanes = None if bits is None else (1, bits // 32, 4)
    return [Unit("dot", "matrix", rates, lanes, k_bytes=4)]
