"""What follows a product goes into it, where that means the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tilejax
from tests.passes.raising import check_same
from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text, verify, walk
from tilejax.passes import spelled
from tilejax.passes.fuse import fuse_epilogues
from tilejax.passes.pipeline import run


def numbers(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


A, B, BIAS, MORE = numbers(6, 5), numbers(5, 4), numbers(4), numbers(6, 4, seed=1)
OPERANDS = (A, B, BIAS, MORE)


def fused(fn, *args, **options):
    """The epilogues of a function's products: operands that are there, activation."""
    program, _ = run(trace(fn, *args)[0], **options)
    verify(program, name="the passes")
    assert as_text(run(program, **options)[0]) == as_text(program)
    found = []
    for visit in walk(program):
        if visit.eqn.primitive.name == "tiled_matmul":
            given = visit.eqn.params["call"].given[2:]
            names = zip("bsr", given, strict=True)
            text = "".join(name for name, is_there in names if is_there)
            cast = visit.eqn.params["out_dtype"]
            parts = (text, visit.eqn.params["activation"], cast and cast.name)
            found.append(" ".join(part for part in parts if part))
    return found


def hand_gelu(x):
    return 0.5 * x * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FUSED = {
    "a bias": (lambda a, b, c, r: a @ b + c, "b"),
    "a bias in front": (lambda a, b, c, r: c + a @ b, "b"),
    "a bias with a dimension": (lambda a, b, c, r: a @ b + c[None], "b"),
    "one number": (lambda a, b, c, r: a @ b + 2.0, "b"),
    "a scale": (lambda a, b, c, r: (a @ b) * c, "s"),
    "a number as scale": (lambda a, b, c, r: 0.5 * (a @ b), "s"),
    "a traced number as scale": (lambda a, b, c, r: c[0] * (a @ b) + c, "bs"),
    "a residual": (lambda a, b, c, r: r + a @ b, "r"),
    "relu": (lambda a, b, c, r: jax.nn.relu(a @ b + c), "b relu"),
    "a maximum": (lambda a, b, c, r: jnp.maximum(0.0, a @ b + c), "b maximum"),
    "gelu by tanh": (lambda a, b, c, r: jax.nn.gelu(a @ b + c), "b gelu_tanh"),
    "gelu": (lambda a, b, c, r: jax.nn.gelu(a @ b, approximate=False), "gelu"),
    "gelu by hand": (lambda a, b, c, r: hand_gelu(a @ b + c), "b gelu_tanh"),
    "silu": (lambda a, b, c, r: jax.nn.silu(a @ b + c), "b silu"),
    "silu by hand": (
        lambda a, b, c, r: (lambda z: z * jax.nn.sigmoid(z))(a @ b),
        "silu",
    ),
    "tanh": (lambda a, b, c, r: jnp.tanh(a @ b), "tanh"),
    "sigmoid": (lambda a, b, c, r: jax.nn.sigmoid(a @ b), "sigmoid"),
    "exp": (lambda a, b, c, r: jnp.exp(0.1 * (a @ b)), "s exp"),
    "all": (lambda a, b, c, r: jnp.tanh((a @ b) * c + c) + r, "bsr tanh"),
    "a cast": (lambda a, b, c, r: (a @ b + c).astype(jnp.bfloat16), "b bfloat16"),
    "a residual that is cast": (
        lambda a, b, c, r: a @ b + r.astype(jnp.bfloat16).astype(jnp.float32),
        "r",
    ),
    "a reshape between": (lambda a, b, c, r: (a @ b).reshape(2, 3, 4) + c, "b"),
    "a reshape and a residual": (
        lambda a, b, c, r: (a @ b).reshape(2, 3, 4) + c + r.reshape(2, 3, 4),
        "br",
    ),
    "a transpose before the bias": (lambda a, b, c, r: (a @ b).T + a[:, 0], "b"),
    "a vector": (lambda a, b, c, r: jax.nn.relu(a[0] @ b + c), "b relu"),
    "three dimensions": (lambda a, b, c, r: a.reshape(2, 3, 5) @ b + c, "b"),
}


