"""Every operation under JAX's transformations, equal to its reference."""

import pytest

from tests.primitives import transforms, vmaps
from tests.primitives.cases import CASES, with_a_dtype, with_every_dtype

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.mark.parametrize(("case", "dtype"), with_every_dtype())
def test_values_equal_the_reference(case, dtype):
    transforms.check_values(case, dtype)


SPECIAL = [case for case in CASES if case.special and not case.thin]


@pytest.mark.parametrize("case", SPECIAL, ids=lambda case: case.name)
def test_nan_and_infinities_spread_as_in_the_reference(case):
    transforms.check_special(case)


@pytest.mark.parametrize(("case", "dtype"), with_a_dtype(0, thin=True))
def test_first_derivatives_equal_the_reference(case, dtype):
    transforms.check_first(case, dtype)


@pytest.mark.parametrize(("case", "dtype"), with_a_dtype(1, thin=False))
def test_second_derivatives_equal_the_reference(case, dtype):
    transforms.check_second(case, dtype)


@pytest.mark.parametrize(("case", "dtype"), with_a_dtype(2, thin=True))
def test_vmap_equals_the_reference(case, dtype):
    vmaps.check_vmap(case, dtype)


@pytest.mark.parametrize(("case", "dtype"), with_a_dtype(3, thin=False))
def test_remat_changes_nothing(case, dtype):
    transforms.check_remat(case, dtype)
