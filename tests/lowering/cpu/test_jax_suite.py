"""The list of JAX's own tests that pass compiled, and how the driver counts."""

import re
from pathlib import Path

from tests.lowering.cpu.jax_suite import FILES, compare, read_passing, summary

LIST = Path(__file__).with_name("jax_suite_passing.txt")


def test_the_list_of_passing_tests_is_well_formed():
    version, names = read_passing(LIST)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", version)
    assert names == sorted(set(names)), "sorted, each name once"
    assert len(names) > 1000
    for name in names:
        file, *rest = name.split("::")
        assert file in FILES, name
        assert len(rest) == 2, name
        assert all(rest), name


def test_only_tests_that_pass_interpreted_are_counted():
    passed, failed = {"outcome": "passed"}, {"outcome": "failed"}
    interpreted = {"a": passed, "b": passed, "c": failed, "d": passed, "e": passed}
    native = {
        "a": passed | {"calls": 1},
        "b": failed | {"calls": 1},
        "c": passed,
        "d": {"outcome": "unsupported", "calls": 2},
        "e": passed,
    }
    groups = compare(interpreted, native)
    assert groups == {"passed": ["a", "e"], "failed": ["b"], "unsupported": ["d"]}
    text = summary(groups, native)
    assert "4 pass interpreted; compiled: 2 passed (50.0 %)" in text
    assert "1 unsupported, 1 failed; with a compiled call: 1 of 3" in text


def test_a_test_that_did_not_run_counts_as_failed():
    groups = compare({"a": {"outcome": "passed"}}, {})
    assert groups == {"missing": ["a"]}
    assert "0 unsupported, 1 failed" in summary(groups, {})
