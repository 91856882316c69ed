"""Convolutions and windows that move over axes."""

from tilejax._jax.symbolic import is_symbolic
from tilejax.passes.padded.axes import Layout, Padded, mask, prefix
from tilejax.passes.padded.run import is_moving, plain, refusal, rule, shape_of
from tilejax.passes.padded.summing import NEUTRAL


@rule("conv_general_dilated", crosses=True)
def convolution(frame, eqn, operands):
    """Space beyond what is real is zero, as it is beyond an array."""
    x, w = operands
    params = eqn.params
    lhs, rhs, out = params["dimension_numbers"]
    x_shape, w_shape = map(shape_of, eqn.invars)
    groups = params["feature_group_count"], params["batch_group_count"]
    features = x.layouts[lhs[1]], w.layouts[rhs[1]], w.layouts[rhs[0]]
    if any(f is not None for f in features) and groups != (1, 1):
        raise refusal(eqn, "features in groups are padded")
    if groups[1] != 1 and x.layouts[lhs[0]] is not None:
        raise refusal(eqn, "a batch in groups is padded")
    if any(w.layouts[d] is not None for d in rhs[2:]):
        raise refusal(eqn, "the window itself is padded")
    space = [d for d in lhs[2:] if x.layouts[d] is not None]
    for d in space:
        low, _ = params["padding"][lhs[2:].index(d)]
        if is_symbolic(low) or not prefix(x.layouts[d], x_shape[d]):
            raise refusal(eqn, f"the padding in front of axis {d} depends on its size")
    layouts: list[Layout] = [None] * len(x_shape)
    layouts[out[0]], layouts[out[1]] = x.layouts[lhs[0]], w.layouts[rhs[0]]
    sizes = shape_of(eqn.outvars[0])
    for d in out[2:]:
        layouts[d] = (sizes[d],) if is_symbolic(sizes[d]) else None
    is_mixing = any(layout is not None for layout in layouts)
    is_gated = frame.gated and is_mixing and any(map(is_moving, eqn.invars))
    axes = x.axes if is_gated else [lhs[1], *space]
    a = mask(frame, x, x_shape, 0, axes)
    b = mask(frame, w, w_shape, 0, w.axes if is_gated else [rhs[1]])
    return plain(frame, eqn, [a, b], layouts)


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min", crosses=True)
def window(frame, eqn, operands):
    """What is not real adds nothing to a window."""
    (value,) = operands
    shape, sizes = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
    moved = _moved(eqn, value, shape)
    fill = NEUTRAL[eqn.primitive.name.removeprefix("reduce_window_")](value.x.dtype)
    x = mask(frame, value, shape, fill, moved)
    layouts = [
        value.layouts[d] if d not in moved else (size,) if is_symbolic(size) else None
        for d, size in enumerate(sizes)
    ]
    return plain(frame, eqn, [x], layouts)


def _moved(eqn, value: Padded, shape: tuple) -> list[int]:
    """The padded axes along which a window has more than one element, or moves."""
    params, found = eqn.params, []
    for d in value.axes:
        low, high = params["padding"][d]
        dilated = params.get("base_dilation", (1,) * len(shape))[d] != 1
        still = params["window_dimensions"][d] == params["window_strides"][d] == 1
        if still and not dilated and _is_zero(low) and _is_zero(high):
            continue
        if is_symbolic(low) or not prefix(value.layouts[d], shape[d]):
            raise refusal(eqn, f"the padding in front of axis {d} depends on its size")
        found.append(d)
    return found


def _is_zero(size) -> bool:
    return not is_symbolic(size) and size == 0


@rule("select_and_scatter_add", "select_and_gather_add")
def chosen(frame, eqn, operands):
    """Gradients of pooling: for windows that do not move along padded axes."""
    value = operands[1]
    if _moved(eqn, value, shape_of(eqn.invars[1])):
        raise refusal(eqn, "windows move along a padded axis")
    return plain(frame, eqn, [each.x for each in operands], value.layouts)
