"""Kernels over 4 and 8 devices: each sees its share, and results are the whole's.

XLA cannot see into a kernel. Left alone it gathers the operands and runs all of it on
every device: the values are right then, and only the shapes that the kernel saw and the
collectives in the compiled module tell.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from tests.lowering.partitioned import BAGS, PRODUCT, ROWS, WINDOW, WRONG, Probe, probe
from tests.primitives.shardings import collectives, mesh_of


def _loss(fun):
    def loss(*operands):
        outs = fun(*operands)
        outs = outs if isinstance(outs, tuple | list) else (outs,)
        return sum(jnp.sum(jnp.sin(x)) for x in outs)

    return loss


def _compiled(fun, operands):
    return jax.jit(fun).lower(*operands).compile()


def _close(got, want):
    for one, two in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def _placed(probe: Probe, mesh, layout):
    return [
        jax.device_put(x, NamedSharding(mesh, P(*spec)))
        for x, spec in zip(probe.operands(), layout, strict=True)
    ]


def _share(probe: Probe, mesh, layout) -> tuple:
    """The shapes of a device's part."""

    def size(entry):
        names = entry if isinstance(entry, tuple) else (entry,)
        return int(np.prod([mesh.shape[n] for n in names if n is not None]))

    return tuple(
        tuple(n // size(e) for n, e in zip(shape, spec, strict=True))
        for shape, spec in zip(probe.shapes, layout, strict=True)
    )


def check(probe: Probe, mesh, layout, native=True) -> None:
    """Compare a sharded use with the reference: values, gradients, collectives.

    **Arguments:**

    - `native`: whether a kernel must run, on what the layout gives a device.
    """
    operands = _placed(probe, mesh, layout)
    probe.seen.clear()
    ours = _compiled(probe.op, operands)
    seen = probe.last()
    theirs = _compiled(probe.reference, operands)
    _close(ours(*operands), theirs(*operands))
    assert seen == (_share(probe, mesh, layout) if native else None)
    counts = [collectives(each.as_text()) for each in (ours, theirs)]
    assert counts[0] == counts[1], counts
    at = tuple(range(len(operands)))
    grads = [jax.grad(_loss(f), at) for f in (probe.op, probe.reference)]
    _close(*(jax.jit(g)(*operands) for g in grads))


N = None
# A factor sharded in turn, one over both axes, two over an axis each.
LAYOUTS = [
    (PRODUCT, (("x", N), (N, N))),
    (PRODUCT, ((N, N), (N, "x"))),
    (PRODUCT, ((N, "x"), ("x", N))),
    (PRODUCT, ((("x", "y"), N), (N, N))),
    (PRODUCT, (("x", N), (N, "y"))),
    (PRODUCT, (("y", "x"), ("x", N))),
    (ROWS, (("x", N),)),
    (ROWS, ((("y", "x"), N),)),
    (WINDOW, (("x", N, N), (N, N))),
    (WINDOW, ((N, N, "y"), (N, "y"))),
    (WINDOW, (("x", N, "y"), (N, "y"))),
    (BAGS, ((N, "x", N), (N, "x"))),
    (BAGS, (("y", "x", N), ("y", "x"))),
]


def _sharded(probe, layout) -> set[str]:
    left = probe.op.sharding.split("->")[0].split(",")
    return {
        factor.rstrip("!~")
        for dims, spec in zip(left, layout, strict=True)
        for factor, entry in zip(dims.split(), spec, strict=True)
        if entry is not None
    }


def _with_a_kind() -> list:
    """Explicitly, the reference refuses to contract what is sharded."""
    found = [(AxisType.Auto, *each) for each in LAYOUTS]
    return found + [
        (AxisType.Explicit, *each)
        for each in LAYOUTS
        if not {"k", "l"} & _sharded(*each)
    ]


@pytest.mark.parametrize(("kind", "probe", "layout"), _with_a_kind(), ids=str)
def test_a_kernel_sees_its_share(kind, probe, layout):
    mesh = mesh_of(4 + 4 * (len(str(layout)) % 2), kind)
    if kind == AxisType.Explicit:
        with jax.set_mesh(mesh):
            check(probe, mesh, layout)
    else:
        check(probe, mesh, layout)


@pytest.mark.parametrize(
    ("probe", "layout"),
    [
        (ROWS, ((N, "x"),)),
        (ROWS, (("y", "x"),)),
        (WINDOW, ((N, "x", N), (N, N))),
        (WINDOW, (("y", "x", N), (N, N))),
    ],
    ids=str,
)
def test_what_a_kernel_cannot_split_is_left_to_the_reference(probe, layout):
    check(probe, mesh_of(8, AxisType.Auto), layout, native=False)


@pytest.mark.parametrize(
    ("layout", "share"),
    [
        # a weight over the devices that share the batch is gathered for the kernel
        ((("x", N), ("x", N)), ((2, 16), (16, 24))),
        ((("x", "y"), ("x", "y")), ((2, 16), (16, 12))),
        # rows and columns over one axis: only one of them can have it
        ((("x", N), (N, "x")), None),
        # what is contracted, over different axes or in one operand alone
        (((N, "x"), ("y", N)), None),
        (((N, "x"), (N, N)), None),
        ((("x", N), ("y", N)), None),
    ],
    ids=str,
)
def test_operands_that_disagree_are_moved_as_the_reference_moves_them(layout, share):
    operands = _placed(PRODUCT, mesh_of(8, AxisType.Auto), layout)
    PRODUCT.seen.clear()
    ours, theirs = (_compiled(f, operands) for f in (PRODUCT.op, jnp.matmul))
    _close(ours(*operands), theirs(*operands))
    assert PRODUCT.last() == share
    counts = [collectives(each.as_text()) for each in (ours, theirs)]
    assert counts[0] == counts[1], counts
    grads = [jax.grad(_loss(f), (0, 1)) for f in (PRODUCT.op, jnp.matmul)]
    _close(*(jax.jit(g)(*operands) for g in grads))


@pytest.mark.parametrize(
    "shape",
    [lambda x: x[:7], lambda x: x.reshape(2, 4, 16)],
    ids=["uneven", "over parts of an axis"],
)
def test_odd_shares_are_left_to_the_reference(shape):
    mesh = mesh_of(8, AxisType.Auto)
    (x,) = _placed(ROWS, mesh, ((("x", "y"), N),))

    def use(op):
        def run(x):
            x = shape(x)
            return jax.vmap(op)(x) if x.ndim == 3 else op(x)

        return _compiled(run, [x])

    ROWS.seen.clear()
    ours, theirs = use(ROWS.op), use(ROWS.reference)
    assert not ROWS.seen
    _close(ours(x), theirs(x))
    counts = [collectives(each.as_text()) for each in (ours, theirs)]
    assert counts[0] == counts[1], counts


def test_the_backward_kernel_sees_its_share_too():
    mesh = mesh_of(8, AxisType.Auto)
    layout = (("x", N), (N, "y"))
    operands = _placed(PRODUCT, mesh, layout)
    PRODUCT.seen.clear()
    grads = [jax.grad(_loss(f), (0, 1)) for f in (PRODUCT.op, jnp.matmul)]
    ours, theirs = (_compiled(g, operands) for g in grads)
    assert PRODUCT.last("backward") == ((2, 16), (16, 12))
    counts = [collectives(each.as_text()) for each in (ours, theirs)]
    assert counts[0]["all-gather"] == counts[1]["all-gather"] == 0
    _close(ours(*operands), theirs(*operands))


@pytest.mark.parametrize("probe", [PRODUCT, ROWS, BAGS], ids=lambda p: p.op.name)
def test_a_vmap_of_sharded_operands(probe):
    mesh = mesh_of(8, AxisType.Auto)
    rng = np.random.default_rng(0)
    operands = [
        jax.device_put(
            rng.normal(size=(4, *shape)).astype("float32"),
            NamedSharding(mesh, P("x", "y")),
        )
        for shape in probe.shapes
    ]
    probe.seen.clear()
    ours = _compiled(jax.vmap(probe.op), operands)
    theirs = _compiled(jax.vmap(probe.reference), operands)
    _close(ours(*operands), theirs(*operands))
    # over `x` the batch is split, over `y` the first dimension of each operand, which
    # of the product's second operand is what is contracted: one of the two gives way
    split = {
        "probe_product": ((4, 16), (16, 24)),
        "probe_rows": ((4, 16),),
        "probe_bags": ((4, 16, 4), (4, 16)),
    }
    assert probe.last() == split[probe.op.name]
    grads = [jax.grad(_loss(jax.vmap(f))) for f in (probe.op, probe.reference)]
    _close(*(jax.jit(g)(*operands) for g in grads))


def test_operands_that_a_vmap_shares():
    mesh = mesh_of(8, AxisType.Auto)
    a = jax.device_put(
        np.ones((4, 8, 16), "float32"), NamedSharding(mesh, P("x", None, "y"))
    )
    b = jax.device_put(np.ones((16, 24), "float32"), NamedSharding(mesh, P("y")))
    got = jax.jit(jax.vmap(PRODUCT.op, (0, None)))(a, b)
    _close(got, np.full((4, 8, 24), 16.0))
    assert PRODUCT.last() == ((8, 8), (8, 24))


def _mapped(fun, mesh, layout, out, **options):
    specs = tuple(P(*spec) for spec in layout)
    return jax.shard_map(fun, mesh=mesh, in_specs=specs, out_specs=out, **options)


@pytest.mark.parametrize("devices", [4, 8])
def test_a_manual_part_is_what_the_kernel_sees(devices):
    mesh = mesh_of(devices, AxisType.Auto)
    layout = (("x", N), (N, "y"))
    operands = _placed(PRODUCT, mesh, layout)
    PRODUCT.seen.clear()
    mapped = _mapped(PRODUCT.op, mesh, layout, P("x", "y"), check_vma=True)
    _close(jax.jit(mapped)(*operands), jnp.matmul(*PRODUCT.operands()))
    assert PRODUCT.seen["forward"] == [_share(PRODUCT, mesh, layout)]
    grads = jax.jit(jax.grad(_loss(mapped), (0, 1)))(*operands)
    _close(grads, jax.grad(_loss(jnp.matmul), (0, 1))(*PRODUCT.operands()))
    assert PRODUCT.last("backward") == _share(PRODUCT, mesh, layout)


def test_partly_manual_axes_run_the_reference():
    mesh = mesh_of(8, AxisType.Auto)
    layout = (("x", N), (N, "y"))
    operands = _placed(PRODUCT, mesh, layout)
    PRODUCT.seen.clear()
    manual = (("x", N), (N, N))

    def over(fun):
        return _mapped(fun, mesh, manual, P("x"), axis_names={"x"})

    ours, theirs = (_compiled(over(f), operands) for f in (PRODUCT.op, jnp.matmul))
    _close(ours(*operands), theirs(*operands))
    assert not PRODUCT.seen
    counts = [collectives(each.as_text()) for each in (ours, theirs)]
    assert counts[0] == counts[1]


def test_a_wrong_rule_is_caught():
    """Rows whose softmax is taken in parts, as if that were the softmax's sum."""
    mesh = mesh_of(8, AxisType.Auto)
    check(WRONG, mesh, (("x", N),))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(WRONG, mesh, ((N, "x"),))


def test_without_a_rule_a_kernel_runs_on_what_is_whole():
    lone = probe("lone", lambda x: jnp.sin(x) * 2, ((8, 4),))
    mesh = mesh_of(4, AxisType.Auto)
    check(lone, mesh, (("x", N),), native=False)
    check(lone, mesh, ((N, N),))
