"""Adapters whose operations have many optional operands: attention, lookups, bags."""

import numpy as np
import pytest

from tests.lowering.adapted import check, check_uses
from tests.lowering.kernels.conftest import quick_to_compile as quick_to_compile
from tests.lowering.kernels.pairwise import pairwise
from tests.primitives.harness import Case
from tilejax.primitives.attention import attention
from tilejax.primitives.embedding import embedding
from tilejax.primitives.embedding_bag import embedding_bag

ATTENTION = pairwise(
    {
        "kind": ["causal", "window", "all"],
        "bias": [None, (1, 1), (2, 4)],
        "mask": [None, (2, 1)],
        "segments": [None, "uint8", "uint32"],
        "soft_cap": [None, 2.0],
        "masked_rows": ["zeros", "uniform"],
        "heads": [1, 2],
        "keys": [1, 5],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", ATTENTION, ids=str)
def test_attention_with_every_operand(options):
    keys, heads = options["keys"], options["heads"]

    def make(rng):
        found = [rng.normal(size=(2, h, s, d)) for h, s, d in (
            (4, 5, 3), (heads, keys, 3), (heads, keys, 2)
        )]  # fmt: skip
        if options["bias"]:
            found.append(rng.normal(size=(*options["bias"], 5, keys)))
        if options["mask"]:
            found.append(rng.random((*options["mask"], 5, keys)) < 0.7)
        if options["segments"]:
            kind = options["segments"]
            found += [rng.integers(0, 2, (2, n)).astype(kind) for n in (5, keys)]
        return found

    def fun(q, k, v, *more):
        there = iter(more)
        bias = next(there) if options["bias"] else None
        mask = next(there) if options["mask"] else None
        segments = {}
        if options["segments"]:
            segments = {"q_segments": next(there), "kv_segments": next(there)}
        return attention(
            q, k, v, bias, mask, **segments, causal=options["kind"] == "causal",
            window=(1, 2) if options["kind"] == "window" else None,
            soft_cap=options["soft_cap"], masked_rows=options["masked_rows"],
        )  # fmt: skip

    compared = check(Case("attention", fun, fun, make), options["dtype"])
    assert {*compared} == {"attention forward", "attention backward"}


LOOKUPS = pairwise(
    {
        "out_of_range": ["fill", "clip", "zero", "promise"],
        "row": [(), (2, 3)],
        "ids": [(), (2, 3)],
        "kind": ["int32", "uint8"],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", LOOKUPS, ids=str)
def test_lookups_of_any_rows(options):
    inside = options["out_of_range"] == "promise"

    def make(rng):
        ids = rng.integers(0, 5 if inside else 9, options["ids"])
        if not inside and options["kind"] != "uint8":
            ids = ids - 2
        return [rng.normal(size=(5, *options["row"])), ids.astype(options["kind"])]

    params = {"out_of_range": options["out_of_range"]}
    case = Case("lookup", embedding, embedding, make, params=params)
    compared = check(case, options["dtype"])
    assert {*compared} == {"embedding forward", "embedding_grad forward"}


BAGS = pairwise(
    {
        "out_of_range": ["fill", "clip", "zero", "promise"],
        "mode": ["sum", "mean"],
        "weighted": [False, True],
        "row": [(), (2, 3)],
        "ids": [(4,), (2, 1, 3)],
        "dtype": ["float32", "bfloat16"],
    }
)


@pytest.mark.parametrize("options", BAGS, ids=str)
def test_bags_of_any_rows(options):
    inside = options["out_of_range"] == "promise"

    def make(rng):
        ids = rng.integers(*((0, 5) if inside else (-2, 9)), options["ids"])
        found = [rng.normal(size=(5, *options["row"])), ids.astype("int32")]
        return [*found, rng.normal(size=ids.shape)] if options["weighted"] else found

    params = {name: options[name] for name in ("out_of_range", "mode")}
    case = Case("bag", embedding_bag, embedding_bag, make, params=params)
    compared = check(case, options["dtype"])
    assert ("embedding_bag_weights_grad forward" in compared) == options["weighted"]
    assert "embedding_bag_grad forward" in compared


def test_lookups_of_integers_fill_as_the_reference_does():
    for dtype in ("int8", "uint16", "int32"):

        def make(rng, dtype=dtype):
            return [rng.integers(0, 9, (3, 2)).astype(dtype), np.array([1, 7, -1])]

        case = Case("lookup", embedding, embedding, make, moving=())
        assert check_uses(case, "int32", gradient=False) == ["embedding forward"]
