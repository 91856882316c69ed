"""What the CPU benchmark says is what was timed; a wrong result is not timed at all."""

import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.cpu import peak_code, plain_kernels, rounds
from benchmarks.cpu.cases import FAMILIES, Case
from benchmarks.cpu.intervals import difference, median_ratio
from benchmarks.cpu.machine import Machine
from benchmarks.cpu.operands import filled, operands
from benchmarks.cpu.processes import Process
from benchmarks.cpu.table import table
from tilejax.lowering.cpu.compile import asm_text
from tilejax.lowering.cpu.host import NAMED

pytestmark = pytest.mark.checkout

CASE = Case("matmul", "a case", "float32", {"n": 4, "blocks": None}, "float32", 100.0)


class Told:
    """A process that answers what it is told to, one time after the other."""

    def __init__(self, seconds, **description):
        self.seconds, self.description = seconds, description
        self.turn = 0

    def ask(self, do, **command):
        if do == "prepare":
            return self.description
        if do == "forget":
            return {}
        found = self.seconds[self.turn % len(self.seconds)]
        self.turn += 1
        return {"seconds": found, "least": found}


def sides(**changes) -> Any:
    """Ours takes 1 ms, JAX 2 ms, PyTorch 4 ms, the peak 100 operations in 0.5 ms."""
    found = {
        "tilejax": Told([0.001], sample=[1.0, 2.0], temp_bytes=64, kernel="native"),
        "jax": Told([0.002], sample=[1.0, 2.0], temp_bytes=0),
        "torch": Told([0.004], sample=[1.0, 2.0], temp_bytes=None),
        "machine": Told([0.0005], work=100.0),
    }
    return {k: v for k, v in (found | changes).items() if v is not None}


def test_a_line_has_ratios_of_their_time_to_ours_and_the_share_of_the_peak():
    line = rounds.measure(CASE, sides(), rounds.TINY)
    assert line["ratio_jax"] == pytest.approx(2)
    assert (line["peer"], line["ratio_peer"]) == ("jax", pytest.approx(2))
    assert line["ratio_peer_interval"] == pytest.approx([2, 2])
    assert line["of_limit"] == pytest.approx(0.5)
    assert line["median_s"] == {"tilejax": 0.001, "jax": 0.002, "torch": 0.004}
    assert line["peak_temp_bytes"]["tilejax"] == 64
    assert line["notes"] == {} and "error" not in line


def test_the_peer_is_the_faster_of_the_others():
    fast = Told([0.0005], sample=[1.0, 2.0], temp_bytes=None)
    line = rounds.measure(CASE, sides(torch=fast), rounds.TINY)
    assert (line["peer"], line["ratio_peer"]) == ("torch", pytest.approx(0.5))
    assert line["ratio_jax"] == pytest.approx(2)


def test_an_implementation_that_is_not_there_is_null_and_says_so():
    line = rounds.measure(CASE, sides(torch=None), rounds.TINY)
    assert line["median_s"]["torch"] is None
    assert "not installed" in line["notes"]["torch"]
    assert line["ratio_peer"] == pytest.approx(2) and "error" not in line


@pytest.mark.parametrize("wrong", [[1.0, 2.1], [1.0, float("nan")], [1.0]])
def test_a_result_unlike_the_others_is_an_error_and_has_no_time(wrong):
    ours = Told([0.001], sample=wrong, temp_bytes=0, kernel="native")
    line = rounds.measure(CASE, sides(tilejax=ours), rounds.TINY)
    assert "differs from jax" in line["error"]
    assert line["median_s"]["tilejax"] is None and line["ratio_jax"] is None


def test_an_error_of_a_peer_is_a_note_and_one_of_ours_an_error():
    broken = Told([1.0], error="it broke")
    theirs = rounds.measure(CASE, sides(torch=broken), rounds.TINY)
    assert theirs["notes"] == {"torch": "it broke"} and "error" not in theirs
    assert rounds.measure(CASE, sides(tilejax=broken), rounds.TINY)["error"]


