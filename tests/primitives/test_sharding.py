"""Every operation over 4 and 8 devices, equal to its reference, collectives too."""

import pytest

from tests.primitives import shardings
from tests.primitives.cases import with_a_layout

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.mark.parametrize(("case", "layout", "devices", "dtype"), with_a_layout(0))
def test_auto_axes(case, layout, devices, dtype):
    shardings.check_auto(case, layout, devices, dtype)


@pytest.mark.parametrize(("case", "layout", "devices", "dtype"), with_a_layout(1))
def test_explicit_axes(case, layout, devices, dtype):
    shardings.check_explicit(case, layout, devices, dtype)


@pytest.mark.parametrize(("case", "layout", "devices", "dtype"), with_a_layout(2, True))
def test_manual_axes(case, layout, devices, dtype):
    shardings.check_manual(case, layout, devices, dtype)