@pytest.mark.parametrize("case", FUSED)
def test_a_product_takes(case):
    fn, parts = FUSED[case]
    assert fused(fn, *OPERANDS) == [parts]
    check_same(fn, *OPERANDS, tolerance=2e-2 if "bfloat16" in parts else 1e-5)


@jax.custom_jvp
def straight_through(x):
    return jnp.maximum(x, 0.0)


straight_through.defjvp(lambda p, t: (straight_through(*p), t[0]))

NEAR = {
    "a sum that is read again": (lambda a, b, c, r: (lambda z: (z + c, z))(a @ b), ""),
    "a sum that is read twice": (lambda a, b, c, r: (lambda z: (z + c) * z)(a @ b), ""),
    "a bias of the rows": (lambda a, b, c, r: a @ b + r[:, :1], ""),
    "a relu before the bias": (lambda a, b, c, r: jax.nn.relu(a @ b) + c, "relu"),
    "a residual before the relu": (lambda a, b, c, r: jax.nn.relu(a @ b + r), "r"),
    "a residual before the bias": (lambda a, b, c, r: a @ b + r + c, "r"),
    "a bias before the scale": (lambda a, b, c, r: (a @ b + c) * 2.0, "b"),
    "two activations": (lambda a, b, c, r: jnp.tanh(jax.nn.relu(a @ b)), "relu"),
    "two scales": (lambda a, b, c, r: (a @ b) * c * r[0], "s"),
    "a gate": (lambda a, b, c, r: (a @ b) * r, ""),
    "a square": (lambda a, b, c, r: jnp.square(a @ b), ""),
    "the sum added to itself": (lambda a, b, c, r: (lambda z: z + z)(a @ b), ""),
    "a difference": (lambda a, b, c, r: c - a @ b, ""),
    "another threshold": (lambda a, b, c, r: jnp.maximum(a @ b, 0.1), ""),
    "a leaky relu": (lambda a, b, c, r: jax.nn.leaky_relu(a @ b), ""),
    "relu with another slope": (lambda a, b, c, r: straight_through(a @ b), ""),
    "gelu with another constant": (
        lambda a, b, c, r: (
            lambda x: 0.5 * x * (1 + jnp.tanh(0.8 * (x + 0.044715 * x**3)))
        )(a @ b),
        "",
    ),
    "a step of gelu that is read": (
        lambda a, b, c, r: (lambda x: (x * jax.nn.sigmoid(x), jax.nn.sigmoid(x)))(
            a @ b
        ),
        "",
    ),
    "gelu by erf": (
        lambda a, b, c, r: (lambda x: 0.5 * x * (1 + lax.erf(x / np.sqrt(2.0))))(a @ b),
        "",
    ),
    "a reshape of the columns": (
        lambda a, b, c, r: (a @ b).reshape(6, 2, 2) + c[:2],
        "",
    ),
    "a slice before the bias": (lambda a, b, c, r: (a @ b)[:3] + c, ""),
    "a cast there and back": (
        lambda a, b, c, r: (a @ b).astype(jnp.bfloat16).astype(jnp.float32) + c,
        "bfloat16",
    ),
    "integers": (
        lambda a, b, c, r: (a.astype(int) @ b.astype(int) + 1).astype(jnp.float32),
        "",
    ),
    "roundings in between": (
        lambda a, b, c, r: (
            a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)
            + c.astype(jnp.bfloat16)
            + r.astype(jnp.bfloat16)
        ),
        "",
    ),
    "a cast before the bias": (
        lambda a, b, c, r: (a @ b).astype(jnp.bfloat16) + c.astype(jnp.bfloat16),
        "",
    ),
}


