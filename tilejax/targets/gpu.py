"""GPUs: NVIDIA A100, H100 and B200, AMD MI300X. All are the SXM or OAM module.

Sources, by the names used below:

- "A100 datasheet": NVIDIA A100 Tensor Core GPU datasheet, column A100 80GB SXM.
- "A100 white paper": NVIDIA A100 Tensor Core GPU Architecture (1410 MHz boost).
- "H100 white paper": NVIDIA H100 Tensor Core GPU Architecture, column H100 SXM5; its
  rates without sparsity.
- "H100 datasheet": NVIDIA H100 Tensor Core GPU datasheet, column H100 SXM.
- "Blackwell brief": NVIDIA Blackwell Architecture Technical Brief, one GPU of an HGX
  B200, dense.
- "B200 device query": CUDA device properties of an NVIDIA B200, pytorch/ao pull
  request 4002 (bandwidth is bus width x memory clock; sales pages round it to 8 TB/s).
- "CUDA guide": CUDA C++ Programming Guide, technical specifications for each compute
  capability, and throughput of native arithmetic instructions.
- "PTX ISA": PTX ISA, shapes of mma, wgmma and tcgen05.mma.
- "CDNA 3 docs": ROCm documentation, MI300 series microarchitecture.
- "ROCm specs": ROCm documentation, AMD GPU specifications.
- "CDNA 3 white paper": AMD CDNA 3 Architecture white paper.
- "CDNA 3 ISA": AMD Instinct MI300 Instruction Set Architecture reference guide.
"""

from collections.abc import Mapping

from tilejax.targets.records import Limits, Memory, Target, Unit

KIB = 2**10
MIB = 2**20
GIB = 2**30

_GUIDE = "CUDA guide"
# 32 banks of 4 bytes a clock: what shared memory delivers in each multiprocessor.
_SHARED = f"derived: 128 B a clock and SM ({_GUIDE}) x SMs x clock"


def _nvidia(
    name: str,
    *,
    capability: str,
    kinds: tuple[str, ...],
    sms: int,
    hbm: tuple[int, float],
    l2: int,
    shared: tuple[int, float | None],
    tensor: Mapping[str, float],
    tile: tuple[int, int, int],
    cuda: Mapping[str, float | None],
    sources: Mapping[str, str],
) -> Target:
    return Target(
        name=f"gpu:{name}",
        kind="gpu",
        platform="cuda",
        cores=sms,
        memories=(
            Memory("hbm", hbm[0], 128, hbm[1], "chip"),
            Memory("l2", l2, 128, None, "chip"),
            Memory("shared", shared[0], 16, shared[1], "core"),
            Memory("registers", 256 * KIB, 4, None, "core"),
        ),
        units=(
            # every shape's k is 32 bytes: 16 bfloat16, 32 int8, 8 tf32
            Unit("tensor", "matrix", tensor, tile, k_bytes=32),
            Unit("cuda", "vector", cuda, (32,)),
        ),
        limits=Limits(
            threads=1024,
            registers=255,
            # a kilobyte of each multiprocessor's is reserved for the system
            fast_bytes=shared[0] - KIB,
        ),
        fast="shared",
        device_kinds=kinds,
        details={"compute_capability": capability, "warp": 32},
        sources={
            "memories.hbm.align": f"{_GUIDE}: a transaction is a 128-byte line",
            "memories.l2.align": f"{_GUIDE}: 128-byte lines",
            "memories.shared": _GUIDE,
            "memories.shared.align": f"{_GUIDE}: asynchronous copies of 16 bytes",
            "memories.shared.bandwidth": _SHARED,
            "memories.registers": f"{_GUIDE}: 64 Ki 32-bit registers a multiprocessor",
            "units.tensor.tile": "PTX ISA",
            "units.cuda.tile": f"{_GUIDE}: a warp",
            "limits": _GUIDE,
            **sources,
        },
    )


A100 = _nvidia(
    "a100",
    capability="8.0",
    kinds=("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB"),
    sms=108,
    hbm=(80 * 10**9, 2039e9),
    l2=40 * MIB,
    shared=(164 * KIB, 108 * 128 * 1.41e9),
    tensor={
        "float16": 312e12,
        "bfloat16": 312e12,
        "tf32": 156e12,
        "int8": 624e12,
        "int4": 1248e12,
        "float64": 19.5e12,
    },
    tile=(16, 8, 16),
    cuda={
        "float32": 19.5e12,
        "float64": 9.7e12,
        "float16": 78e12,
        "bfloat16": 39e12,
        "transcendental": 108 * 16 * 1.41e9,
    },
    sources={
        "cores": "A100 white paper",
        "memories.hbm": "A100 datasheet",
        "memories.l2": "A100 white paper",
        "units.tensor": "A100 datasheet",
        "units.cuda": "A100 white paper",
        "units.cuda.transcendental": f"derived: 16 a clock and SM ({_GUIDE}) x SMs x "
        "1410 MHz",
    },
)

