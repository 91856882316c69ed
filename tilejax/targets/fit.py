"""Whether what a kernel wants to hold fits where it wants to hold it."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilejax.errors import ParameterError
from tilejax.targets.records import Target


@dataclass(frozen=True)
class Fit:
    """Hold an answer and its reason; true where everything fits.

    **Arguments:**

    - `ok`: The answer; false also where a size is unknown.
    - `why`: For each memory what it wants and what there is.
    """

    ok: bool
    why: str

    def __bool__(self) -> bool:
        """Return the answer."""
        return self.ok


def fits(target: Target, bytes_by_memory: Mapping[str, int]) -> Fit:
    """Say whether a block's allocations fit in a target's memories.

    **Arguments:**

    - `target`: The target.
    - `bytes_by_memory`: Bytes wanted by name of memory, double buffers included. In the
      memory for blocks the limit of one block counts, and in memory that the chip's
      devices divide between them a device's share.

    **Returns:**

    A `Fit`: a truth value with a reason.

    **Raises:**

    `tilejax.errors.TargetError` for a memory that the target lacks, and
    `tilejax.errors.ParameterError` for a negative size.

    Example:

    >>> import tilejax.targets
    >>> fits(tilejax.targets.get("tpu:v5e"), {"vmem": 20 * 2**20}).why
    'vmem: 20971520 bytes wanted, 16777216 available on tpu:v5e'
    """
    ok, reasons = True, []
    for name, wanted in bytes_by_memory.items():
        memory = target.memory(name)
        if wanted < 0:
            raise ParameterError(f"fits: {name} wants {wanted} bytes, a negative size")
        room = target.block_bytes if name == target.fast else memory.bytes
        if room is not None and memory.scope == "chip":
            room //= target.devices
        if memory.align:
            wanted = -(-wanted // memory.align) * memory.align
        if room is None:
            ok = ok and not wanted
            reasons.append(f"{name}: {wanted} bytes wanted, size unknown")
        else:
            ok = ok and wanted <= room
            reasons.append(f"{name}: {wanted} bytes wanted, {room} available")
    return Fit(ok, f"{'; '.join(reasons) or 'nothing wanted'} on {target.name}")