@pytest.mark.parametrize("case", NEAR)
def test_a_near_miss_keeps_its_value(case):
    fn, parts = NEAR[case]
    assert fused(fn, *OPERANDS) == [parts]
    narrow = "rounding" in case or "cast" in case
    check_same(fn, *OPERANDS, tolerance=2e-2 if narrow else 1e-5)


def half(fn):
    return lambda *xs: fn(*(x.astype(jnp.bfloat16) for x in xs))


def test_a_narrow_sum_is_rounded_before_its_epilogue():
    biased = half(lambda a, b, c, r: jax.nn.relu(a @ b + c))
    both = half(lambda a, b, c, r: a @ b + c + r)
    widened = half(lambda a, b, c, r: (a @ b).astype(jnp.float32) + c)
    for fn, parts in ((biased, "b relu"), (both, "br"), (widened, "b float32")):
        assert fused(fn, *OPERANDS) == [""]
        assert fused(fn, *OPERANDS, fast_math=True) == [parts]


def test_a_sum_that_is_too_large_for_its_type_is_infinite():
    a = jnp.full((512, 512), 20, jnp.float16)
    bias = jnp.full(512, -60000, jnp.float16)
    found = tilejax.jit(lambda a, b, c: jax.nn.relu(a @ b + c))(a, a / 2, bias)
    assert np.isposinf(np.asarray(found)).all()


def test_a_wide_sum_of_narrow_operands_is_finished_wide():
    def fn(a, b, c, r):
        z = lax.dot(a, b, preferred_element_type=jnp.float32)
        return (jax.nn.gelu(z + c.astype(jnp.float32)) + r).astype(jnp.bfloat16)

    assert fused(half(fn), *OPERANDS) == ["br gelu_tanh bfloat16"]
    check_same(half(fn), *OPERANDS, tolerance=2e-2)


def test_integers_are_scaled_back():
    a, b = ((x * 40).astype(jnp.int8) for x in (A, B))

    def fn(a, b, s, c):
        z = lax.dot(a, b, preferred_element_type=jnp.int32)
        return z.astype(jnp.float32) * s + c

    scale = numbers(4, seed=3)
    assert fused(fn, a, b, scale, BIAS) == ["bs"]
    check_same(fn, a, b, scale, BIAS)


def test_fast_math_takes_other_spellings():
    fn, _ = NEAR["gelu by erf"]
    assert fused(fn, *OPERANDS, fast_math=True) == ["gelu"]


def test_the_slope_at_zero_is_that_of_the_spelling():
    zero = (jnp.zeros((2, 2)), jnp.eye(2))
    for fn, slope in ((jax.nn.relu, 0.0), (lambda z: jnp.maximum(z, 0), 0.5)):
        program = tilejax.jit(lambda a, b, fn=fn: fn(a @ b))
        grad = jax.grad(lambda a, b, f=program: f(a, b).sum())(*zero)
        assert np.array_equal(grad, np.full((2, 2), slope))


def test_what_is_fused_is_differentiated_without_a_product_more():
    def products(jit):
        f = jit(lambda a, b, c: jax.nn.gelu(a @ b + c))
        grad = jax.grad(lambda *x: (f(*x) ** 2).sum(), (0, 1, 2))
        return jax.jit(grad).lower(A, B, BIAS).as_text().count("dot_general")

    with tilejax.options(kernels="reference"):
        assert products(tilejax.jit) == products(jax.jit) == 3


def test_a_gradient_inside_keeps_the_sum_that_it_reads():
    def step(a, b, c, r):
        def loss(b, c):
            return (jax.nn.gelu(a @ b + c) * r).sum()

        return jax.grad(loss, (0, 1))(b, c)

    # the bias goes in; what is read by the derivative comes out
    assert fused(step, *OPERANDS) == ["b", ""]
    check_same(step, *OPERANDS, grad=False)


