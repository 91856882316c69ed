"""Huawei Ascend NPUs: 910B1, 910C and 950PR.

Matrix rates follow from the cube: 16 x 16 x 16 float16 multiply-adds a cycle, that is
8192 operations (16 x 32 x 16 for int8), times cubes, times clock. Press figures differ
by a tenth either way, so the formula is what we keep. Sources, by the names used below:

- "NPUTargetSpec": NPUTargetSpec.td of Ascend/AscendNPU-IR at 52f96a130b52 (sizes,
  alignments, core counts), as the compiler also prints it.
- "NPU architecture 220x" and "NPU architecture 351x": hiascend.com, Ascend C operator
  development guide.
- "catlass": hicann/catlass, include/acot/arch/arch.hpp (bias table, fixpipe buffer).
- "910B1 ini", "910_9382 ini", "950PR ini": copies of CANN's platform_config files.
- "SoC table": the table of SoCs in a copy of the runtime's source.
- "roadmap": Huawei's announcements and press reports on 910C and 950PR.
"""

from tilejax.targets.records import Limits, Memory, Target, Unit

KIB = 2**10
MIB = 2**20
GIB = 2**30

_CUBE = 2 * 16 * 16 * 16  # float16 operations a cycle
_CUBE_INT8 = 2 * 16 * 32 * 16


def _ascend(
    name: str,
    *,
    soc: str,
    dies: int,
    cubes: int,
    clock: float,
    hbm: tuple[int, float],
    l2: tuple[int | None, float | None],
    l0c: int,
    ub: int,
    l1_bandwidth: float | None,
    architecture: str,
    ini: str,
    sources: dict[str, str],
) -> Target:
    """Build one record; counts and clock are those of the whole chip of `dies`."""
    vectors = 2 * cubes
    spec = "NPUTargetSpec"
    guide = f"NPU architecture {architecture}"
    derived = f"derived: cubes x operations a cycle ({guide}) x clock ({ini})"
    return Target(
        name=f"ascend:{name}",
        kind="ascend",
        platform="ascend",
        cores=cubes,
        memories=(
            Memory("hbm", hbm[0], 512, hbm[1], "chip"),
            Memory("l2", l2[0], 512 if architecture == "220x" else 256, l2[1], "chip"),
            Memory("l1", 512 * KIB, 32, l1_bandwidth, "core"),
            Memory("l0a", 64 * KIB, 512, None, "core"),
            Memory("l0b", 64 * KIB, 512, None, "core"),
            Memory("l0c", l0c, 64, None, "core"),
            # of one vector core; an AI core pairs two with a cube
            Memory("ub", ub, 32, None, "core"),
        ),
        units=(
            Unit(
                "cube",
                "matrix",
                {
                    "float16": cubes * _CUBE * clock,
                    "bfloat16": cubes * _CUBE * clock,
                    "int8": cubes * _CUBE_INT8 * clock,
                    "float32": None,
                },
                (16, 16, 16),
                k_bytes=32,
            ),
            Unit(
                "vector",
                "vector",
                {
                    "float16": vectors * 128 * clock,
                    "float32": vectors * 64 * clock,
                },
                (256,),
            ),
        ),
        limits=Limits(fast_bytes=ub),
        fast="ub",
        devices=dies,
        device_kinds=(soc,),
        absent=("threads", "registers"),
        details={"soc": soc, "vector_cores_per_core": 2, "clock": clock},
        sources={
            "cores": f"{spec}; {ini}",
            "memories": spec,
            "memories.hbm.align": "hiascend.com best practices: transfers of 512 B",
            "memories.l2": "SoC table",
            "units.cube": derived,
            "units.cube.bfloat16": f"{derived}; {guide} gives bfloat16 the cube shape "
            "of float16",
            "units.cube.tile": guide,
            "units.vector": f"derived: 256 bytes a cycle ({guide}) x vector cores x "
            f"clock ({ini}), one operation a lane",
            "units.vector.tile": f"{guide}: bytes a cycle",
            "limits.fast_bytes": spec,
            **sources,
        },
    )


ASCEND_910B1 = _ascend(
    "910b1",
    soc="Ascend910B1",
    dies=1,
    cubes=24,
    clock=1.85e9,
    hbm=(64 * GIB, 24 * 32 * 1.85e9),
    l2=(192 * MIB, 24 * 110 * 1.85e9),
    l0c=128 * KIB,
    ub=192 * KIB,
    l1_bandwidth=24 * 512 * 1.85e9,
    architecture="220x",
    ini="910B1 ini",
    sources={
        "memories.hbm.bytes": "910B1 ini",
        "memories.hbm.bandwidth": "derived: 32 B a cycle and core x cores x clock "
        "(910B1 ini)",
        "memories.l2.bandwidth": "derived: 110 B read a cycle and core x cores x clock "
        "(910B1 ini)",
        "memories.l1.bandwidth": "derived: 512 B a cycle and core, L1 to L0A, x cores "
        "x clock (910B1 ini)",
    },
)

ASCEND_910C = _ascend(
    "910c",
    soc="Ascend910_9382",
    dies=2,
    cubes=48,
    clock=1.8e9,
    hbm=(128 * GIB, 3.2e12),
    l2=(None, None),
    l0c=128 * KIB,
    ub=192 * KIB,
    l1_bandwidth=None,
    architecture="220x",
    ini="910_9382 ini",
    sources={
        "memories.hbm.bytes": "910_9382 ini, 64 GiB a die",
        "memories.hbm.bandwidth": "roadmap, about 1.6 TB/s a die",
    },
)

ASCEND_950PR = _ascend(
    "950pr",
    soc="Ascend950PR_9599",
    dies=1,
    cubes=36,
    clock=1.65e9,
    hbm=(128 * 10**9, 1.6e12),
    l2=(None, None),  # 96, 112 or 128 MiB by SKU, and which is which is not published
    l0c=256 * KIB,
    ub=248 * KIB,  # of 256, of which 8 are reserved
    l1_bandwidth=None,
    architecture="351x",
    ini="950PR ini",
    sources={"memories.hbm": "roadmap"},
)

RECORDS = (ASCEND_910B1, ASCEND_910C, ASCEND_950PR)
