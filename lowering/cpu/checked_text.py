"""`@describe`: the text of a recorded fault, written by the kernel itself."""

from collections.abc import Sequence

from tilejax.lowering.cpu.checked_runtime import KINDS
from tilejax.lowering.cpu.module import Module

MARK = "(tilejax.checked)"
"""The end of every text, by which a fault is known among XLA's errors."""

_DESCRIBE = r"""
define internal void @put_byte(ptr %text, i64 %size, ptr %end, i8 %byte) {
entry:
  %at = load i64, ptr %end
  %after = add i64 %at, 1
  %fits = icmp slt i64 %after, %size
  br i1 %fits, label %put, label %full
put:
  %place = getelementptr i8, ptr %text, i64 %at
  store i8 %byte, ptr %place
  %rest = getelementptr i8, ptr %text, i64 %after
  store i8 0, ptr %rest
  store i64 %after, ptr %end
  br label %full
full:
  ret void
}

define internal void @put_number(ptr %text, i64 %size, ptr %end, i64 %number) {
entry:
  %negative = icmp slt i64 %number, 0
  br i1 %negative, label %sign, label %positive
sign:
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 45)
  %minus = sub i64 0, %number
  br label %positive
positive:
  %value = phi i64 [%number, %entry], [%minus, %sign]
  %long = icmp uge i64 %value, 10
  %head = udiv i64 %value, 10
  br i1 %long, label %more, label %last
more:
  call void @put_number(ptr %text, i64 %size, ptr %end, i64 %head)
  br label %last
last:
  %rest = urem i64 %value, 10
  %digit = add i64 %rest, 48
  %byte = trunc i64 %digit to i8
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 %byte)
  ret void
}

; The indices of the element of a number in row-major order.
define internal void @put_place(ptr %text, i64 %size, ptr %end, i64 %number, i64 %rank,
                                ptr %shape) {
entry:
  %none = icmp eq i64 %rank, 0
  br i1 %none, label %done, label %some
some:
  %d = sub i64 %rank, 1
  %is_first = icmp eq i64 %d, 0
  br i1 %is_first, label %write, label %outer
outer:
  %count_ = getelementptr i64, ptr %shape, i64 %d
  %count = load i64, ptr %count_
  %head = udiv i64 %number, %count
  %inner = urem i64 %number, %count
  call void @put_place(ptr %text, i64 %size, ptr %end, i64 %head, i64 %d, ptr %shape)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 44)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 32)
  br label %write
write:
  %index = phi i64 [%number, %some], [%inner, %outer]
  call void @put_number(ptr %text, i64 %size, ptr %end, i64 %index)
  br label %done
done:
  ret void
}

define internal void @put_words(ptr %text, i64 %size, ptr %end, ptr %words,
                                i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %write]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %comma, label %done
comma:
  %is_first = icmp eq i64 %i, 0
  br i1 %is_first, label %write, label %apart
apart:
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 44)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 32)
  br label %write
write:
  %word_ = getelementptr i64, ptr %words, i64 %i
  %word = load i64, ptr %word_
  call void @put_number(ptr %text, i64 %size, ptr %end, i64 %word)
  %after = add i64 %i, 1
  br label %next
done:
  ret void
}

; A text in which a byte from 1 to 6 stands for a part of the record.
define internal void @put(ptr %text, i64 %size, ptr %end, ptr %from, ptr %fault,
                          ptr %site) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %again]
  %byte_ = getelementptr i8, ptr %from, i64 %i
  %byte = load i8, ptr %byte_
  %after = add i64 %i, 1
  switch i8 %byte, label %plain [
    i8 0, label %done
    i8 1, label %number
    i8 2, label %number
    i8 3, label %number
    i8 4, label %element
    i8 5, label %other
    i8 6, label %step
  ]
plain:
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 %byte)
  br label %again
number:
  %which = zext i8 %byte to i64
  %word = add i64 %which, 2
  %number_ = getelementptr i64, ptr %fault, i64 %word
  %value = load i64, ptr %number_
  call void @put_number(ptr %text, i64 %size, ptr %end, i64 %value)
  br label %again
element:
  %element_ = getelementptr i64, ptr %fault, i64 3
  %which_one = load i64, ptr %element_
  %rank_ = getelementptr { ptr, i64, ptr }, ptr %site, i32 0, i32 1
  %rank = load i64, ptr %rank_
  %shape_ = getelementptr { ptr, i64, ptr }, ptr %site, i32 0, i32 2
  %shape = load ptr, ptr %shape_
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 40)
  call void @put_place(ptr %text, i64 %size, ptr %end, i64 %which_one, i64 %rank,
                       ptr %shape)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 41)
  br label %again
other:
  %many = icmp eq i64 UNITS, 0
  br i1 %many, label %again, label %unit
unit:
  %unit_ = getelementptr i64, ptr %fault, i64 4
  %unit_number = load i64, ptr %unit_
  %from_zero = sub i64 %unit_number, 1
  %known = icmp ult i64 %from_zero, UNITS
  br i1 %known, label %tell, label %again
tell:
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 32)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 40)
  call void @put_place(ptr %text, i64 %size, ptr %end, i64 %from_zero, i64 PARALLEL,
                       ptr @checked_parallel)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 41)
  br label %again
step:
  %ids = getelementptr i64, ptr %fault, i64 6
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 40)
  call void @put_words(ptr %text, i64 %size, ptr %end, ptr %ids, i64 RANK)
  call void @put_byte(ptr %text, i64 %size, ptr %end, i8 41)
  br label %again
again:
  br label %next
done:
  ret void
}

define internal void @describe(ptr %fault, ptr %text, i64 %size) {
entry:
  %end = alloca i64
  store i64 0, ptr %end
  %kind_ = getelementptr i64, ptr %fault, i64 1
  %kind = load i64, ptr %kind_
  %site_ = getelementptr i64, ptr %fault, i64 2
  %number = load i64, ptr %site_
  %site = getelementptr { ptr, i64, ptr }, ptr @checked_sites, i64 %number
  %place = load ptr, ptr %site
  call void @put(ptr %text, i64 %size, ptr %end, ptr %place, ptr %fault, ptr %site)
  %words_ = getelementptr ptr, ptr @checked_kinds, i64 %kind
  %words = load ptr, ptr %words_
  call void @put(ptr %text, i64 %size, ptr %end, ptr %words, ptr %fault, ptr %site)
  ret void
}
"""