def test_a_second_product_takes_the_first_as_its_residual():
    assert sorted(fused(lambda a, b, c, r: a @ b + r @ b.T[:4, :4], *OPERANDS)) == [
        "",
        "r",
    ]
    check_same(lambda a, b, c, r: a @ b + r @ b.T[:4, :4], *OPERANDS)


def test_a_product_with_an_epilogue_takes_what_is_still_free():
    from tilejax.primitives import matmul

    def fn(a, b, c, r):
        return jnp.tanh(matmul(a, b, bias=c)) + r

    assert fused(fn, *OPERANDS) == ["br tanh"]
    check_same(fn, *OPERANDS)


def test_a_wide_sum_stays_wide_where_an_epilogue_grows():
    from tilejax.primitives import matmul

    a, b = jnp.full((1, 2), 256, jnp.bfloat16), jnp.ones((2, 1), jnp.bfloat16)
    bias = jnp.full(1, -511, jnp.bfloat16)

    def fn(a, b, bias):
        return jax.nn.relu(matmul(a, b + jnp.bfloat16(0.0078125), bias=bias))

    assert fused(fn, a, b, bias, fast_math=True) == ["b relu"]
    assert np.array_equal(tilejax.jit(fn)(a, b, bias), fn(a, b, bias))


def test_what_the_model_says_is_slower_is_left():
    def seconds(eqns, outs):
        return 1.0 / len(eqns)  # one equation is the slowest

    program, _ = run(trace(FUSED["a bias"][0], *OPERANDS)[0], ["inline", "raise_lax"])
    after, records = run(program, ["fuse"], seconds=seconds)
    assert after is program
    (said,) = records[0].notes
    assert said.startswith("left bias of matmul: 1 s instead of 333 ms")


def test_explain_says_what_was_fused_and_what_it_gains():
    shapes = ((512, 256), (256, 512), (512,))
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]

    def fn(a, b, c):
        return jax.nn.relu(a @ b + c)

    found = tilejax.explain(fn, *args, target="tpu:v5e")
    (record,) = (p for p in found.passes if p.name == "fuse")
    (said,) = record.notes
    assert said.startswith("fused bias, relu into matmul: ")
    assert "instead of" in said and "by the model" in said
    (kernel,) = found.kernels
    assert kernel.primitive == "matmul" and len(kernel.shapes) == 3
    line = fn.__code__.co_firstlineno + 1
    assert kernel.source and f"test_fuse_products.py:{line}" in kernel.source


def test_a_derivative_that_cannot_be_had_is_no_reason_to_fail():
    @jax.custom_jvp
    def positive(x):
        return jnp.maximum(x, 0.0)

    @positive.defjvp
    def _(primals, tangents):
        raise NotImplementedError("never differentiated")

    def fn(a, b, c, r):
        return positive(a @ b + c)

    assert fused(fn, *OPERANDS) == ["b"]
    check_same(fn, *OPERANDS, grad=False)


def test_a_wrong_spelling_is_seen(monkeypatch):
    wrong = (("relu", lambda x: jnp.maximum(x, 0.1)),)
    monkeypatch.setattr(spelled, "_SAME", wrong)
    spelled._spellings.cache_clear()
    try:
        with pytest.raises(AssertionError):
            check_same(lambda a, b, c, r: jnp.maximum(a @ b, 0.1), *OPERANDS)
    finally:
        spelled._spellings.cache_clear()


def test_fuse_is_golden(golden):
    def fn(a, b, c, r):
        z = (a @ b).reshape(2, 3, 4) + c
        kept = (a + 1.0) @ b * 2.0
        return jax.nn.gelu(z) + r.reshape(2, 3, 4), kept, jnp.tanh(kept)

    before, _ = run(trace(fn, *OPERANDS)[0], {"fuse": False, "order": False})
    after = fuse_epilogues(before)
    golden("fuse", as_text(after))
    assert fuse_epilogues(after) is after
