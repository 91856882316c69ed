"""All cases, and which of dtypes, layouts and meshes each of them is tried with.

The full product would take an hour; instead each case meets each dtype in some test,
each test meets each dtype in some case, and likewise for layouts and meshes: the
choice turns with the case's place in the list.
"""

import importlib

import pytest

from tests.primitives.harness import Case

FAMILIES = (
    "softmax",
    "cross_entropy",
    "norms",
    "attention",
    "matmul",
    "conv",
    "embedding",
)


def all_cases() -> list[Case]:
    found: list[Case] = []
    for family in FAMILIES:
        module = importlib.import_module(f"tests.primitives.cases_{family}")
        found += module.CASES
    names = [case.name for case in found]
    assert len(set(names)) == len(names), "two cases have one name"
    return found


CASES = all_cases()


def with_every_dtype() -> list:
    return [
        pytest.param(case, dtype, id=f"{case.name}-{dtype}")
        for case in CASES
        for dtype in case.dtypes
    ]


def with_a_dtype(turn: int, thin: bool) -> list:
    """Each case with one dtype; `turn` sets each test at another start."""
    return [
        pytest.param(case, dtype, id=f"{case.name}-{dtype}")
        for at, case in enumerate(CASES)
        if thin or not case.thin
        for dtype in [case.dtypes[(at + turn) % len(case.dtypes)]]
    ]


def with_a_layout(turn: int, local: bool = False) -> list:
    """Each case's layouts with a dtype and a number of devices each."""
    found = []
    for at, case in enumerate(CASES):
        for place, layout in enumerate(case.layouts):
            if local and case.local is not None and place not in case.local:
                continue
            dtype = case.dtypes[(at + place + turn) % len(case.dtypes)]
            devices = (4, 8)[(at + place + turn) // 2 % 2]
            name = f"{case.name}-{place}-{devices}-{dtype}"
            found.append(pytest.param(case, layout, devices, dtype, id=name))
    return found