def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(100):
        noise = np.exp(0.2 * rng.standard_normal((2, 31)))
        _, (low, high) = median_ratio(1.5 * noise[0], noise[1])
        held += low <= 1.5 <= high
    assert 85 <= held < 100


def test_a_difference_is_in_units_of_the_largest_value():
    assert difference([1.0, 9.0], [1.0, 10.0]) == pytest.approx(0.1)
    assert difference([0.0], [0.0]) == 0


def test_a_process_that_ends_is_an_error_and_is_started_again():
    process = Process("machine")
    try:
        case = vars(replace(CASE, limit="read"))
        assert process.ask("prepare", case=case, tiny=True)["work"] > 0
        running = process._started()
        running.kill()
        running.wait()
        assert "ended with code" in process.ask("time", calls=1)["error"]
        assert "error" in process.ask("time", calls=1)  # alive, but nothing prepared
    finally:
        process.stop()


def test_the_peak_of_memory_goes_over_all_of_it_once():
    machine = Machine(replace(CASE, limit="update"), tiny=True)
    size = sum(each.nbytes for each in machine.memory)
    machine()
    assert all((each == -0.5).all() for each in machine.memory)
    assert machine.work == 2 * size
    assert Machine(replace(CASE, limit="read"), tiny=True).work == size


@pytest.mark.parametrize(
    "name, dtype, instruction",
    [
        ("amx", "bfloat16", "tdpbf16ps"),
        ("amx", "int8", "tdpbssd"),
        ("avx512", "float32", "vfmadd"),
        ("avx2", "float32", "vfmadd"),
        ("aarch64", "float32", "fmla"),
    ],
)
def test_the_peak_of_products_is_the_instruction_again_and_again(
    name, dtype, instruction
):
    peak = peak_code.products(NAMED[name], dtype)
    assert peak is not None
    loop = asm_text(peak.text, NAMED[name])
    found = loop.count(instruction)
    assert found and found % (4 if name == "amx" else 12) == 0
    assert "(%rsp)" not in loop and "[sp" not in loop


def test_a_cpu_without_an_instruction_for_a_dtype_has_no_peak_for_it():
    assert peak_code.products(NAMED["avx2"], "bfloat16") is None


def test_jax_s_attention_gets_as_many_keys_as_its_case_says():
    case = next(c for c in FAMILIES["interpret"](True) if "heads" in c.sizes)
    kernel = plain_kernels.of_case(case.sizes, interpret=True)
    structs = [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in operands(case)]
    length, blocks = case.sizes["length"], case.sizes["blocks"]
    grid = f"grid=({-(-length // blocks)}, 1, {case.sizes['heads']})"
    assert grid in str(jax.make_jaxpr(kernel)(*structs))


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_of_a_family_have_inputs_and_names_of_their_own(family):
    tiny = list(FAMILIES[family](True))
    for case in tiny:
        shapes = [each.shape for each in operands(case)]
        assert [x.shape for x in filled(case)] == shapes
    for cases in (tiny, list(FAMILIES[family](False))):
        assert len({(c.name, c.dtype) for c in cases}) == len(cases)
        assert all(c.work > 0 for c in cases)


def test_a_table_has_the_range_of_a_family_s_ratios(tmp_path):
    slow = Told([0.004], sample=[1.0, 2.0], temp_bytes=0, kernel="native")
    lines = [
        rounds.measure(CASE, sides(), rounds.TINY),
        rounds.measure(replace(CASE, name="b"), sides(tilejax=slow), rounds.TINY),
        rounds.measure(replace(CASE, name="1 x 2, causal"), sides(), rounds.TINY),
    ]
    path = tmp_path / "results"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = table(path).splitlines()[2:]
    assert rows == [
        "| matmul | float32 | 0.50 to 2.00 | 0.50 to 2.00 | 0.12 to 0.50 |",
        "| matmul, causal | float32 | 2.00 | 2.00 | 0.50 |",
    ]
