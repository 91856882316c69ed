"""LLVM IR to code: what is refused, what can be read, and for which CPUs."""

import re

import pytest

from tests.lowering.cpu.steps import SUM_ROWS, module_text
from tilejax.errors import TargetError
from tilejax.lowering.cpu import compile, elf, host
from tilejax.lowering.cpu.call import call_text
from tilejax.lowering.cpu.compile import GeneratedCodeError
from tilejax.lowering.cpu.driver import Launch
from tilejax.lowering.cpu.host import NAMED, Host, detect, forced
from tilejax.lowering.cpu.pool import pool_text

_LAUNCH = Launch("sums", 1, 1, (4, 3), (True, False), arena_bytes=64)


def _text(target: Host, body: str = SUM_ROWS) -> str:
    return module_text(_LAUNCH, body.replace("COLUMNS", "3"), target)


def test_a_syntax_error_shows_the_lines_around_it():
    broken = SUM_ROWS.replace("fadd float", "fadd flot")
    with pytest.raises(GeneratedCodeError) as caught:
        compile.compile_object(_text(detect(), broken), detect())
    text = str(caught.value)
    assert "a bug in TileJAX" in text
    assert re.search(r"^> *\d+ .*fadd flot", text, re.MULTILINE)


def test_what_the_verifier_refuses_names_the_instruction():
    text = "define i32 @f(i32 %x) {\na:\n  br label %b\nb:\n  br label %c\nc:\n"
    text += "  %p = phi i32 [%x, %a]\n  ret i32 %p\n}"
    with pytest.raises(GeneratedCodeError, match="%p = phi i32"):
        compile.compile_object(text, detect())


def test_a_call_to_what_is_not_there_does_not_end_the_process():
    text = "declare void @no_such_thing()\ndefine void @f() {\n"
    text += "  call void @no_such_thing()\n  ret void\n}"
    with pytest.raises(GeneratedCodeError, match="no_such_thing"):
        compile.load(text, detect(), "f")


@pytest.mark.parametrize(
    ("declaration", "call"),
    [
        ("declare i32 @usleep(i32)", "%y = call i32 @usleep(i32 0)"),
        (
            "declare double @llvm.exp.f64(double)",
            "%y = call double @llvm.exp.f64(double %x)",
        ),
        (
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            "call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)",
        ),
    ],
)
def test_calls_out_of_a_module_without_data_can_be_loaded(declaration, call):
    """Calls through stubs would need memory that the loader has not reserved."""
    text = f"{declaration}\ndefine void @f(ptr %p, i64 %n, double %x) {{\n  {call}\n"
    text += "  store volatile i8 1, ptr %p\n  ret void\n}"
    assert compile.load(text.replace("%y = ", ""), detect(), "f")


def test_a_call_through_a_stub_is_refused_before_it_ends_the_process(monkeypatch):
    monkeypatch.setattr(compile, "_EXTERNAL", re.compile("(never)"))
    text = "declare i32 @usleep(i32)\ndefine i32 @f() {\n"
    text += "  %y = call i32 @usleep(i32 1)\n  ret i32 %y\n}"
    if detect().is_x86:
        with pytest.raises(GeneratedCodeError, match="usleep must be called"):
            compile.load(text, detect(), "f")


def test_code_for_another_kind_of_cpu_is_not_loaded():
    other = NAMED["aarch64" if detect().is_x86 else "avx2"]
    with pytest.raises(GeneratedCodeError, match="cannot run"):
        compile.load(_text(other), other, "handler")


@pytest.mark.parametrize(
    ("name", "machine", "register"),
    [
        ("plain", "x86-64", "xmm"),
        ("avx2", "x86-64", "ymm"),
        ("avx512", "x86-64", "zmm"),
        ("amx", "x86-64", "zmm"),
        ("aarch64", "aarch64", r"v\d+.4s"),
    ],
)
def test_objects_and_assembly_of_each_named_cpu_can_be_read(name, machine, register):
    target = NAMED[name]
    vector = f"<{target.lanes} x float>"
    body = f"""
  %x = load {vector}, ptr %a0, align 4
  %y = fadd {vector} %x, %x
  store {vector} %y, ptr %a1, align 4
  ret void"""
    text = _text(target, body)
    data = compile.compile_object(text, target)
    assert elf.machine(data) == machine
    assert elf.undefined_symbols(data) == ["tilejax_run"]
    assert re.search(register, compile.asm_text(text, target))
    assert f"fadd {vector}" in compile.llvm_text(text, target)


def test_the_whole_runtime_can_be_made_for_aarch64():
    target = NAMED["aarch64"]
    text = pool_text(target.triple) + call_text(target.triple, (0, 3), 2**21)
    assert elf.machine(compile.compile_object(text, target)) == "aarch64"
    assert re.search(r"^\s+yield", compile.asm_text(text, target), re.MULTILINE)


def test_tile_registers_are_set_up_once_a_worker():
    launch = Launch("tiles", 1, 1, (4,), (True,), uses_amx=True)
    text = module_text(launch, "ret void", NAMED["amx"])
    code = compile.asm_text(text, NAMED["amx"])
    assert len(re.findall("ldtilecfg", code)) == 1
    assert len(re.findall("tilerelease", code)) == 1


def test_scalar_code_is_not_vectorised_behind_our_back():
    loop = """
  br label %next
next:
  %i = phi i64 [0, %0], [%j, %next]
  %p = getelementptr float, ptr %a0, i64 %i
  %q = getelementptr float, ptr %a1, i64 %i
  %x = load float, ptr %p
  %y = fmul float %x, %x
  store float %y, ptr %q
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, 4096
  br i1 %more, label %next, label %end
end:
  ret void"""
    text = _text(NAMED["avx512"], loop)
    assert "x float>" not in compile.llvm_text(text, NAMED["avx512"])


def test_an_unknown_cpu_is_refused_with_the_known_ones():
    with pytest.raises(TargetError, match=r"'vax'.*avx2"), forced("vax"):
        pass


def test_a_forced_cpu_is_forgotten_after_its_block():
    with forced("avx2") as target:
        assert host.current() is target
        assert not target.has("avx512f")
        assert target.has("avx2", "fma")
    assert host.current() is detect()


def test_tile_registers_are_left_out_where_linux_does_not_grant_them(
    tmp_path, monkeypatch
):
    cpuinfo = tmp_path / "cpuinfo"
    answers = []

    class Library:
        def syscall(self, *_):
            return answers.pop()

    monkeypatch.setattr(host.ctypes, "CDLL", lambda _: Library())
    cpuinfo.write_text("flags : fpu amx_tile amx_int8\n")
    answers.append(0)
    assert host._amx(cpuinfo) == {"amx-tile", "amx-int8"}
    answers.append(-1)
    assert host._amx(cpuinfo) == set()
    cpuinfo.write_text("flags : fpu sse2\n")
    assert host._amx(cpuinfo) == set()
    assert host._amx(tmp_path / "absent") == set()
