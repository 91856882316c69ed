"""The geometry of dilated axes, checked tap by tap without any array."""

from hypothesis import given, strategies as st

from tilejax.lowering.kernels.conv_residues import split_residues
from tilejax.lowering.kernels.conv_windows import Axis

small = st.integers(1, 5)


def reads(axis):
    """Every (output, tap, input) that meet."""
    return {
        (out, tap, at // axis.lhs_dilation)
        for out in range(axis.out)
        for tap in range(axis.taps)
        for at in [out * axis.stride - axis.low + tap * axis.rhs_dilation]
        if at % axis.lhs_dilation == 0 and 0 <= at // axis.lhs_dilation < axis.size
    }


@given(small, small, small, small, st.integers(-3, 4), st.integers(-3, 4))
def test_residues_meet_as_the_dilated_axis_does(
    size, taps, lhs_dilation, rhs_dilation, low, high
):
    whole = Axis(size, taps, 1, low, high, lhs_dilation, rhs_dilation)
    found = set()
    for start, residue in enumerate(split_residues(whole)):
        kept = range(residue.first, taps, residue.step)
        if not residue.out or not kept:
            continue
        plain = Axis(
            *(size, len(kept), 1, residue.low, residue.high, 1, residue.rhs_dilation)
        )
        assert plain.out == residue.out
        found |= {
            (start + lhs_dilation * out, kept[tap], at) for out, tap, at in reads(plain)
        }
    assert found == reads(whole)


@given(small, small, small, small, st.integers(-3, 4), st.integers(-3, 4), small)
def test_every_tap_of_a_tile_lies_in_its_window(
    size, taps, stride, rhs_dilation, low, high, tile
):
    axis = Axis(size, taps, stride, low, high, 1, rhs_dilation, tile=tile, align=4)
    for out in range(axis.out):
        start = axis.start(out // tile)
        for tap in range(taps):
            phase, place = axis.tap(tap)
            place += out % tile
            assert 0 <= phase < axis.phases and place < axis.window
            position = (start + place) * stride + phase
            assert position == out * stride + tap * rhs_dilation
    if axis.out:
        assert axis.start(axis.tiles - 1) + axis.window <= axis.places
