"""Cases of the product over chosen dimensions, plain and with an epilogue."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.matmul import dot_general, matmul


def _normal(*shapes):
    return lambda rng: [rng.normal(size=shape) for shape in shapes]


def _finished(a, b, *extras, activation, names):
    given = dict(zip(names, extras, strict=True))
    return matmul(a, b, activation=activation, **given)


def _plainly(a, b, *extras, activation, names):
    given = dict(zip(names, extras, strict=True))
    z = jnp.matmul(a, b)
    if "scale" in given:
        z = z * given["scale"]
    if "bias" in given:
        z = z + given["bias"]
    apply = {
        None: lambda x: x,
        "relu": jax.nn.relu,
        "gelu_tanh": jax.nn.gelu,
        "silu": jax.nn.silu,
    }[activation]
    z = apply(z)
    return z + given["residual"] if "residual" in given else z


def _epilogue(name, shapes, activation, *names, **more):
    return Case(
        f"matmul {name}",
        _finished,
        _plainly,
        _normal(*shapes),
        params={"activation": activation, "names": names},
        **more,
    )


def _scaled(a, b, scale, bias):
    return matmul(a, b, scale=scale, bias=bias)


def _plainly_scaled(a, b, scale, bias):
    total = jax.lax.dot(a, b, preferred_element_type=jnp.int32)
    wide = jnp.promote_types(scale.dtype, jnp.float32)
    return total.astype(wide) * scale.astype(wide) + bias.astype(wide)


def _bytes(rng):
    a, b = (rng.integers(-8, 9, s, np.int8) for s in ((3, 5), (5, 4)))
    return [a, b, rng.uniform(0.01, 0.02, 4), rng.normal(size=4)]


# Gradients of bias and scale are summed in f32, so over several devices XLA cannot
# merge their all-reduce with that of a smaller dtype, as it does for the reference.
_LARGE = ("float32", "float64")

_MATMUL = {"fun": matmul, "reference": jnp.matmul, "oracle": np.matmul}
_DOT = {"fun": dot_general, "reference": jax.lax.dot_general}

CASES = [
    Case(
        "matmul rows by columns",
        **_MATMUL,
        make=_normal((8, 4), (4, 8)),
        layouts=(
            (("x", None), (None, "y")),
            ((None, "x"), ("x", None)),
            ((("x", "y"), None), (None, None)),
        ),
        local=(0, 2),
    ),
    Case(
        "matmul of two sums in a batch",
        **_DOT,
        make=_normal((3, 2, 5, 4), (2, 5, 6, 3)),
        params={"dimension_numbers": (((0, 2), (3, 1)), ((1,), (0,)))},
        layouts=(((None, "y", None, "x"), ("y", None, None, None)),),
    ),
    Case(
        "matmul of stacks that broadcast",
        **_MATMUL,
        make=_normal((2, 1, 3, 4), (5, 4, 3)),
    ),
    _epilogue(
        "finished",
        ((4, 6), (6, 8), (8,), (), (4, 8)),
        "gelu_tanh",
        *("bias", "scale", "residual"),
        layouts=(
            (("x", None), (None, "y"), ("y",), (), ("x", "y")),
            ((None, None), (None, "x"), ("x",), (), (None, "x")),
        ),
        dtypes=_LARGE,
    ),
    _epilogue(
        "with bias and scale",
        ((3, 4, 5), (5, 7), (7,), (7,)),
        "silu",
        *("bias", "scale"),
    ),
    _epilogue(
        "scaled",
        ((4, 6), (6, 8), (8,)),
        None,
        "scale",
        layouts=((("x", None), (None, "y"), ("y",)),),
        dtypes=_LARGE,
    ),
    Case(
        "matmul of bytes",
        _scaled,
        _plainly_scaled,
        _bytes,
        moving=(2, 3),
        tolerance={"bfloat16": 1e-2},
    ),
    Case("matmul of vectors", **_MATMUL, make=_normal((5,), (5,)), thin=True),
    Case("matmul of a vector", **_MATMUL, make=_normal((5,), (2, 5, 3)), thin=True),
    Case("matmul of nothing", **_MATMUL, make=_normal((3, 0), (0, 2)), thin=True),
    _epilogue("without rows", ((0, 3), (3, 2), (2,)), "relu", "bias", thin=True),
    Case("matmul of ones", **_MATMUL, make=_normal((1, 1), (1, 1)), thin=True),
    Case(
        "matmul without a sum",
        **_DOT,
        make=_normal((2, 3), (4,)),
        params={"dimension_numbers": (((), ()), ((), ()))},
        thin=True,
    ),
]
