"""Google TPUs: v4, v5e, v5p, v6e and TPU7x.

Sources, by the names used below:

- "Cloud TPU docs": the page of each generation at docs.cloud.google.com/tpu/docs
  (peak compute, HBM capacity and bandwidth a chip, cores, matrix units).
- "JAX TpuInfo": the table behind `jax.experimental.pallas.tpu.get_tpu_info` in JAX
  0.12 (VMEM, SMEM, CMEM, int4 and fp8 rates), shown in JAX's TPU Hardware Reference.
- "libtpu": the limit that libtpu 0.0.50 names when a kernel's blocks do not fit.
- "Scaling Book": How to Scale Your Model, part 2 (a vector unit has 8 x 128 lanes of 4
  ALUs each; clocks).
"""

from tilejax.targets.records import Limits, Memory, Target, Unit

MIB = 2**20
GIB = 2**30

_DOCS = "Cloud TPU docs, page {}"
_INFO = "JAX TpuInfo"
_BOOK = "Scaling Book, part 2"


def _tpu(
    name: str,
    *,
    page: str,
    cores: int,
    devices: int,
    kinds: tuple[str, ...],
    hbm: int,
    bandwidth: float,
    vmem: int,
    scoped: int,
    mxu: int,
    rates: dict[str, float],
    vector: float | None,
    cmem: int | None = None,
    info: tuple[str, ...] = (),
) -> Target:
    """Build one record; `info` names the matrix rates that only JAX's table has."""
    docs = _DOCS.format(page)
    memories = [Memory("hbm", hbm, 512, bandwidth, "chip")]
    if cmem is not None:
        memories.append(Memory("cmem", cmem, None, None, "chip"))
    memories += [
        Memory("vmem", vmem, 4096, None, "core"),
        Memory("smem", MIB, 4, None, "core"),
    ]
    sources = {
        "cores": docs,
        "memories.hbm": docs,
        "memories.hbm.align": "Pallas: memory comes in (8, 128) tiles of 32-bit words, "
        "a row of which is 512 bytes",
        "memories.vmem": _INFO,
        "memories.vmem.align": "Pallas: one (8, 128) tile of 32-bit words",
        **({"memories.cmem": _INFO} if cmem is not None else {}),
        "memories.smem": _INFO,
        "memories.smem.align": "Pallas: scalar memory holds 32-bit words",
        "units.mxu": docs,
        "units.mxu.tile": f"{_INFO} (systolic array); 8 rows from Scaling Book, part 2",
        **{f"units.mxu.{dtype}": _INFO for dtype in info},
        "units.vpu": f"derived: 8 x 128 lanes x 4 ALUs x cores x clock ({_BOOK})",
        "units.vpu.tile": _BOOK,
        "limits.fast_bytes": "libtpu 0.0.50, default scoped VMEM limit",
    }
    return Target(
        name=f"tpu:{name}",
        kind="tpu",
        platform="tpu",
        cores=cores,
        memories=tuple(memories),
        units=(
            Unit("mxu", "matrix", {"float32": None, **rates}, (8, mxu, mxu)),
            # No TPU before v6 computes in bfloat16 on the vector unit, and for v6 no
            # rate is published; so float32 alone.
            Unit("vpu", "vector", {"float32": vector}, (8, 128)),
        ),
        limits=Limits(fast_bytes=scoped),
        fast="vmem",
        devices=devices,
        device_kinds=kinds,
        absent=("threads", "registers"),
        # what JAX's default precision makes of float32 operands of a product
        details={"sublanes": 8, "lanes": 128, "float32_product": "bfloat16"},
        sources=sources,
    )


def _vector(cores: int, clock: float) -> float:
    # One operation an ALU and cycle; a TPU's ALU has no fused multiply-add counted.
    return 8 * 128 * 4 * cores * clock


V4 = _tpu(
    "v4",
    page="v4",
    cores=2,
    devices=1,  # the two cores act as one device ("megacore")
    kinds=("TPU v4",),
    hbm=32 * GIB,
    bandwidth=1200e9,
    vmem=16 * MIB,
    scoped=16 * MIB,
    mxu=128,
    rates={"bfloat16": 275e12, "int8": 275e12},
    # 1.05 GHz: 2 cores x 4 arrays x 128 x 128 x 2 x 1.05e9 is the 275e12 above
    vector=_vector(2, 1.05e9),
    cmem=128 * MIB,
)

V5E = _tpu(
    "v5e",
    page="v5e",
    cores=1,
    devices=1,
    kinds=("TPU v5 lite", "TPU v5e"),
    hbm=16 * 10**9,
    bandwidth=819e9,
    vmem=128 * MIB,
    scoped=16 * MIB,
    mxu=128,
    rates={"bfloat16": 197e12, "int8": 393e12, "int4": 788e12},
    vector=_vector(1, 1.5e9),
    info=("int4",),
)

V5P = _tpu(
    "v5p",
    page="v5p",
    cores=2,
    devices=1,
    kinds=("TPU v5", "TPU v5p"),
    hbm=95 * 10**9,
    bandwidth=2765e9,
    vmem=64 * MIB,
    scoped=16 * MIB,
    mxu=128,
    rates={"bfloat16": 459e12, "int8": 918e12, "int4": 1840e12},
    vector=_vector(2, 1.75e9),
    info=("int8", "int4"),
)

V6E = _tpu(
    "v6e",
    page="v6e",
    cores=1,
    devices=1,
    kinds=("TPU v6 lite", "TPU v6e"),
    hbm=32 * 10**9,
    bandwidth=1638e9,
    vmem=128 * MIB,
    scoped=32 * MIB,
    mxu=256,
    rates={
        "bfloat16": 918e12,
        "int8": 1836e12,
        "float8": 918e12,
        "int4": 3680e12,
    },
    vector=None,
    info=("int4",),
)

TPU7X = _tpu(
    "tpu7x",
    page="tpu7x",
    cores=2,
    devices=2,  # each core is a device with its own half of the HBM
    kinds=("TPU7x",),
    hbm=192 * GIB,
    bandwidth=7380e9,
    vmem=64 * MIB,
    scoped=32 * MIB,
    mxu=256,
    rates={"bfloat16": 2307e12, "float8": 4614e12},
    vector=None,
)

RECORDS = (V4, V5E, V5P, V6E, TPU7X)
