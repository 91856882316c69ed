"""The matrix product with its epilogue, and its gradients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lowering.kernels.agreement import (
    DTYPES,
    assert_agree,
    exact_cotangents,
    exactly,
)
from tests.lowering.kernels.pairwise import pairwise
from tilejax.errors import DTypeError, ParameterError, ShapeError
from tilejax.lowering.kernels.activations import ACTIVATIONS
from tilejax.lowering.kernels.matmul import MatmulConfig, matmul
from tilejax.lowering.kernels.matmul_backward import matmul_backward

CONFIG = MatmulConfig(8, 16, 8)
PLAIN = {
    "relu": jax.nn.relu,
    "maximum": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "exp": jnp.exp,
    None: lambda x: x,
}


def reference(activation=None, transpose_a=False, transpose_b=False, total=False):
    def f(a, b, bias, scale, residual):
        a = a.swapaxes(1, 2) if transpose_a else a
        b = b.swapaxes(1, 2) if transpose_b else b
        z = jnp.matmul(a, b, precision="highest")
        z = z.sum(0, keepdims=True) if total else z
        z = z if scale is None else z * scale
        z = PLAIN[activation](z if bias is None else z + bias)
        return z if residual is None else z + residual

    return f


def operands(
    rng, sizes, batches, dtype, *, transposes=(False, False), extras=""
) -> list[Any]:
    m, k, n = sizes
    shapes = [(k, m) if transposes[0] else (m, k), (n, k) if transposes[1] else (k, n)]
    batch = 0 if 0 in batches else max(batches)
    shapes = [(some, *shape) for some, shape in zip(batches, shapes, strict=True)]
    present = {"b": (n,), "s": (n,), "1": (1,), "r": (batch, m, n)}
    kinds = ("b", "1" if "1" in extras else "s", "r")
    shapes += [present[kind] if kind in extras else None for kind in kinds]
    return [
        None if shape is None else jnp.asarray(rng.normal(size=shape) * 0.5, dtype)
        for shape in shapes
    ]


def check(rng, given, *, activation=None, transposes=(False, False), interpret=True):
    params = {
        "activation": activation,
        "transpose_a": transposes[0],
        "transpose_b": transposes[1],
    }
    plain = reference(**params)
    dtype = given[0].dtype
    y = exactly(plain, *given)
    ct = jnp.asarray(rng.normal(size=y.shape), dtype)

    def kernels(given, ct):
        rest = {**params, "config": CONFIG, "interpret": interpret}
        back = functools.partial(matmul_backward, **rest)
        return matmul(*given, **rest), back(*given, ct)

    got, grads = jax.jit(kernels)(given, ct)
    assert got.dtype == dtype
    assert_agree(got, y, dtype, "y")
    wanted = exact_cotangents(plain, ct, *given)
    for name, x, grad, want in zip(
        ("a", "b", "bias", "scale", "residual"), given, grads, wanted, strict=True
    ):
        if x is None:
            assert grad is None
            continue
        assert grad.dtype == x.dtype
        assert_agree(grad, want, dtype, name)


CASES = pairwise(
    {
        "sizes": [(16, 16, 16), (13, 19, 21), (1, 7, 1), (3, 1, 5)],
        "batches": [(1, 1), (3, 1), (1, 3), (2, 2)],
        "dtype": DTYPES,
        "transposes": [(False, False), (True, False), (False, True), (True, True)],
        "extras": ["", "b", "b1r", "bsr"],
        "activation": [None, "gelu", "relu"],
    }
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_and_gradients_agree(rng, case):
    case = dict(case)
    activation = case.pop("activation")
    given = operands(rng, **case)
    check(rng, given, activation=activation, transposes=case["transposes"])


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_every_activation_has_the_value_and_slope_of_its_plain_form(rng, activation):
    given = operands(rng, (4, 5, 6), (1, 1), "float32", extras="b")
    check(rng, given, activation=activation)


@pytest.mark.usefixtures("x64")
def test_double_precision_is_kept(rng):
    turned = (True, False)
    given = operands(
        rng, (9, 10, 11), (2, 1), "float64", transposes=turned, extras="bsr"
    )
    check(rng, given, activation="silu", transposes=turned)


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
@pytest.mark.parametrize("extras", ["", "bsr"])
def test_empty_products_are_zeros_that_pass_through_the_epilogue(rng, sizes, extras):
    check(rng, operands(rng, sizes, (2, 1), "float32", extras=extras))


def test_no_batches_give_no_products_and_zero_gradients(rng):
    check(rng, operands(rng, (3, 4, 5), (0, 1), "float32", extras="bsr"))


def test_batches_are_summed_before_the_epilogue(rng):
    a, b, bias, scale, _ = operands(rng, (9, 10, 11), (3, 1), "float32", extras="bs")
    got = matmul(
        *(a, b, bias, scale),
        activation="silu",
        reduce_batch=True,
        config=CONFIG,
        interpret=True,
    )
    want = exactly(reference("silu", total=True), a, b, bias, scale, None)
    assert_agree(got, want, "float32")


def integers(rng, *shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def test_int8_is_summed_exactly_in_int32(rng):
    a, b = integers(rng, 2, 9, 40), integers(rng, 1, 17, 40)
    got = matmul(a, b, transpose_b=True, config=CONFIG, interpret=True)
    assert got.dtype == jnp.int32
    want = a.astype(np.int64) @ b.astype(np.int64).swapaxes(1, 2)
    np.testing.assert_array_equal(got, want)


def test_an_epilogue_after_an_integer_sum_is_in_float32(rng):
    a, b = integers(rng, 1, 9, 10), integers(rng, 1, 10, 17)
    scale = rng.normal(size=1).astype(np.float32)
    got = matmul(a, b, scale=scale, activation="gelu", config=CONFIG, interpret=True)
    assert got.dtype == jnp.float32
    given = (a.astype(np.float32), b.astype(np.float32), None, scale, None)
    assert_agree(got, exactly(reference("gelu"), *given), "float32")


def test_integer_weights_take_the_type_of_the_activations(rng):
    a = jnp.asarray(rng.normal(size=(1, 9, 10)), "bfloat16")
    b = integers(rng, 1, 10, 17)
    got = matmul(a, b, config=CONFIG, interpret=True)
    assert got.dtype == jnp.bfloat16
    want = exactly(reference(), a, b.astype(np.float32), None, None, None)
    assert_agree(got, want, "bfloat16")
    ct = jnp.ones_like(got)
    grads = matmul_backward(a, b, None, None, None, ct, config=CONFIG, interpret=True)
    assert grads[1] is None
    assert_agree(grads[0], np.asarray(ct, float) @ b[0].T, "bfloat16")


def test_result_type_and_precision_are_taken(rng):
    a, b, *_ = operands(rng, (9, 10, 11), (1, 1), "bfloat16")
    got = matmul(a, b, out_dtype="float32", config=CONFIG, interpret=True)
    assert got.dtype == jnp.float32
    assert_agree(got, exactly(reference(), a, b, None, None, None), "float32")
    a, b = a.astype("float32"), b.astype("float32")
    for precision in ("high", ("highest", "default"), jax.lax.Precision.DEFAULT):
        text = str(
            jax.make_jaxpr(
                lambda a, b, p=precision: matmul(a, b, precision=p, config=CONFIG)
            )(a, b)
        )
        expected = "DEFAULT" if precision is jax.lax.Precision.DEFAULT else "HIGHEST"
        assert f"Precision.{expected}" in text


def test_infinities_and_nan_stay_in_their_rows_and_columns(rng):
    a, b, *_ = operands(rng, (11, 10, 19), (1, 1), "float32")
    a, b = a.at[0, 2, 9].set(jnp.inf), b.at[0, 3, 4].set(jnp.nan)
    got = matmul(a, b, config=CONFIG, interpret=True)
    assert_agree(got, exactly(reference(), a, b, None, None, None), "float32")


def test_operands_that_do_not_fit_are_refused():
    a, b = jnp.ones((1, 2, 3)), jnp.ones((1, 4, 5))
    with pytest.raises(ShapeError, match=r"contract 3 with 4.*transpose_a=False"):
        matmul(a, b, config=CONFIG)
    with pytest.raises(ShapeError, match="three axes"):
        matmul(a[0], b, config=CONFIG)
    with pytest.raises(ShapeError, match="equal batches"):
        matmul(jnp.ones((2, 2, 3)), jnp.ones((3, 3, 5)), config=CONFIG)
    with pytest.raises(ShapeError, match=r"bias \[5\], got \[4\]"):
        matmul(a, jnp.ones((1, 3, 5)), jnp.ones(4), config=CONFIG)
    with pytest.raises(DTypeError, match="int32"):
        matmul(a.astype("int32"), jnp.ones((1, 3, 5)), config=CONFIG)
    with pytest.raises(ParameterError, match="'mish' is unknown; the table has relu"):
        matmul(a, jnp.ones((1, 3, 5)), activation="mish", config=CONFIG)
