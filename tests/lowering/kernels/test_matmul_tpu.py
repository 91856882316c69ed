"""The matrix product as a TPU would run it: interpreted with checks, and lowered."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilejax.targets
from tests.lowering.kernels.agreement import tiles_of
from tests.lowering.kernels.test_matmul import CONFIG, check, operands
from tilejax.lowering.kernels import matmul as matmul_file
from tilejax.lowering.kernels.matmul import MatmulConfig, matmul
from tilejax.lowering.kernels.matmul_backward import matmul_backward
from tilejax.lowering.kernels.matmul_configs import (
    matmul_backward_configs,
    matmul_bytes,
    matmul_configs,
)
from tilejax.lowering.kernels.matmul_operands import Plan, plan_matmul
from tilejax.lowering.kernels.room import room

S = jax.ShapeDtypeStruct
TARGETS = ("tpu:v5e", "tpu:v6e")


@pytest.mark.parametrize("batches", [(2, 2), (1, 2)])
def test_product_and_gradients_run_without_races_or_stray_accesses(
    rng, checking, batches
):
    given = operands(
        rng, (9, 13, 20), batches, "float32", transposes=(True, True), extras="bsr"
    )
    check(rng, given, activation="silu", transposes=(True, True), interpret=checking)


def test_garbage_past_the_edge_would_be_seen(rng, checking, monkeypatch):
    monkeypatch.setattr(matmul_file, "keep_first", lambda x, axis, count: x)
    a, b, *_ = operands(rng, (8, 13, 16), (1, 1), "float32")
    assert jnp.isnan(matmul(a, b, config=CONFIG, interpret=checking)).all()


def test_a_contraction_declared_parallel_would_be_seen(rng, capfd, monkeypatch):
    monkeypatch.setattr(Plan, "semantics", ("parallel",) * 4)
    params = pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2)
    a, b, *_ = operands(rng, (8, 16, 16), (1, 1), "float32")
    found = ""
    try:
        jax.block_until_ready(matmul(a, b, config=CONFIG, interpret=params))
    except Exception as error:
        found = str(error)
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    assert "RACE DETECTED" in found + "".join(capfd.readouterr())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_every_form_of_product_lowers(lower, dtype):
    extras = (S((200,), "float32"), S((1,), "float32"), S((2, 40, 200), "float32"))
    for transpose_a, transpose_b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        a = S((2, 300, 40) if transpose_a else (2, 40, 300), dtype)
        b = S((1, 200, 300) if transpose_b else (1, 300, 200), dtype)

        def f(a, b, *extras, turned=(transpose_a, transpose_b)):
            return matmul(
                *(a, b, *extras),
                activation="gelu",
                transpose_a=bool(turned[0]),
                transpose_b=bool(turned[1]),
                out_dtype="float32",
                precision="highest",
                config=MatmulConfig(),
            )

        lower(f, a, b, *extras)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu", "exp"])
def test_the_gradients_lower(lower, dtype, activation):
    a, b, ct = (S(s, dtype) for s in ((2, 40, 300), (1, 300, 200), (2, 40, 200)))
    row = S((200,), "float32")
    lower(
        lambda a, b, bias, scale, ct: matmul_backward(
            *(a, b, bias, scale, None, ct),
            activation=activation,
            config=MatmulConfig(),
        ),
        *(a, b, row, row, ct),
    )


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("bfloat16", (4096, 4096, 4096)),
        ("float32", (1000, 77, 3000)),
        ("int8", (64, 512, 300)),
        ("bfloat16", (1, 4096, 100)),
    ],
)
def test_every_proposed_tile_lowers_and_fits(lower, name, dtype, sizes):
    m, k, n = sizes
    target = tilejax.targets.get(name)
    a, b = S((1, m, k), dtype), S((1, n, k), dtype)
    configs = matmul_configs(target, a, b, transpose_b=True)
    assert configs
    for config in tiles_of(target, configs, 11):
        plan = plan_matmul(a, b, transpose_b=True, config=config)
        assert matmul_bytes(config, plan, (dtype, dtype), 0, False) <= room(target)
        lower(lambda a, b, c=config: matmul(a, b, transpose_b=True, config=c), a, b)


@pytest.mark.parametrize("name", TARGETS)
def test_every_proposed_tile_of_the_gradients_lowers(lower, name):
    a, b, ct = (S(s, "bfloat16") for s in ((1, 600, 77), (1, 77, 300), (1, 600, 300)))
    scale = S((300,), "float32")
    target = tilejax.targets.get(name)
    configs = matmul_backward_configs(
        target, a, b, None, scale, None, ct, activation="silu"
    )
    assert configs
    for config in tiles_of(target, configs, 8):
        lower(
            lambda a, b, scale, ct, c=config: matmul_backward(
                a, b, None, scale, None, ct, activation="silu", config=c
            ),
            *(a, b, scale, ct),
        )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_no_tile_is_proposed_for_a_type_that_a_tpu_lacks(dtype):
    a = S((1, 128, 128), dtype)
    assert matmul_configs(tilejax.targets.get("tpu:v5e"), a, a) == []
