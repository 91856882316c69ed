"""What a config costs: steps, copies and calls, each by hand."""

import pytest

from tilejax import targets
from tilejax.errors import ParameterError
from tilejax.targets import (
    Cost,
    Tiling,
    assumed,
    fastest,
    matmul_tiling,
    product_work,
    ranked,
)

V5E = targets.get("tpu:v5e")
LAUNCH, STEP = 1e-6, 3.5e-7  # assumed


def test_launches_and_steps_are_paid_for():
    work = Cost({}, 819e3, 819e3)  # 2 us
    assert Tiling(0, work).seconds(V5E) == pytest.approx(2e-6 + LAUNCH + STEP)
    again = Tiling(0, work, steps=4, blocks=4, calls=3)
    assert again.seconds(V5E) == pytest.approx(2e-6 + 3 * LAUNCH + 4 * STEP)


def test_blocks_side_by_side_share_the_steps():
    v4 = targets.get("tpu:v4")  # two cores that are one device
    work = Cost(elementwise={"float32": 1e9})
    alone, both = (Tiling(0, work, steps=8, blocks=b).seconds(v4) for b in (1, 8))
    assert both - LAUNCH == pytest.approx((alone - LAUNCH) / 2)


def test_a_copy_reads_and_writes_in_a_call_of_its_own():
    plain = Tiling(0, Cost({}, 819e3, 819e3))
    copied = plain.after_copies(819e3)
    assert (copied.cost.bytes, copied.calls) == (4 * 819e3, 2)
    assert copied.seconds(V5E) - plain.seconds(V5E) == pytest.approx(2e-6 + LAUNCH)
    assert plain.after_copies(0) is plain


def test_the_order_is_by_seconds_and_then_as_given():
    tilings = [Tiling(n, Cost(bytes_read=b)) for n, b in (("a", 2e6), ("b", 1e6))]
    tilings.append(Tiling("c", Cost(bytes_read=1e6)))
    assert [t.config for _, t in ranked(V5E, tilings)] == ["b", "c", "a"]
    assert fastest(V5E, tilings).config == "b"


def test_padding_of_a_product_is_paid_for():
    aligned = matmul_tiling((1024, 128, 128), (1024, 128, 128), V5E)
    narrow = matmul_tiling((1024, 64, 128), (1024, 64, 128), V5E)
    assert (aligned.efficiency, narrow.efficiency) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("precision", "passes"),
    [(None, 1), ("default", 1), ("high", 3), ("highest", 6), ("Precision.HIGHEST", 6)],
)
def test_a_precision_is_so_many_products_of_bfloat16(precision, passes):
    assert product_work(2.0, "float32", V5E, precision) == {"bfloat16": 2.0 * passes}
    assert product_work(2.0, "bfloat16", V5E, precision) == {"bfloat16": 2.0}
    h100 = targets.get("gpu:h100")
    assert product_work(2.0, "float32", h100, precision) == {"float32": 2.0}


def test_nothing_is_assumed_of_what_was_measured():
    measured = V5E.with_figure("limits.step_seconds", 1e-7, "measured")
    assert "limits.step_seconds" not in assumed(measured).values
    assert assumed(measured).target.limits.step_seconds == 1e-7


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"blocks": 0}, {"calls": 0}, {"efficiency": 0.0}, {"efficiency": 2}],
)
def test_a_tiling_that_cannot_be_is_refused(wrong):
    with pytest.raises(ParameterError, match="at least one"):
        Tiling("x", Cost(), **wrong)
