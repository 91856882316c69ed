"""What runs on CPUs: every kernel of `lowering.kernels`, compiled here."""

from functools import partial

from tilejax._jax.pallas import NATIVE
from tilejax.lowering.adapt.families import FAMILIES
from tilejax.lowering.rules import register_kernel

for _family in FAMILIES:
    for _kernel in _family.KERNELS:
        register_kernel(
            _kernel.op,
            "cpu",
            partial(_kernel.run, interpret=NATIVE),
            configs=_kernel.configs,
            part=_kernel.part,
            modelled=True,
        )
