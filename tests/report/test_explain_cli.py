"""`tilejax explain` finds functions, reads types, and says what is wrong with them."""

import json

import pytest

from tilejax import cli
from tilejax.errors import ArgumentError, DTypeError
from tilejax.report.explain_cli import find, parse_type

MODULE = """
import jax.numpy as jnp

NUMBER = 3

def multiply(a, b):
    return a @ b

class Model:
    @staticmethod
    def run(a):
        return a @ a.T
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "explained.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("1 +")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def run(capsys, *words):
    status = cli.main(["explain", *words])
    return status, *capsys.readouterr()


def test_a_table_is_printed(module, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    status, out, err = run(
        capsys, "explained:multiply", "--shapes", "f32[8,16]", "f32[16,4]"
    )
    assert (status, err) == (0, "")
    assert "multiply on" in out and "matmul" in out and "explained.py:7" in out
    assert max(map(len, out.splitlines())) <= 90


def test_json_is_printed_for_a_target(module, capsys):
    words = ("explained:Model.run", "--shapes", "bf16[8,16]", "--target", "tpu:v6e")
    status, out, _ = run(capsys, *words, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["target"] == "tpu:v6e"
    assert found["kernels"][0]["primitive"] == "matmul"


WRONG = {
    "no module": (["nowhere:f"], "nowhere cannot be imported"),
    "a broken module": (["broken:f"], "broken cannot be imported: SyntaxError"),
    "no function": (["explained:divide"], "explained has no divide"),
    "no colon": (["explained"], "not of the form module:function"),
    "a number": (["explained:NUMBER"], "no function but int"),
    "no shapes": (["explained:multiply"], "with no arguments"),
    "shapes that do not fit": (
        ["explained:multiply", "--shapes", "f32[2,3]", "f32[2,3]"],
        "with f32[2,3], f32[2,3]",
    ),
    "no type": (["explained:multiply", "--shapes", "f32(2)"], "is no type"),
    "a dtype that JAX lacks": (["explained:multiply", "--shapes", "f7[2]"], "'f7'"),
    "an unknown target": (
        ["explained:multiply", "--shapes", "f32[2,3]", "f32[3]", "--target", "abacus"],
        "abacus",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_line_and_status_two(case, module, capsys):
    words, message = WRONG[case]
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err and "Traceback" not in err


@pytest.mark.parametrize(
    "text, shape, dtype",
    [
        ("f32[]", (), "float32"),
        ("bf16[8, 16]", (8, 16), "bfloat16"),
        ("pred[0]", (0,), "bool"),
        ("s8[2,]", (2,), "int8"),
        ("uint16[1]", (1,), "uint16"),
    ],
)
def test_types_are_read_as_jax_prints_them(text, shape, dtype):
    found = parse_type(text)
    assert (found.shape, found.dtype.name) == (shape, dtype)


@pytest.mark.parametrize("text", ["f64[2]", "i64[2]", "c128[]"])
def test_types_of_64_bits_need_their_setting(text):
    with pytest.raises(DTypeError, match="JAX_ENABLE_X64"):
        parse_type(text)


@pytest.mark.parametrize("text", ["str[2]", "object[2]", "V[2]"])
def test_what_is_no_dtype_of_arrays_is_refused(text):
    with pytest.raises(DTypeError):
        parse_type(text)


@pytest.mark.parametrize("text", ["", "f32", "f32[", "f32[-1]", "[2]", "f32[2,x]"])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ArgumentError, match="is no type"):
        parse_type(text)


def test_find_follows_dots():
    assert find("os:path.join")("a", "b")
