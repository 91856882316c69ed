"""What is special to products: JAX's own bits, forms, types and policies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.ad_checkpoint import print_saved_residuals
from jax.sharding import AxisType, PartitionSpec as P

from tilejax.errors import DTypeError, ParameterError, ShapeError, ShardingError
from tilejax.lowering.kernels.activations import ACTIVATIONS as OF_KERNELS
from tilejax.primitives import factors, matmul_dims
from tilejax.primitives.activations import ACTIVATIONS
from tilejax.primitives.matmul import dot_general, from_dot_general, matmul, matmul_op

ROWS = (((1,), (0,)), ((), ()))


def _names(fun, *operands) -> list[str]:
    return [e.primitive.name for e in jax.make_jaxpr(fun)(*operands).eqns]


def _same_bits(got, want):
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@st.composite
def _forms(draw):
    """Operands' shapes, and any pairing of their dimensions."""
    sizes = st.lists(st.integers(0, 3), max_size=2)
    shared, summed, of_a, of_b = (draw(sizes) for _ in range(4))
    sides, numbers = [], []
    for free in (of_a, of_b):
        order = draw(st.permutations(range(len(shared) + len(summed) + len(free))))
        every = [*shared, *summed, *free]
        sides.append(tuple(every[i] for i in order))
        place = [order.index(i) for i in range(len(every))]
        numbers.append((place[: len(shared)], place[len(shared) :][: len(summed)]))
    (ab, ac), (bb, bc) = numbers
    return *sides, ((tuple(ac), tuple(bc)), (tuple(ab), tuple(bb)))


@settings(max_examples=15)
@given(_forms())
def test_any_pairing_of_dimensions_is_that_of_jax_and_has_a_factor_rule(form):
    left, right, numbers = form
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in (left, right))
    want = jax.lax.dot_general(a, b, numbers)
    _same_bits(dot_general(a, b, numbers), want)
    rule = factors.parse(
        matmul_dims.rule((a, b, None, None, None), {"activation": None, **_n(numbers)})
    )
    factors.check_sizes("matmul", rule, [left, right])
    sizes = dict(zip(sum(rule.operands, ()), left + right, strict=True))
    assert tuple(sizes[f] for f in rule.results[0]) == want.shape


def _n(numbers):
    return {"dimension_numbers": numbers}


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [
        ("int8", "int8", "int32"),
        ("int8", "int8", None),
        ("uint8", "int32", None),
        ("bool", "bool", None),
        ("complex64", "complex64", None),
        ("bfloat16", "float32", None),
        ("bfloat16", "bfloat16", "float32"),
        ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    ],
)
def test_every_dtype_is_that_of_jax(rng, a, b, wide):
    left, right = (jnp.asarray(rng.integers(-9, 9, (3, 3))) for _ in range(2))
    left, right = left.astype(a), right.astype(b)
    preferred = wide and jnp.dtype(wide)
    want = jax.lax.dot_general(left, right, ROWS, preferred_element_type=preferred)
    got = dot_general(left, right, ROWS, preferred_element_type=preferred)
    _same_bits(got, want)


def test_bytes_sum_up_in_int32(rng):
    a, b = (rng.integers(-128, 128, (40, 40), np.int8) for _ in range(2))
    got = dot_general(a, b, ROWS, preferred_element_type=np.int32)
    np.testing.assert_array_equal(got, a.astype(int) @ b.astype(int))


def test_a_precision_that_a_context_asks_for_is_kept():
    a = jnp.ones((2, 2))
    with jax.default_matmul_precision("highest"):
        (eqn,) = jax.make_jaxpr(lambda a: dot_general(a, a, ROWS))(a).eqns
        (own,) = jax.make_jaxpr(lambda a: jax.lax.dot_general(a, a, ROWS))(a).eqns
    assert own.params["precision"] is not None
    assert eqn.params["precision"] == own.params["precision"]


