"""Fused multiply-add pipes of CPU cores, from their makers' optimisation guides.

The operating system tells which instructions a core has, never how many it starts in a
cycle; that is here for the cores whose guide says so, and unknown for all others.

Sources: AMD's Software Optimization Guides for families 17h, 19h and 1Ah (two FMA
pipes; 128 bits wide in Zen, 256 through Zen 4, which takes two cycles for 512 bits, and
512 from Zen 5);
Intel's Optimization Reference Manual (two 256-bit FMA ports from Haswell on, two of 512
bits in server cores from Skylake on, AMX: 1024 bfloat16 and 2048 int8 operations a
cycle and core); Arm's Software Optimization Guides for Neoverse N1, N2, V1 and V2; and
Apple's Silicon CPU Optimization Guide (four 128-bit pipes in a performance core).
"""

from dataclasses import dataclass

from tilejax.targets.host import Host


@dataclass(frozen=True)
class Pipes:
    """Say how many fused multiply-adds a core starts in a cycle, and how wide.

    **Arguments:**

    - `count`: Instructions a cycle.
    - `bits`: Width of each.
    - `source`: The guide that says so.
    """

    count: int
    bits: int
    source: str


_INTEL = "Intel Optimization Reference Manual"
_ZEN = "AMD Software Optimization Guide"
_NEOVERSE = "Arm Software Optimization Guide"

# Intel family 6 models.
_INTEL_512 = {0x55, 0x6A, 0x6C, 0x8F, 0xCF, 0xAD, 0xAE}
_INTEL_256 = {
    *(0x3C, 0x3F, 0x45, 0x46),  # Haswell
    *(0x3D, 0x47, 0x4F, 0x56),  # Broadwell
    *(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),  # Skylake to Comet Lake, client
    *(0x97, 0x9A, 0xB7, 0xBA, 0xBF),  # Alder and Raptor Lake, performance cores
}
# Arm's part numbers: (pipes, bits).
_ARM = {0xD0C: (2, 128), 0xD49: (2, 128), 0xD40: (2, 256), 0xD4F: (4, 128)}


def fma_pipes(host: Host) -> Pipes | None:
    """Return the fused multiply-add pipes of the host's cores, `None` if unknown.

    **Arguments:**

    - `host`: What `tilejax.targets.host.read_host` returned.

    Example:

    >>> zen3 = Host(vendor="AuthenticAMD", family=0x19, part=0x01)
    >>> fma_pipes(zen3).bits
    256
    """
    if host.vendor == "AuthenticAMD":
        bits = {0x17: 256, 0x19: 256, 0x1A: 512}.get(host.family or 0)
        if host.family == 0x17 and (host.part or 0) < 0x30:
            bits = 128  # Zen and Zen+
        # a mobile Zen 5 core has the narrow units, and the guide is for family 1Ah
        # as a whole; the server parts are models 00h to 1Fh
        if host.family == 0x1A and (host.part or 0) > 0x1F:
            return None
        return None if bits is None else Pipes(2, bits, _ZEN)
    if host.vendor == "GenuineIntel" and host.family == 6:
        if host.part in _INTEL_512 and "avx512f" in host.features:
            return Pipes(2, 512, _INTEL)
        if host.part in _INTEL_256 | _INTEL_512:
            return Pipes(2, 256, _INTEL)
        return None
    if host.vendor in ("0x41", "0x61", "Apple"):
        if host.vendor != "0x41":
            return Pipes(4, 128, "Apple Silicon CPU Optimization Guide")
        known = _ARM.get(host.part or 0)
        return None if known is None else Pipes(*known, _NEOVERSE)
    return None


def amx_operations(host: Host) -> dict[str, int]:
    """Return AMX's operations a cycle and core by dtype, empty without AMX."""
    found = {}
    if "amx_bf16" in host.features:
        found["bfloat16"] = 1024
    if "amx_int8" in host.features:
        found["int8"] = 2048
    if "amx_fp16" in host.features:
        found["float16"] = 1024
    return found