_LONGEST = 1500
"""Bytes of a site's text, so that the fault's own words have room."""


def add_describe(
    module: Module,
    sites: Sequence[tuple[str, tuple[int, ...]]],
    rank: int,
    parallel: Sequence[int],
) -> None:
    """Add `@describe` and what it says.

    **Arguments:**

    - `sites`: for each number of a site what happens there, and the shape of the memory
      that elements are counted in.
    - `rank`: how many grid indices are told.
    - `parallel`: the sizes of the parallel dimensions; () if they are not all known.
    """
    units = 1 if parallel else 0
    for size in parallel:
        units *= max(size, 1)
    _numbers(module, "@checked_parallel", parallel)
    kinds = ["ptr null"]
    for number, text in enumerate(KINDS.values(), 1):
        name = f"@checked_kind{number}"
        _text(module, name, f"{text} {MARK}")
        kinds.append(f"ptr {name}")
    module.globals["@checked_kinds"] = _array("ptr", kinds)
    records = []
    for number, (text, shape) in enumerate(sites):
        name, sizes = f"@checked_site{number}", f"@checked_shape{number}"
        _text(module, name, text[:_LONGEST])
        _numbers(module, sizes, shape)
        records.append(f"{_SITE} {{ ptr {name}, i64 {len(shape)}, ptr {sizes} }}")
    module.globals["@checked_sites"] = _array(_SITE, records)
    text = _DESCRIBE.replace("UNITS", str(units))
    text = text.replace("PARALLEL", str(len(parallel))).replace("RANK", str(rank))
    module.functions["describe"] = text


_SITE = "{ ptr, i64, ptr }"


def _array(ty: str, values: Sequence[str]) -> str:
    return f"internal constant [{len(values)} x {ty}] [{', '.join(values)}]"


def _numbers(module: Module, name: str, numbers: Sequence[int]) -> None:
    module.globals[name] = _array("i64", [f"i64 {n}" for n in numbers])


def _text(module: Module, name: str, text: str) -> None:
    data = text.encode() + b"\0"
    spelled = "".join(
        chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data
    )
    module.globals[name] = f'internal constant [{len(data)} x i8] c"{spelled}"'