@pytest.mark.parametrize("name", [None, *ACTIVATIONS])
def test_the_epilogue_is_scale_bias_activation_residual_in_this_order(rng, name):
    a, b, bias, scale, residual = (
        rng.normal(size=s).astype(np.float32)
        for s in ((3, 4), (4, 5), (5,), (5,), (3, 5))
    )
    got = dot_general(
        a, b, ROWS, bias=bias, scale=scale, residual=residual, activation=name
    )
    z = np.matmul(a, b, dtype=np.float64) * scale + bias
    apply = {
        None: lambda z: z,
        "relu": lambda z: np.maximum(z, 0),
        "maximum": lambda z: np.maximum(z, 0),
        "gelu": lambda z: z * 0.5 * (1 + np.vectorize(_erf)(z / 2**0.5)),
        "gelu_tanh": lambda z: (
            z * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3)))
        ),
        "silu": lambda z: z / (1 + np.exp(-z)),
        "tanh": np.tanh,
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
        "exp": np.exp,
    }[name]
    np.testing.assert_allclose(got, apply(z) + residual, rtol=2e-5, atol=2e-5)


def _erf(x: float) -> float:
    import math

    return math.erf(x)


def test_kernels_know_the_same_activations():
    x = jnp.linspace(-3, 3, 13)
    assert set(ACTIVATIONS) == set(OF_KERNELS)
    for name, apply in ACTIVATIONS.items():
        np.testing.assert_allclose(apply(x), OF_KERNELS[name](x), rtol=1e-5, atol=1e-6)


def test_an_epilogue_of_small_floats_is_computed_in_f32():
    a, b = jnp.full((1, 1), 256, jnp.bfloat16), jnp.ones((1, 1), jnp.bfloat16)
    bias = jnp.ones(1, jnp.bfloat16)
    got = matmul(a, b, bias=bias, out_dtype=jnp.float32)
    assert got.item() == 257  # which bfloat16 has not
    assert matmul(a, b, bias=bias).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((3,), (4, 3, 2)),
        ((4, 2, 3), (3,)),
        ((4, 1, 2, 3), (5, 3, 2)),
        ((2, 3), (4, 3, 2)),
        ((0, 3), (3, 0)),
    ],
)
def test_matmul_broadcasts_as_numpy(rng, a, b):
    x, y = rng.normal(size=a), rng.normal(size=b)
    got = matmul(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(got, np.matmul(x, y), rtol=1e-5, atol=1e-5)


def test_matmul_promotes_two_dtypes():
    assert matmul(jnp.ones((2, 2), jnp.int8), jnp.ones((2, 2))).dtype == jnp.float32


def test_gradients_and_vmaps_are_products_again():
    a, b = jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))

    def product(a, b):
        return dot_general(a, b, ROWS)

    def plain(a, b):
        return jax.lax.dot_general(a, b, ROWS)

    for axes in ((0, 0), (0, None), (None, 0)):
        operands = [x if at == 0 else x[0] for x, at in zip((a, b), axes, strict=True)]
        names = _names(jax.vmap(product, axes), *operands)
        own = _names(jax.vmap(plain, axes), *operands)
        assert names == [n.replace("dot_general", "tiled_matmul") for n in own]
    pull = _names(
        lambda *xs: jax.vjp(jax.vmap(product), *xs[:2])[1](xs[2]), a, b, a @ b
    )
    assert pull.count("tiled_matmul") == 3
    assert "dot_general" not in pull


def test_a_scaled_product_is_linear_and_its_transposes_are_products():
    a, b, s = jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)
    names = _names(
        jax.grad(lambda *x: matmul(x[0], x[1], scale=x[2]).sum(), (0, 1, 2)), a, b, s
    )
    assert "tiled_matmul_jvp" not in names
    assert names.count("tiled_matmul") == 4  # forward, and one a gradient
    assert "dot_general" not in names


