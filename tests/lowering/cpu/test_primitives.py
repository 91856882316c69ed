"""The primitives run their kernels compiled on the CPU, and give the reference's.

Each family meets each dtype that it claims, forwards and backwards; what is done with
the function around it takes turns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import tilejax
from tests.lowering.kernels.conftest import quick_to_compile as quick_to_compile
from tests.primitives.harness import Case, compare, loss_of
from tilejax.primitives.attention import attention
from tilejax.primitives.conv import conv
from tilejax.primitives.cross_entropy import cross_entropy
from tilejax.primitives.embedding import embedding
from tilejax.primitives.embedding_bag import embedding_bag
from tilejax.primitives.group_norm import group_norm
from tilejax.primitives.matmul import matmul
from tilejax.primitives.norms import layer_norm, rms_norm
from tilejax.primitives.softmax import softmax

FLOATS = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Family:
    """A function of a tiled operation, and which operands hold a batch."""

    fun: Callable
    shapes: tuple[tuple[int, ...], ...]
    batch: tuple[bool, ...]
    ids: tuple[int, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    kernels: int = 2

    def case(self, name: str) -> Case:
        def make(rng):
            return [
                rng.integers(0, 7, s, np.int32) if i in self.ids else rng.normal(size=s)
                for i, s in enumerate(self.shapes)
            ]

        return Case(name, self.fun, self.fun, make, params=self.params)


FAMILIES = {
    "matmul": Family(
        lambda a, b, c: matmul(a, b, bias=c, activation="gelu"),
        ((6, 21), (21, 37), (37,)),
        (True, False, False),
    ),
    "conv": Family(
        conv,
        ((2, 7, 9, 3), (3, 2, 3, 8)),
        (True, False),
        params={"strides": (2, 1), "padding": ((1, 1), (0, 1))},
    ),
    "depthwise": Family(
        conv, ((2, 7, 9, 5), (3, 3, 1, 5)), (True, False), params={"groups": 5}
    ),
    "softmax": Family(softmax, ((6, 33),), (True,)),
    "layer_norm": Family(layer_norm, ((6, 37), (37,), (37,)), (True, False, False)),
    "rms_norm": Family(rms_norm, ((6, 37), (37,)), (True, False)),
    "group_norm": Family(
        group_norm,
        ((2, 3, 5, 8), (8,), (8,)),
        (True, False, False),
        params={"groups": 2},
    ),
    "cross_entropy": Family(cross_entropy, ((6, 41), (6,)), (True, True), ids=(1,)),
    "attention": Family(
        attention,
        ((2, 4, 18, 8), (2, 2, 18, 8), (2, 2, 18, 8)),
        (True, True, True),
        params={"causal": True},
    ),
    "embedding": Family(embedding, ((9, 20), (6,)), (False, True), ids=(1,)),
    "embedding_bag": Family(
        lambda table, ids, weights: embedding_bag(table, ids, weights, mode="mean"),
        ((9, 20), (6, 3), (6, 3)),
        (False, True, True),
        ids=(1,),
    ),
}


def _value(case, family):
    return case.tested()


def _gradient(case, family):
    return jax.grad(loss_of(case.tested()), case.differentiated())


def _mapped(case, family):
    def run(*operands):
        stacked = [
            jnp.stack([x, x[::-1]]) if b else x
            for x, b in zip(operands, family.batch, strict=True)
        ]
        axes = tuple(0 if b else None for b in family.batch)
        return jax.vmap(_gradient(case, family), axes)(*stacked)

    return run


def _scanned(case, family):
    def run(*operands):
        def step(moving, _):
            full = list(operands)
            for i, x in zip(case.differentiated(), moving, strict=True):
                full[i] = x
            found = _gradient(case, family)(*full)
            return tuple(
                x + 0.1 * g.astype(x.dtype) for x, g in zip(moving, found, strict=True)
            ), jnp.float32(0)

        start = tuple(operands[i] for i in case.differentiated())
        return jax.lax.scan(step, start, length=2)[0]

    return run


def _checkpointed(case, family):
    return jax.grad(loss_of(jax.checkpoint(case.tested())), case.differentiated())


def _each_part(case, family):
    mesh = jax.make_mesh((2,), ("d",), (AxisType.Auto,), devices=jax.devices()[:2])
    specs = tuple(P("d") if b else P() for b in family.batch)
    return jax.shard_map(case.tested(), mesh=mesh, in_specs=specs, out_specs=P("d"))


WAYS = {
    "value": _value,
    "gradient": _gradient,
    "vmap": _mapped,
    "scan": _scanned,
    "checkpoint": _checkpointed,
    "shard_map": _each_part,
    "donated": _gradient,
    "auto": _gradient,
}


def _placed(operands, family):
    mesh = jax.make_mesh((2,), ("d",), (AxisType.Auto,), devices=jax.devices()[:2])
    return [
        jax.device_put(x, NamedSharding(mesh, P("d") if b else P()))
        for x, b in zip(operands, family.batch, strict=True)
    ]


def _run(way, case, family, dtype, kernels) -> tuple[Any, str]:
    operands = [jnp.asarray(x) for x in case.operands(dtype)]
    if way == "auto":
        operands = _placed(operands, family)
    donate = case.differentiated() if way == "donated" else ()
    with tilejax.options(kernels=kernels):
        made = jax.jit(WAYS[way](case, family), donate_argnums=donate)
        built = made.lower(*operands).compile()
    return built(*operands), built.as_text() or ""


USES = [
    pytest.param(name, dtype, list(WAYS)[(2 * i + 3 * j) % len(WAYS)])
    for i, name in enumerate(FAMILIES)
    for j, dtype in enumerate(FLOATS)
]


@pytest.mark.parametrize(("name", "dtype", "way"), USES)
def test_kernels_give_what_the_reference_gives(name, dtype, way):
    family = FAMILIES[name]
    case = family.case(name)
    with jax.enable_x64(dtype == "float64"):
        want, plain = _run(way, case, family, dtype, "reference")
        got, text = _run(way, case, family, dtype, "native")
    assert "tilejax_" in text and "tilejax_" not in plain
    compare(case, got, want, dtype, factor=4)


def test_products_of_bytes_are_exact():
    rng = np.random.default_rng(0)
    a, b = (
        jnp.asarray(rng.integers(-128, 128, s, np.int8)) for s in ((5, 70), (70, 9))
    )

    def product(kernels):
        with tilejax.options(kernels=kernels):
            return jax.jit(matmul, static_argnames="preferred_element_type")(
                a, b, preferred_element_type="int32"
            )

    assert jnp.array_equal(product("native"), product("reference"))


def test_what_no_kernel_takes_runs_as_before():
    x = jnp.ones((4, 4), "complex64")
    with tilejax.options(kernels="native"):
        (kernel,) = tilejax.explain(matmul, x, x).kernels
        assert kernel.impl == "reference" and "complex64" in kernel.reason
        assert matmul(x, x)[0, 0] == 4
