"""Code that does nothing but what a processor is fastest at, as LLVM IR.

Each function is `void @peak(i64 %times, ptr %memory)`.
"""

from dataclasses import dataclass

from tilejax.lowering.cpu.host import Host

_CHAINS = 12
"""Sums that do not wait for one another: more than latency times units of any CPU."""


@dataclass(frozen=True)
class Peak:
    """A loop that reaches a limit.

    **Arguments:**

    - `text`: the module.
    - `work`: operations, or bytes, that one turn of the loop does.
    """

    text: str
    work: float


def read(host: Host) -> Peak:
    """Read memory: eight vectors a turn, each added to a sum of its own."""
    vector, size = f"<{host.lanes} x float>", 4 * host.lanes
    body, nexts = [], []
    for j in range(8):
        body += _address(j, size)
        body.append(f"  %v{j} = load {vector}, ptr %p{j}, align 4")
        body.append(f"  %n{j} = fadd {vector} %s{j}, %v{j}")
        nexts.append(f"%n{j}")
    return Peak(_loop(vector, nexts, body, []), 8.0 * size)


def update(host: Host) -> Peak:
    """Read memory and write it in place; both are counted."""
    vector, size = f"<{host.lanes} x float>", 4 * host.lanes
    body = []
    for j in range(8):
        body += _address(j, size)
        body.append(f"  %v{j} = load {vector}, ptr %p{j}, align 4")
        body.append(f"  %w{j} = fneg {vector} %v{j}")
        body.append(f"  store {vector} %w{j}, ptr %p{j}, align 4")
    return Peak(_loop(vector, [], body, []), 16.0 * size)


def _address(j: int, size: int) -> list[str]:
    return [
        f"  %o{j} = mul i64 %i, {8 * size}",
        f"  %q{j} = getelementptr i8, ptr %memory, i64 %o{j}",
        f"  %p{j} = getelementptr i8, ptr %q{j}, i64 {j * size}",
    ]


def products(host: Host, dtype: str) -> Peak | None:
    """Multiply and add in registers; None where the CPU has no instruction for it."""
    if dtype == "float32":
        vector = f"<{host.lanes} x float>"
        name = f"llvm.fma.v{host.lanes}f32"
        return _chains(name, vector, vector, 2.0 * host.lanes)
    tiles = {"bfloat16": ("tdpbf16ps", 2), "int8": ("tdpbssd", 4)}.get(dtype)
    feature = {"bfloat16": "amx-bf16", "int8": "amx-int8"}.get(dtype, "")
    if tiles is not None and host.has("amx-tile", feature):
        return _tiles(*tiles)
    if host.lanes == 16 and dtype == "bfloat16" and host.has("avx512bf16"):
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return _chains(name, "<16 x float>", "<32 x bfloat>", 64.0)
    if host.lanes == 16 and dtype == "int8" and host.has("avx512vnni"):
        name = "llvm.x86.avx512.vpdpbusd.512"
        return _chains(name, "<16 x i32>", "<16 x i32>", 128.0)
    return None


def _chains(name: str, sums: str, vector: str, work: float) -> Peak:
    """Sums of products of two vectors, in turns that do not wait for one another."""
    before = [
        f"  %x = load {vector}, ptr %memory, align 1",
        "  %at = getelementptr i8, ptr %memory, i64 64",
        f"  %y = load {vector}, ptr %at, align 1",
    ]
    body = []
    for j in range(_CHAINS):
        operands = f"{sums} %s{j}, {vector} %x, {vector} %y"
        body.append(f"  %n{j} = call {sums} @{name}({operands})")
    nexts = [f"%n{j}" for j in range(_CHAINS)]
    declared = f"declare {sums} @{name}({sums}, {vector}, {vector})\n"
    text = declared + _loop(sums, nexts, body, before)
    return Peak(text, work * _CHAINS)


def _tiles(name: str, group: int) -> Peak:
    """Products of tiles of 16 by 16 sums, over 16 groups of columns."""
    rows, columns = [16] * 8 + [0] * 8, [64, 0] * 8 + [0] * 16
    shape = [1, 0, *[0] * 14, *columns, *rows]
    values = ", ".join(f"i8 {byte}" for byte in shape)
    calls = [
        f"  call void @llvm.x86.{name}(i8 {j}, i8 {4 + j // 2}, i8 {6 + j % 2})"
        for j in range(4)
    ]
    zero = [f"  call void @llvm.x86.tilezero(i8 {j})" for j in range(8)]
    before = ["  call void @llvm.x86.ldtilecfg(ptr @shapes)", *zero]
    text = (
        f"@shapes = internal constant [64 x i8] [{values}], align 64\n"
        "declare void @llvm.x86.ldtilecfg(ptr)\n"
        "declare void @llvm.x86.tilerelease()\n"
        "declare void @llvm.x86.tilezero(i8 immarg)\n"
        f"declare void @llvm.x86.{name}(i8 immarg, i8 immarg, i8 immarg)\n"
    )
    after = ["  call void @llvm.x86.tilerelease()"]
    text += _loop("<4 x float>", [], calls, before, after)
    return Peak(text, 4 * 2.0 * 16 * 16 * 16 * group)


def _loop(sums: str, nexts: list, body: list, before: list, after=()) -> str:
    """A loop that carries as many sums as there are `nexts`, and stores their sum."""
    phis = [
        f"  %s{j} = phi {sums} [ zeroinitializer, %entry ], [ {each}, %loop ]"
        for j, each in enumerate(nexts)
    ]
    add = "add" if "i32" in sums else "fadd"
    total, ends = "zeroinitializer", []
    for j, each in enumerate(nexts):
        ends.append(f"  %t{j} = {add} {sums} {total}, {each}")
        total = f"%t{j}"
    if nexts:
        ends.append(f"  store {sums} {total}, ptr %memory, align 4")
    lines = [
        "define void @peak(i64 %times, ptr %memory) {",
        "entry:",
        *before,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis,
        *body,
        "  %next = add i64 %i, 1",
        "  %more = icmp ult i64 %next, %times",
        "  br i1 %more, label %loop, label %end",
        "end:",
        *ends,
        *after,
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"