def test_the_backward_of_an_epilogue_is_made_of_products():
    x = jnp.ones((2, 2))

    def loss(a, b, bias):
        return matmul(a, b, bias=bias, activation="gelu").sum()

    from tilejax.primitives.call import Call
    from tilejax.primitives.parts import function

    eqns = jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(x, x, x[0]).eqns
    (pull,) = [e for e in eqns if e.primitive is matmul_op.backward_p]
    params = dict(pull.params)
    call = params.pop("call")
    assert isinstance(call, Call)
    body = function(matmul_op, "backward", call, params)
    names = _names(body, *(v.aval for v in pull.invars))
    assert names.count("tiled_matmul") == 3 and "dot_general" not in names


@pytest.mark.parametrize(
    "policy",
    ["dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable"],
)
def test_checkpoint_policies_see_a_dot(policy, capsys):
    a, b = jnp.ones((2, 3, 3)), jnp.ones((3, 3))
    batch = (((2,), (1,)), ((0,), (0,)))

    def saved(dot):
        def body(a, b):
            y = jnp.sin(dot(a, b, (((2,), (0,)), ((), ()))))
            return jnp.sin(dot(y, a, batch))

        wrapped = jax.checkpoint(body, policy=getattr(jax.checkpoint_policies, policy))
        print_saved_residuals(wrapped, a, b)
        text = capsys.readouterr().out
        return sorted(line.split()[0] for line in text.splitlines())

    assert saved(dot_general) == saved(jax.lax.dot_general)


def _explicit_mesh():
    return jax.make_mesh(
        (2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=jax.devices()[:4]
    )


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        (P("x", None), P(None, "y"), None),
        (P(None, "x"), P(None, "y"), None),
        (P("x", "y"), P("y", None), P("x", None)),
        (P("x", "y"), P("y", None), P("x", None, unreduced=frozenset({"y"}))),
        (P("x", None), P(None, None), P(None, "x")),
    ],
)
def test_explicit_types_and_gradients_are_those_of_jax(left, right, out):
    mesh = _explicit_mesh()

    def types(dot):
        found = []

        def run(a, b):
            y, pull = jax.vjp(lambda a, b: dot(a, b, ROWS, out_sharding=out), a, b)
            found.append(str(jax.typeof(y)))
            if out is None or not out.unreduced:
                found.extend(str(jax.typeof(g)) for g in pull(y))
            return y

        jax.jit(run).trace(a, b)
        return found

    with jax.set_mesh(mesh):
        a = jax.device_put(jnp.ones((4, 8)), left)
        b = jax.device_put(jnp.ones((8, 4)), right)
        assert types(dot_general) == types(jax.lax.dot_general)


def test_explicit_epilogues_keep_the_sharding_of_the_product():
    with jax.set_mesh(_explicit_mesh()):
        a = jax.device_put(jnp.ones((4, 8)), P("x", "y"))
        b = jax.device_put(jnp.ones((8, 4)), P("y", None))

        def loss(a, b):
            bias = jnp.ones(4)
            y = matmul(a, b, bias=bias, activation="tanh", out_sharding=P("x", None))
            assert jax.typeof(y).sharding.spec == P("x", None)
            return y.sum()

        da, db = jax.jit(jax.grad(loss, (0, 1)))(a, b)
        assert da.sharding.spec == P("x", "y")
        assert db.sharding.spec == P("y", None)


def test_gelu_by_erf_works_inside_shard_map():
    # on JAX 0.12 jax.nn.gelu itself does not: its polynomial wants all to vary
    mesh = jax.make_mesh((2,), ("x",), (AxisType.Auto,), devices=jax.devices()[:2])
    a, b = jnp.linspace(-1, 1, 8).reshape(4, 2), jnp.eye(2)

    def loss(a, b):
        return jnp.sin(matmul(a, b, bias=b[0], activation="gelu"))

    def part(a, b):
        return jax.lax.psum(loss(a, b).sum(), "x")

    sharded = jax.shard_map(part, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    got = jax.jit(jax.value_and_grad(sharded, (0, 1)))(a, b)
    want = jax.value_and_grad(lambda a, b: loss(a, b).sum(), (0, 1))(a, b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), got, want)


