"""Running each adapter on the uses that a function makes of its operation."""

import functools

import jax
import jax.numpy as jnp

from tests.lowering.uses import Use, recorded
from tests.primitives.harness import Case, compare, loss_of
from tilejax import targets
from tilejax.lowering.adapt.families import FAMILIES

# Forms that no kernel takes.
REFUSED = {"conv without space", "conv of a window that does not fit"}

V5E = targets.get("tpu:v5e")
KERNELS = {(k.op, k.part): k for family in FAMILIES for k in family.KERNELS}


def configs_of(use: Use, target: targets.Target = V5E):
    operands = [
        None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype)
        for x in use.operands()
    ]
    found = KERNELS[use.op, use.part].configs(target, *operands, **use.plain_params())
    if isinstance(found, str):
        return found
    return [tiling.config for _, tiling in targets.ranked(target, found)]


def check_uses(case: Case, dtype: str, gradient: bool) -> list[str]:
    """Compare each use of an operation with its kernel; return those compared."""
    operands = [jnp.asarray(x) for x in case.operands(dtype)]
    with recorded() as uses:
        if gradient and case.differentiated():
            jax.grad(loss_of(case.tested()), case.differentiated())(*operands)
        else:
            case.tested()(*operands)
    assert uses
    compared = []
    for use in uses:
        if (use.op, use.part) not in KERNELS or any(0 in x.shape for x in use.args):
            continue
        found = configs_of(use)
        if isinstance(found, str):
            assert case.name in REFUSED, f"{use.name}: {found}"
            continue
        run = KERNELS[use.op, use.part].run
        got = jax.jit(functools.partial(use.run, run, config=found[0], interpret=True))
        compare(case, got(), list(use.results), dtype, factor=4)
        compared.append(use.name)
    return compared


def normal(*shapes):
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def like_itself(name, fun, *shapes, **params):
    return Case(name, fun, fun, normal(*shapes), params=params)


def check(case: Case, dtype: str = "float32") -> list[str]:
    compared = check_uses(case, dtype, gradient=True)
    assert compared
    return compared
