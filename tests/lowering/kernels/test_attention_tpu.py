"""Attention kernels as a TPU would run them: checked step by step, and lowered."""

import jax
import pytest

import tilejax.targets
from tests.lowering.kernels.agreement import tiles_of
from tests.lowering.kernels.attention_cases import Sizes, check, kernels, operands
from tilejax.lowering.kernels.attention import AttentionConfig
from tilejax.lowering.kernels.attention_configs import (
    attention_backward_configs,
    attention_bytes,
    attention_configs,
)
from tilejax.lowering.kernels.room import room


@pytest.mark.parametrize(
    ("sizes", "params"),
    [
        (Sizes(1, 2, 1, 11, 13, bias=(1, 1)), {"causal": True, "soft_cap": 2.0}),
        (Sizes(1, 1, 1, 11, 13, mask=(1, 1)), {"masked_rows": "uniform"}),
    ],
    ids=["causal group with bias", "uniform"],
)
def test_attention_has_no_race_and_reads_no_padding(rng, checking, sizes, params):
    check(operands(rng, sizes), params, AttentionConfig(8, 8), checking)


CASES = {
    "plain": (Sizes(), {}),
    "group, causal, bias": (
        Sizes(query_heads=4, bias=(1, 4), queries=300, keys=200),
        {"causal": True},
    ),
    "everything": (
        Sizes(
            query_heads=4,
            bias=(2, 1),
            mask=(1, 4),
            segments=True,
            queries=300,
            keys=200,
        ),
        {"window": (40, 8), "soft_cap": 2.0, "masked_rows": "uniform"},
    ),
    "bias for all": (Sizes(queries=70, keys=300, bias=(1, 1)), {}),
    "one query": (Sizes(queries=1, keys=300), {}),
    "one key": (Sizes(queries=300, keys=1), {"masked_rows": "uniform"}),
}


def avals(sizes, dtype):
    """The operands, and the two cotangents, as shapes."""

    def aval(kind, *shape):
        return jax.ShapeDtypeStruct(shape, kind)

    s = sizes
    scores = (s.queries, s.keys)
    given = [
        aval(dtype, s.batch, s.query_heads, s.queries, s.depth),
        aval(dtype, s.batch, s.key_heads, s.keys, s.depth),
        aval(dtype, s.batch, s.key_heads, s.keys, s.value_depth),
        None if s.bias is None else aval(dtype, *s.bias, *scores),
        None if s.mask is None else aval("bool", *s.mask, *scores),
        aval("int32", s.batch, s.queries) if s.segments else None,
        aval("int32", s.batch, s.keys) if s.segments else None,
    ]
    lse = aval("float32", s.batch, s.query_heads, s.queries)
    return given, (aval(dtype, *lse.shape, s.value_depth), lse)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_attention_lowers_for_tpu_with_the_proposed_tiles(lower, name, dtype):
    sizes, params = CASES[name]
    given, cotangents = avals(sizes, dtype)
    target = tilejax.targets.get("tpu:v5e")
    configs = attention_backward_configs(target, *given, **params)
    assert configs and attention_configs(target, *given, **params)
    for config in tiles_of(target, configs, 3):
        text = lower(
            lambda a, b, c=config: kernels(a, b, {"scale": 1.0, **params}, c, False),
            *(given, cotangents),
        )
        assert text.count("tpu_custom_call") == (3 if sizes.bias is None else 4)


def test_proposed_tiles_of_attention_fit_and_are_aligned():
    target = tilejax.targets.get("tpu:v5e")
    sizes = Sizes(queries=4096, keys=4096, depth=128, value_depth=128, mask=(1, 1))
    (q, k, v, _, mask, *_), _ = avals(sizes, "bfloat16")
    for backward, propose in enumerate((attention_configs, attention_backward_configs)):
        configs = [t.config for t in propose(target, q, k, v, None, mask)]
        assert len(configs) > 8 and len(set(configs)) == len(configs)
        for config in configs:
            size = attention_bytes(config, q, v, None, mask, backward == 1)
            assert size <= room(target)
            # Bytes of a mask come 32 rows to a tile.
            assert config.queries % 32 == 0 and config.keys % 128 == 0


def test_no_tile_of_attention_is_proposed_where_none_can_run():
    target = tilejax.targets.get("tpu:v5e")
    for sizes, dtype in ((Sizes(), "float16"), (Sizes(keys=0), "float32")):
        given, _ = avals(sizes, dtype)
        assert attention_configs(target, *given) == []
