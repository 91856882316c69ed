"""What no kernel takes, and how that is said."""

import jax
import jax.numpy as jnp

from tests.lowering.adapted import V5E, configs_of
from tests.lowering.uses import recorded
from tilejax import targets
from tilejax.primitives.attention import attention
from tilejax.primitives.conv import conv, conv_general_dilated
from tilejax.primitives.embedding import embedding
from tilejax.primitives.matmul import dot_general, matmul
from tilejax.primitives.norms import layer_norm
from tilejax.primitives.softmax import softmax


def _reason(fun, *operands, target: targets.Target = V5E) -> str:
    """Why the only use in a call has no kernel."""
    with recorded() as uses:
        fun(*operands)
    (use,) = uses
    found = configs_of(use, target)
    assert isinstance(found, str), found
    return found


def test_what_no_kernel_takes_is_said():
    ones = jnp.ones
    x = ones((2, 8, 8, 3))
    high = jax.lax.Precision.HIGH
    half = ones((4, 4), "float16")
    for want, fun, *operands in (
        ("take no float16", matmul, half, half),
        ("take no float16", softmax, half),
        ("take no float16", layer_norm, ones((4, 4)), half[0]),
        ("take no float16", embedding, half, ones(3, "int32")),
        ("complex64", matmul, *[ones((2, 2), "complex64")] * 2),
        ("int16", matmul, *[ones((2, 2), "int16")] * 2),
        ("bool", embedding, ones((2, 2), bool), ones(3, "int32")),
        ("int8 in int8", matmul, *[ones((2, 2), "int8")] * 2),
        ("float32 and int8", lambda a, b: dot_general(
            a, b, (((1,), (0,)), ((), ())), preferred_element_type="float32"
        ), ones((2, 2)), ones((2, 2), "int8")),
        ("along the rows", lambda a, b, c: matmul(a, b, bias=c), half.astype("f4"),
         ones(4), ones(4)),
        ("precision HIGH", lambda a: matmul(a, a, precision=high), ones((2, 2))),
        ("precision HIGH", lambda q: attention(q, q, q, precision=high), x),
        ("precision BF16_BF16_F32", lambda a: matmul(a, a, precision="BF16_BF16_F32"),
         ones((2, 2))),
        ("take no float16", lambda q, b: attention(q, q, q, b), x,
         ones((8, 8), "float16")),
        ("spatial", lambda x, w: conv_general_dilated(x, w, (), ()), half[:2], half),
        ("int8 in int8", conv, x.astype("int8"), ones((1, 1, 3, 2), "int8")),
        ("longer than", lambda x, w: conv(x, w, groups=2), ones((1, 99, 2)),
         ones((99, 1, 2))),
        ("complex64", conv, x.astype("complex64"), ones((1, 1, 3, 2), "complex64")),
    ):  # fmt: skip
        found = _reason(fun, *operands)
        assert want in found, f"{found!r} instead of {want!r}"


def test_no_kernel_mixes_wide_numbers_with_narrow_ones(x64):
    ones = jnp.ones
    for want, fun, *operands in (
        ("take no float64", softmax, ones((2, 2), "float64")),
        ("take no float64", lambda a, b: matmul(a, a, bias=b), ones((2, 2), "float32"),
         ones(2, "float64")),
        ("64 bits", lambda q, s: attention(q, q, q, q_segments=s, kv_segments=s),
         ones((2, 1, 8, 4), "float32"), ones((2, 8), "int64")),
        ("int64", embedding, ones((2, 2), "int64"), ones(2, "int32")),
    ):  # fmt: skip
        found = _reason(fun, *operands)
        assert want in found, f"{found!r} instead of {want!r}"
    h100 = targets.get("gpu:h100")
    operands = ones((2, 2), "float32"), ones(2, "float64")
    found = _reason(lambda a, b: matmul(a, a, bias=b), *operands, target=h100)
    assert "mixes float32 and float64" in found
