"""`tilejax.register_op`: what follows from a declaration, and what is wrong in one."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tilejax
from tilejax import errors
from tilejax.ir import walk
from tilejax.targets import Cost

NUMBERS = itertools.count()


def register(reference, **declared):
    """Register under a name of its own, since names are for good."""
    return tilejax.register_op(
        f"test_op_{next(NUMBERS)}", reference=reference, **declared
    )


def scaled(x, w, *, power=1):
    return jnp.sin(x) * w**power


def scaled_backward(operands, saved, cotangents, *, power=1):
    (x, w), (g,) = operands, cotangents
    dw = jnp.sin(x) * power * w ** (power - 1)
    return g * jnp.cos(x) * w**power, jnp.sum(g * dw, 0)


X, W = jnp.arange(24.0).reshape(6, 4) / 9, jnp.arange(1.0, 5.0)
DECLARED = {"sharding": "m n, n -> m n", "dtypes": ("float32", "bfloat16")}


@pytest.fixture(scope="module", params=["own", "reference's"])
def op(request):
    backward = scaled_backward if request.param == "own" else None
    return register(scaled, backward=backward, **DECLARED)


WAYS = {
    "a call": lambda f: f(X, W, power=2),
    "jit": lambda f: jax.jit(lambda x, w: f(x, w, power=3))(X, W),
    "tilejax.jit": lambda f: tilejax.jit(lambda x, w: f(x, w, power=3))(X, W),
    "grad": lambda f: jax.grad(lambda x, w: jnp.sum(f(x, w, power=2) ** 2), (0, 1))(
        X, W
    ),
    "jvp": lambda f: jax.jvp(lambda x, w: f(x, w, power=2), (X, W), (X + 1, W)),
    "linearize": lambda f: jax.linearize(lambda x: f(x, W, power=2), X)[1](X),
    "hessian": lambda f: jax.hessian(lambda w: jnp.sum(f(X, w, power=2) ** 2))(W),
    "jacfwd": lambda f: jax.jacfwd(lambda w: f(X[:2], w, power=2))(W),
    "vmap": lambda f: jax.vmap(lambda x: f(x, W, power=2))(jnp.stack([X, -X])),
    "vmap of both": lambda f: jax.vmap(lambda x, w: f(x, w, power=2), (1, 0))(
        jnp.stack([X, -X], 1), jnp.stack([W, 2 * W])
    ),
    "grad of vmap": lambda f: jax.grad(
        lambda w: jnp.sum(jax.vmap(lambda x: f(x, w, power=2))(jnp.stack([X, -X])) ** 2)
    )(W),
    "vmap of grad": lambda f: jax.vmap(
        jax.grad(lambda w, x: jnp.sum(f(x, w, power=2))), (None, 0)
    )(W, jnp.stack([X, -X])),
    "scan": lambda f: jax.lax.scan(lambda c, _: (f(c, W, power=1), c), X, length=3),
    "checkpoint": lambda f: jax.grad(
        jax.checkpoint(lambda x: jnp.sum(f(x, W, power=2)))
    )(X),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_operation_does_what_its_reference_does_under(way, op):
    got, want = WAYS[way](op), WAYS[way](scaled)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_an_operation_is_sharded_as_its_reference_is(kind, op, eight_devices):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(kind,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("a", "b")))
        w = jax.device_put(W, NamedSharding(mesh, P("b")))
        for f in (op, jax.jit(op)):
            got, want = f(x, w), scaled(x, w)
            assert got.sharding.is_equivalent_to(want.sharding, 2)
            np.testing.assert_allclose(got, want, rtol=1e-6)
        assert "all-gather" not in str(jax.jit(op).lower(x, w).compile().as_text())


def test_an_operation_runs_over_manual_axes(op, eight_devices):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def loss(f):
        inner = jax.shard_map(
            f, mesh=mesh, in_specs=(P("a", "b"), P("b")), out_specs=P("a", "b")
        )
        return jax.grad(lambda x, w: jnp.sum(inner(x, w) ** 2), (0, 1))

    got, want = jax.jit(loss(op))(X, W), jax.jit(loss(scaled))(X, W)
    for g, v in zip(got, want, strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-5)


def test_integer_operands_have_no_gradient():
    op = register(lambda x, i: x[i], sharding="v! n, i -> i n")
    ids = jnp.array([0, 3, 3])
    got = jax.grad(lambda x: jnp.sum(op(x, ids) ** 2))(X)
    want = jax.grad(lambda x: jnp.sum(x[ids] ** 2))(X)
    np.testing.assert_allclose(got, want)


def test_several_results_come_as_a_tuple_with_all_derivatives():
    def both(x):
        return jnp.sum(x, 1), jnp.sin(x)

    op = register(both, sharding="m n -> m, m n")
    total, wave = op(X)
    np.testing.assert_allclose(total, both(X)[0])

    def slopes(f):
        return jax.vjp(lambda x: f(x), X)[1]((jnp.arange(6.0), X))

    np.testing.assert_allclose(slopes(op)[0], slopes(both)[0], rtol=1e-6)
    assert wave.shape == X.shape


def test_a_saved_result_reaches_the_backward():
    def exp_backward(operands, saved, cotangents):
        return (saved[0] * cotangents[0],)

    op = register(jnp.exp, sharding="... -> ...", backward=exp_backward, saves=(0,))
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(op(x)))(X), jnp.exp(X))


def test_an_operand_may_be_left_out():
    def shifted(x, by):
        return x if by is None else x + by

    def rule(types, params):
        return "n -> n" if types[1] is None else "n, n -> n"

    op = register(shifted, sharding=rule)
    assert op(W, None).tolist() == W.tolist()
    assert op(W, W).tolist() == (2 * W).tolist()
    assert jax.grad(lambda x: jnp.sum(op(x, None)))(W).tolist() == [1.0] * 4


def test_a_kernel_is_for_its_target_and_the_reference_for_the_others():
    seen = []

    def configs(target, x, w, *, power):
        seen.append((target.name, x.shape, power))
        return [Rows(8), Rows(4)]

    op = register(
        scaled, kernels={"tpu": lambda *a, config, power: 0}, config_space=configs
    )
    (kernel,) = tilejax.explain(op, X, W, power=2, target="tpu:v6e").kernels
    assert (kernel.impl, kernel.config) == ("native", Rows(8))
    assert seen == [("tpu:v6e", (6, 4), 2)]
    (kernel,) = tilejax.explain(op, X, W, power=2, target="gpu:h100").kernels
    assert kernel.impl == "reference"


def test_a_kernel_runs_on_this_device_forward_and_backward():
    def forward(x, w, *, power):
        return scaled(x, w, power=power) + 100

    def backward(operands, saved, cotangents, *, power):
        return [
            10 * g for g in scaled_backward(operands, saved, cotangents, power=power)
        ]

    op = register(
        scaled,
        sharding="m n, n -> m n",
        backward=scaled_backward,
        kernels={"cpu": forward},
        backward_kernels={"cpu": backward},
    )
    got = jax.jit(lambda x: op(x, W, power=1))(X)
    np.testing.assert_allclose(got, scaled(X, W) + 100, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(op(x, W, power=1))))(X)
    np.testing.assert_allclose(slope, 10 * jnp.cos(X) * W, rtol=1e-5, atol=1e-5)
    many = jax.jit(jax.vmap(lambda x: op(x, W, power=1)))(jnp.stack([X, -X]))
    np.testing.assert_allclose(many[1], scaled(-X, W) + 100, rtol=1e-6)


def test_a_reason_for_no_config_is_passed_on():
    op = register(
        scaled, kernels={"tpu": scaled}, config_space=lambda *a, **k: "too small to pay"
    )
    (kernel,) = tilejax.explain(op, X, W, power=2, target="tpu:v6e").kernels
    assert (kernel.impl, kernel.reason) == ("reference", "too small to pay")


@dataclass(frozen=True)
class Rows:
    rows: int


@pytest.mark.parametrize("config", [256, Rows(8), {"rows": 8}, (8, 128)], ids=str)
def test_configs_of_any_kind_are_shown(config):
    op = register(scaled, kernels={"tpu": scaled}, config_space=[config])
    found = tilejax.explain(op, X, W, power=2, target="tpu:v6e")
    json.dumps(found.to_dict())
    assert "native" in str(found) and "8" in str(found)


def test_a_cost_is_what_explain_shows():
    op = register(scaled, cost=lambda x, w, *, power: Cost({"float32": 77.0}))
    (kernel,) = tilejax.explain(op, X, W, power=2).kernels
    assert kernel.flops == 77


def test_an_operation_stays_one_equation():
    op = register(scaled, sharding="m n, n -> m n")
    after = tilejax.jit(lambda x, w: op(x, w, power=2)).tile(X, W).after
    assert [v.eqn.primitive.name for v in walk(after)] == [f"tiled_{op.name}"]


def plain(x):
    return x * 2


register_op: Any = tilejax.register_op  # which the wrong calls below are for
DECLARATIONS = {
    "no string": (lambda: register_op(3, reference=plain), "must be a string"),
    "no identifier": (lambda: register_op("a b", reference=plain), "'a b'"),
    "no function": (lambda: register(None), "reference= must be a function"),
    "a rule that cannot be read": (
        lambda: register(plain, sharding="m k, k n"),
        "test_op_.*exactly one '->'",
    ),
    "a rule with an unknown result": (
        lambda: register(plain, sharding="m -> n"),
        r"\['n'\] appear in a result",
    ),
    "a rule that repeats": (lambda: register(plain, sharding="m m -> m"), "twice"),
    "a rule that is no rule": (lambda: register(plain, sharding=3), "sharding="),
    "kernels in a list": (lambda: register(plain, kernels=[plain]), "dict"),
    "a kernel that is no function": (lambda: register(plain, kernels={"tpu": 3}), "3"),
    "a backward that is no function": (
        lambda: register(plain, backward=3),
        "backward=",
    ),
    "configs that are none": (
        lambda: register(plain, kernels={"tpu": plain}, config_space=3),
        "config_space=",
    ),
    "one string of dtypes": (lambda: register(plain, dtypes="float32"), "dtypes="),
    "an unknown dtype": (lambda: register(plain, dtypes=["float33"]), "float33"),
}


@pytest.mark.parametrize("case", DECLARATIONS)
def test_a_declaration_is_refused_with(case):
    declare, message = DECLARATIONS[case]
    with pytest.raises(errors.DeclarationError, match=message):
        declare()


def test_a_name_is_taken_once():
    register_op("test_op_taken", reference=plain)
    with pytest.raises(errors.DeclarationError, match=r"test_op_taken.*already"):
        register_op("test_op_taken", reference=plain)
    with pytest.raises(errors.DeclarationError, match=r"softmax.*already"):
        register_op("softmax", reference=plain)


def test_a_refused_declaration_takes_no_name():
    with pytest.raises(errors.TargetError, match="abacus"):
        register_op("test_op_second_try", reference=plain, kernels={"abacus": plain})
    with pytest.raises(errors.DeclarationError):
        register_op("test_op_second_try", reference=plain, kernels={"tpu": 3})
    op = register_op("test_op_second_try", reference=plain)
    assert op(W).tolist() == (2 * W).tolist()


def gradients(returned):
    op = register(lambda x, y: x * y, backward=lambda operands, saved, cts: returned)
    return lambda: jax.grad(lambda x: jnp.sum(op(x, x)))(W)


LATE = {
    "too few gradients": (gradients((W,)), "1 gradients for 2 operands"),
    "a gradient of another shape": (
        gradients((W, jnp.ones(7))),
        r"shape \(7,\) for operand 1 of shape \(4,\)",
    ),
    "a gradient that is no array": (gradients((W, "w")), "returned 'w' for operand 1"),
    "no gradients at all": (gradients(None), "returned NoneType, not a tuple"),
    "a kernel with a result of another shape": (
        lambda: register(plain, kernels={"cpu": lambda x: x[0]})(W),
        r"kernel returned float32\[\], but its reference float32\[4\]",
    ),
    "a kernel with a result of another dtype": (
        lambda: jax.jit(
            register(plain, kernels={"cpu": lambda x: x.astype(jnp.float16)})
        )(W),
        r"kernel returned float16\[4\], but its reference float32\[4\]",
    ),
    "a kernel with a result too many": (
        lambda: register(plain, kernels={"cpu": lambda x: (x, x)})(W),
        r"kernel returned float32\[4\], float32\[4\], but its reference float32\[4\]",
    ),
    "a kernel with no result": (
        lambda: register(plain, kernels={"cpu": lambda x: None})(W),
        "kernel returned None",
    ),
    "no results": (lambda: register(lambda x: None)(W), "returns None"),
    "a saved result that is none": (
        lambda: register(plain, saves=(4,))(W),
        r"saves=\(4,\).*1 arrays",
    ),
    "a rule of other ranks": (
        lambda: register(lambda x: x @ x.T, sharding="m k -> m")(X),
        r"'m k -> m'.*float32\[6,6\]",
    ),
    "a rule with a result too few": (
        lambda: register(lambda x: (x, x), sharding="m k -> m k")(X),
        "does not fit the results",
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_a_declaration_is_refused_at_its_first_use_with(case):
    use, message = LATE[case]
    with pytest.raises(errors.DeclarationError, match=f"test_op_.*{message}"):
        use()


CALLS = {
    "an array for a parameter": (
        lambda op: op(X, W, power=np.ones(2)),
        errors.ParameterError,
        "pass arrays as operands",
    ),
    "a traced parameter": (
        lambda op: jax.jit(lambda p: op(X, W, power=p))(2),
        errors.ParameterError,
        "static",
    ),
    "an unknown parameter": (
        lambda op: op(X, W, force=1),
        errors.ShapeError,
        "unexpected keyword argument 'force'",
    ),
    "named call": (lambda op: op(X, W, call=1), errors.ParameterError, "'call'"),
    "a string array": (
        lambda op: op(np.array(["a"]), W),
        errors.DTypeError,
        "operand 0",
    ),
    "an object": (lambda op: op(object(), W), errors.DTypeError, "operand 0"),
    "another dtype": (
        lambda op: op(X, W.astype(jnp.int32)),
        errors.DTypeError,
        r"operand 1 is int32\[4\]; it takes float32, bfloat16",
    ),
    "another rank": (lambda op: op(X[0], W), errors.ShapeError, "rank 1"),
    "sizes that disagree": (
        lambda op: op(X, W[:3]),
        errors.ShapeError,
        r"'n' is 4 in operand 0 \(shape \(6, 4\)\) but 3 in operand 1",
    ),
    "too few operands": (lambda op: op(X), errors.ShapeError, "2 operands, but 1"),
    "too many operands": (
        lambda op: op(X, W, W),
        errors.ShapeError,
        "2 operands, but 3",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_refused_with(case, op):
    call, kind, message = CALLS[case]
    with pytest.raises(kind, match=f"{op.name}.*{message}"):
        call(op)


def test_sharded_operands_need_a_rule(eight_devices):
    op = register(scaled)
    mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("a")))
        with pytest.raises(errors.ShardingError, match=op.name):
            op(x, jnp.ones(4), power=1)