H100 = _nvidia(
    "h100",
    capability="9.0",
    kinds=("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
    sms=132,
    hbm=(80 * 10**9, 3.35e12),
    l2=50 * MIB,
    shared=(228 * KIB, 132 * 128 * 1.83e9),
    tensor={
        "float16": 989.4e12,
        "bfloat16": 989.4e12,
        "tf32": 494.7e12,
        "float8": 1978.9e12,
        "int8": 1978.9e12,
        "float64": 66.9e12,
    },
    tile=(64, 8, 16),
    cuda={
        "float32": 66.9e12,
        "float64": 33.5e12,
        "float16": 133.8e12,
        "bfloat16": 133.8e12,
        "transcendental": 132 * 16 * 1.83e9,
    },
    sources={
        "cores": "H100 white paper",
        "memories.hbm": "H100 datasheet",
        "memories.l2": "H100 white paper",
        "units.tensor": "H100 white paper",
        "units.cuda": "H100 white paper",
        "units.cuda.transcendental": f"derived: 16 a clock and SM ({_GUIDE}) x SMs x "
        "1830 MHz (the white paper's clock for the tensor cores)",
    },
)

B200 = _nvidia(
    "b200",
    capability="10.0",
    kinds=("NVIDIA B200",),
    sms=148,
    hbm=(180 * 10**9, 7680 / 8 * 3996e6 * 2),
    l2=126 * MIB + MIB // 2,
    shared=(228 * KIB, None),
    tensor={
        "float16": 2250e12,
        "bfloat16": 2250e12,
        "tf32": 1100e12,
        "float8": 4500e12,
        "int8": 4500e12,
        "float4_e2m1fn": 9000e12,
        "float64": 40e12,
    },
    tile=(64, 8, 16),
    cuda={"float32": 80e12, "float64": 40e12, "transcendental": None},
    sources={
        "cores": "B200 device query",
        "memories.hbm.bytes": "NVIDIA DGX B200 datasheet: 1440 GB over 8 GPUs",
        "memories.hbm.bandwidth": "B200 device query",
        "memories.l2.bytes": "B200 device query",
        "units.tensor": "Blackwell brief",
        "units.cuda": "Blackwell brief",
    },
)

MI300X = Target(
    name="gpu:mi300x",
    kind="gpu",
    platform="rocm",
    cores=304,
    memories=(
        Memory("hbm", 192 * GIB, 128, 5.3e12, "chip"),
        Memory("infinity_cache", 256 * MIB, 128, 17.2e12, "chip"),
        # 4 MiB in each of eight dies; a compute unit reaches its own die's
        Memory("l2", 32 * MIB, 128, None, "chip"),
        Memory("lds", 64 * KIB, 16, 304 * 128 * 2.1e9, "core"),
        Memory("registers", 512 * KIB, 4, None, "core"),
    ),
    units=(
        Unit(
            "matrix_core",
            "matrix",
            {
                "float16": 1307.4e12,
                "bfloat16": 1307.4e12,
                "tf32": 653.7e12,
                "float8": 2614.9e12,
                "int8": 2614.9e12,
                "float32": 163.4e12,
                "float64": 163.4e12,
            },
            (16, 16, 16),
            k_bytes=32,
        ),
        Unit(
            "simd",
            "vector",
            {
                "float32": 163.4e12,
                "float64": 81.7e12,
                "float16": None,
                "transcendental": None,
            },
            (64,),
        ),
    ),
    limits=Limits(threads=1024, registers=512, fast_bytes=64 * KIB),
    fast="lds",
    device_kinds=("AMD Instinct MI300X", "gfx942"),
    details={"architecture": "gfx942", "warp": 64},
    sources={
        "cores": "CDNA 3 docs",
        "memories.hbm.bytes": "ROCm specs",
        "memories.hbm.bandwidth": "CDNA 3 docs",
        "memories.hbm.align": "CDNA 3 white paper: 128-byte lines",
        "memories.infinity_cache": "CDNA 3 white paper",
        "memories.l2": "CDNA 3 docs",
        "memories.l2.align": "CDNA 3 white paper: 128-byte lines",
        "memories.lds": "ROCm specs",
        "memories.lds.align": "CDNA 3 ISA: ds_read_b128",
        "memories.lds.bandwidth": "derived: 128 B a clock and CU (CDNA 3 ISA, 32 banks "
        "of 4 bytes) x CUs x 2100 MHz",
        "memories.registers": "ROCm specs",
        "memories.registers.align": "CDNA 3 ISA",
        "units.matrix_core": "CDNA 3 docs",
        "units.matrix_core.tile": "CDNA 3 ISA: v_mfma_*_16x16x16",
        "units.simd": "CDNA 3 docs",
        "units.simd.tile": "ROCm specs: wavefront size",
        "limits": "CDNA 3 ISA",
    },
)

RECORDS = (A100, H100, B200, MI300X)
