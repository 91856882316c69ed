"""What runs on TPUs: every kernel of `lowering.kernels`, through JAX's Mosaic."""

from tilejax.lowering.adapt.families import FAMILIES
from tilejax.lowering.rules import register_kernel

for _family in FAMILIES:
    for _kernel in _family.KERNELS:
        register_kernel(
            _kernel.op, "tpu", _kernel.run, configs=_kernel.configs, part=_kernel.part
        )