def test_an_ambiguous_sharding_is_refused_saying_what_to_pass():
    with jax.set_mesh(_explicit_mesh()):
        a = jax.device_put(jnp.ones((4, 8)), P(None, "x"))
        b = jax.device_put(jnp.ones((8, 4)), P("x", None))
        with pytest.raises(ShardingError, match=r"matmul.*out_sharding"):
            dot_general(a, b, ROWS)


ERRORS = [
    (ShapeError, r"last dimension of a, float32\[2,3\], is 3", ((2, 3), (2, 3)), {}),
    (ShapeError, r"do not broadcast", ((2, 1, 3), (4, 3, 2)), {"broken": True}),
    (ShapeError, r"scalars have no dimension", ((), (3,)), {}),
    (ShapeError, r"bias is float32\[3\].*\(2, 4\)", ((2, 3), (3, 4)), {"bias": (3,)}),
    (ShapeError, r"scale is float32\[2\]", ((2, 3), (3, 4)), {"scale": (2,)}),
    (ShapeError, r"residual is float32\[4\]", ((2, 3), (3, 4)), {"residual": (4,)}),
    (ShapeError, r"bias .* None", ((3,), (3,)), {"bias": (1,)}),
    (ParameterError, r"'mish' is unknown; it takes relu", ((2, 2),) * 2, {"act": 1}),
]


@pytest.mark.parametrize(("error", "says", "shapes", "extras"), ERRORS)
def test_operands_that_do_not_fit_are_named(error, says, shapes, extras):
    a, b = (jnp.ones(s) for s in shapes)
    if extras.get("broken"):
        a = jnp.ones((3, 2, 3))
    given = {k: jnp.ones(s) for k, s in extras.items() if isinstance(s, tuple)}
    with pytest.raises(error, match=says):
        matmul(a, b, activation="mish" if "act" in extras else None, **given)


def test_wrong_dimension_numbers_are_named():
    a = jnp.ones((2, 3))
    for numbers, says in [
        (((0,), (1,)), "must be"),
        ((((1,), ()), ((), ())), "go in pairs"),
        ((((2,), (0,)), ((), ())), "out of range"),
        ((((1,), (0,)), ((), ())), "has size 3, but dimension 0"),
    ]:
        with pytest.raises((ParameterError, ShapeError), match=says):
            dot_general(a, a, numbers)


def test_wrong_dtypes_are_named():
    a = jnp.ones((2, 2))
    with pytest.raises(DTypeError, match="bias is int32"):
        matmul(a, a, bias=jnp.ones(2, int))
    with pytest.raises(DTypeError, match="complex"):
        matmul(a * 1j, a * 1j, bias=jnp.ones(2))
    with pytest.raises(DTypeError, match="operand 0 is no array"):
        matmul(np.array(["a"]), a)
    with pytest.raises(ParameterError, match="preferred_element_type"):
        x = a.astype(int)
        dot_general(x, x, ROWS, preferred_element_type=jnp.int8)


def test_cost_counts_multiply_adds_and_the_epilogue():
    a, b = jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4), jnp.float32)
    params = (
        jax.make_jaxpr(
            lambda a, b: jax.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))
        )(a, b)
        .eqns[0]
        .params
    )
    op, own = from_dot_general(params)
    assert op is matmul_op
    cost = op.cost(a, b, **own)
    assert dict(cost.flops) == {"float32": 2 * 5 * 2 * 3 * 4}
    assert cost.bytes_read == 4 * (30 + 60) and cost.bytes_written == 4 * 40
    more = op.cost(a, b, jnp.ones(4), **{**own, "activation": "gelu"})
    assert more.transcendentals == 40 and sum(more.elementwise.values()) == 40


def test_the_rule_keeps_a_sum_whole_under_an_activation():
    a, b, bias = jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)
    params = {**_n(ROWS), "activation": None}
    assert matmul_dims.rule((a, b, None, None, None), params) == "m0 k0, k0 n0 -> m0 n0"
    rule = factors.parse(matmul_dims.rule((a, b, bias, None, None), params))
    assert rule.whole == {"k0"}
