"""Products on AMX tiles, run by an interpreter of the tile instructions."""

import ctypes
import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.lowering.cpu.dots import dot_module, expected, numbers
from tilejax.lowering.cpu.compile import asm_text, compile_object, load
from tilejax.lowering.cpu.host import NAMED, detect

AMX = ("amx-tile", "amx-bf16", "amx-int8", "amx-fp16")
HOST = replace(detect(), features=detect().features.union(AMX))
KINDS = {
    "tdpbf16ps": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    "tdpfp16ps": (np.float16, np.float16, np.float32),
    "tdpbssd": (np.int8, np.int8, np.int32),
    "tdpbsud": (np.int8, np.uint8, np.int32),
    "tdpbusd": (np.uint8, np.int8, np.int32),
    "tdpbuud": (np.uint8, np.uint8, np.int32),
}


class Tiles:
    """Eight tiles of 16 rows of 64 bytes, and what the instructions do to them."""

    def __init__(self):
        self.rows = np.full((8, 16, 64), 0xFF, np.uint8)
        self.products = 0
        byte, address = ctypes.c_uint8, ctypes.c_void_p
        memory = ctypes.CFUNCTYPE(None, byte, address, ctypes.c_int64)
        three = ctypes.CFUNCTYPE(None, byte, byte, byte)
        self.calls = {
            "tilezero": ctypes.CFUNCTYPE(None, byte)(self.zero),
            "tileloadd64": memory(self.load),
            "tilestored64": memory(self.store),
        }
        for name, dtypes in KINDS.items():
            self.calls[name] = three(self.product(*dtypes))

    def zero(self, tile):
        self.rows[tile] = 0

    def load(self, tile, address, stride):
        for r in range(16):
            row = ctypes.string_at(address + r * stride, 64)
            self.rows[tile, r] = np.frombuffer(row, np.uint8)

    def store(self, tile, address, stride):
        for r in range(16):
            ctypes.memmove(address + r * stride, self.rows[tile, r].tobytes(), 64)

    def product(self, a_dtype, b_dtype, out_dtype):
        group = 4 // np.dtype(a_dtype).itemsize

        def product(out, a, b):
            self.products += 1
            x = self.rows[a].reshape(-1).view(a_dtype).reshape(16, 16, group)
            y = self.rows[b].reshape(-1).view(b_dtype).reshape(16, 16, group)
            x, y = x.astype(out_dtype), y.astype(out_dtype)
            z = self.rows[out].reshape(-1).view(out_dtype).reshape(16, 16)
            z += np.einsum("mkg,kng->mn", x, y)

        return product

    def interpreted(self, text: str) -> str:
        """The module with the tile instructions replaced by calls of these."""
        names = "|".join(self.calls)
        text = re.sub(rf"declare void @llvm\.x86\.({names})\(.*\)\n", "", text)

        def address(match):
            function = self.calls[match[1]]
            number = ctypes.cast(function, ctypes.c_void_p).value
            return f"call void inttoptr (i64 {number} to ptr)("

        return re.sub(rf"call void @llvm\.x86\.({names})\(", address, text)


DTYPES = [
    ("bfloat16", "bfloat16", "float32"),
    ("float8_e5m2", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
    ("int8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("uint8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
]


@pytest.mark.skipif(HOST.lanes < 16, reason="packing for tiles uses AVX-512")
@pytest.mark.parametrize("layouts", ["CC", "FF"])
@pytest.mark.parametrize("shape", [(64, 48, 128), (83, 71, 77)], ids=str)
@pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
def test_products_on_tiles_agree_with_wide_numbers(dtypes, shape, layouts):
    if dtypes[0].startswith("float8") and not HOST.has("avx512bf16"):
        pytest.skip("float8 needs the pairs of bfloat16")
    rng = np.random.default_rng(1)
    m, n, k = shape
    a = numbers(rng, (m, k), dtypes[0], layouts[0])
    b = numbers(rng, (n, k), dtypes[1], layouts[1])
    out = numbers(rng, (m, n + 5), dtypes[2])
    before = out.copy()
    want, bound = expected(a, b, before[:, :n], accumulate=True)
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
    text, scratch = dot_module(HOST, shape, dtypes, (*strides, n + 5), accumulate=True)
    tiles = Tiles()
    address = load(tiles.interpreted(text), detect(), "run")
    memory = np.full(scratch + 64, 0xFF, np.uint8)
    at = -(-memory.ctypes.data // 64) * 64
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address)
    run(a.ctypes.data, b.ctypes.data, out.ctypes.data, at)
    assert (np.abs(out[:, :n] - want.astype(np.float64)) <= bound).all()
    np.testing.assert_array_equal(out[:, n:], before[:, n:])
    # Other dtypes leave odd shapes to vectors.
    whole = shape[0] % 16 == 0
    assert (tiles.products > 0) == (whole or "bfloat16" in dtypes)


@pytest.mark.parametrize(
    ("dtypes", "instruction"),
    [(DTYPES[0], "tdpbf16ps"), (DTYPES[3], "tdpbssd"), (DTYPES[5], "tdpbusd")],
    ids=str,
)
def test_code_for_amx_holds_its_instructions(dtypes, instruction):
    strides = ((128, 1), (1, 96), 96)
    text, _ = dot_module(NAMED["amx"], (64, 96, 128), dtypes, strides)
    found = re.findall(rf"^\s+{instruction}\s", asm_text(text, NAMED["amx"]), re.M)
    # Two tiles by two, for as many steps as LLVM unrolls.
    assert found and len(found) % 4 == 0


@pytest.mark.parametrize("features", [(), ("dotprod",)], ids=str)
@pytest.mark.parametrize(
    "dtypes",
    [("float32",) * 3, ("float64",) * 3, ("int8", "int8", "int32"), DTYPES[0]],
    ids="-".join,
)
def test_products_compile_for_aarch64(dtypes, features):
    host = NAMED["aarch64"]
    host = replace(host, features=host.features.union(features))
    text, _ = dot_module(host, (33, 50, 70), dtypes, ((70, 1), (1, 50), 50))
    assert compile_object(text, host)[18:20] == b"\xb7\x00"
    code = asm_text(text, host)
    wanted = "sdot" if features and dtypes[0] == "int8" else "mla"
    assert wanted in code
