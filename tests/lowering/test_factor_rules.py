"""Every operation's factor rule says what may be split, and what is then added up.

A kernel is run on each device's part of the operands. So an operation's reference, run
on two parts of a factor, must give two parts of each result that has the factor, and of
a result that lacks it two terms of a sum. A factor for which that does not hold must be
marked whole.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.conftest import quick_to_compile as quick_to_compile
from tests.lowering.partitioned import WRONG
from tests.lowering.uses import Use, recorded
from tests.primitives.cases import CASES
from tests.primitives.harness import loss_of
from tilejax.primitives import parts


def splittable(use: Use) -> list[str]:
    """The factors that may be split and have more than one element."""
    rule = parts.rule_of(use.op, use.part, use.args, use.call, use.params)
    if rule is None:
        return []
    fixed = rule.whole | rule.halo | {"1"}
    return sorted(
        {
            factor
            for dims, x in zip(rule.operands, use.args, strict=True)
            for factor, size in zip(dims, x.shape, strict=True)
            if factor not in fixed and size > 1
        }
    )


def check_split(use: Use, factor: str) -> None:
    """Compare the results with those of two parts, joined or added.

    Unequal ones, unless equal shares are all that belongs together.
    """
    rule = parts.rule_of(use.op, use.part, use.args, use.call, use.params)
    assert rule is not None
    run = jax.jit(parts.function(use.op, use.part, use.call, use.params))

    def cut(size: int) -> list[int]:
        return [size // 2 if factor in rule.shared else 1]

    halves = [
        run(
            *(
                np.split(np.asarray(x), cut(x.shape[at]), at)[half]
                if (at := dims.index(factor) if factor in dims else -1) >= 0
                else x
                for x, dims in zip(use.args, rule.operands, strict=True)
            )
        )
        for half in (0, 1)
    ]
    for at, (dims, whole) in enumerate(zip(rule.results, use.results, strict=True)):
        one, two = (np.asarray(half[at]) for half in halves)
        if factor in dims:
            joined = np.concatenate([one, two], dims.index(factor))
        else:
            joined = one + two
        np.testing.assert_allclose(
            joined,
            whole,
            rtol=2e-4,
            atol=2e-4,
            err_msg=f"{use.name}: result {at} of '{rule}', factor {factor!r} split",
        )


def uses_of(fun, operands, moving=()) -> list[Use]:
    with recorded() as uses:
        if moving:
            jax.grad(loss_of(fun), moving)(*operands)
        else:
            fun(*operands)
    return uses


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in CASES if not c.thin]
)
def test_parts_of_results_are_results_of_parts(case):
    operands = [jnp.asarray(x) for x in case.operands("float32")]
    uses = uses_of(case.tested(), operands, case.differentiated())
    assert uses
    for use in uses:
        for factor in splittable(use):
            check_split(use, factor)


def test_a_factor_that_must_be_whole_and_is_not_is_caught():
    (use,) = uses_of(WRONG.op, [jnp.asarray(x) for x in WRONG.operands()])
    assert splittable(use) == ["b", "n"]
    check_split(use, "b")
    with pytest.raises(AssertionError, match="factor 'n' split"):
        check_split(use, "n")
