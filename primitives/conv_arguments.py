"""What users may write for a convolution's layout, strides and padding."""

from collections.abc import Sequence
from typing import Any

from tilejax.errors import ParameterError, ShapeError
from tilejax.primitives.sizes import show

Padding = str | int | Sequence[int | tuple[int, int]]

# Layouts of x and of the result, and that of the filter which goes with each.
LAYOUTS = {
    "NWC": "WIO",
    "NCW": "OIW",
    "NHWC": "HWIO",
    "NCHW": "OIHW",
    "NDHWC": "DHWIO",
    "NCDHW": "OIDHW",
}


def layout_of(name: str, x, w, layout: str | None) -> str:
    """Return the layout that is meant, or raise what a user should read."""
    if layout is None:
        layout = {3: "NWC", 4: "NHWC", 5: "NDHWC"}.get(x.ndim, "")
        if not layout:
            raise ShapeError(
                f"{name}: x is {show(x)}; it must have 1, 2 or 3 spatial dimensions, "
                "so rank 3, 4 or 5 (use conv_general_dilated for others)"
            )
    if layout not in LAYOUTS:
        raise ParameterError(
            f"{name}: layout={layout!r} is unknown; it takes {', '.join(LAYOUTS)}"
        )
    if not x.ndim == w.ndim == len(layout):
        raise ShapeError(
            f"{name}: layout {layout} wants x and w ({LAYOUTS[layout]}) of rank "
            f"{len(layout)}, but x is {show(x)} and w is {show(w)}"
        )
    return layout


def each_dimension(name: str, what: str, value, count: int) -> tuple[int, ...]:
    """Return one positive number a dimension."""
    found = (value,) * count if isinstance(value, int) else tuple(value)
    if len(found) != count or any(not isinstance(v, int) or v < 1 for v in found):
        raise ParameterError(
            f"{name}: {what}={value!r}; give one positive integer, or {count} of them"
        )
    return found


def padding_of(name: str, padding: Padding, count: int) -> Any:
    """Return a name that JAX knows, or a pair a dimension."""
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "SAME_LOWER", "VALID"):
            raise ParameterError(
                f"{name}: padding={padding!r} is unknown; it takes SAME, SAME_LOWER, "
                "VALID, a number, or a pair (low, high) a dimension"
            )
        return padding.upper()
    if isinstance(padding, int):
        return ((padding, padding),) * count
    pairs = tuple((p, p) if isinstance(p, int) else tuple(p) for p in padding)
    if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
        raise ParameterError(
            f"{name}: padding={padding!r}; give {count} pairs (low, high)"
        )
    return pairs
