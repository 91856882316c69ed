"""Scratch memory of workers, as LLVM IR: one table for all kernels of the process.

A worker takes the first free arena and grows it to what its kernel needs, so there are
never more arenas than workers at once, nor larger ones than the largest kernel's.
"""

from string import Template

SLOTS = 64
HUGE = 2**21
KEPT = 2**28
"""Larger arenas are given back after use: they pay for their page faults."""

_TEXT = Template("""
%Arena = type { i64, ptr, i64, ptr, [32 x i8] } ; taken, allocation, bytes, memory
@arenas = internal global [$slots x %Arena] zeroinitializer, align 64

declare ptr @malloc(i64)
declare void @free(ptr)
$declare_advise

; Returns an arena of at least so many bytes, null if there is no memory.
define internal ptr @acquire(i64 %bytes) {
entry:
  br label %look
look:
  %slot = phi i64 [0, %entry], [%next, %taken]
  %found = getelementptr [$slots x %Arena], ptr @arenas, i64 0, i64 %slot
  %claim = cmpxchg ptr %found, i64 0, i64 1 acquire monotonic
  %won = extractvalue {i64, i1} %claim, 1
  br i1 %won, label %mine, label %taken
taken:
  %next = add i64 %slot, 1
  %more = icmp ult i64 %next, $slots
  br i1 %more, label %look, label %beyond
beyond: ; more workers than slots: one for this once, told by its 2
  %once = call ptr @malloc(i64 64)
  %nothing = icmp eq ptr %once, null
  br i1 %nothing, label %none, label %blank
blank:
  store %Arena zeroinitializer, ptr %once
  store i64 2, ptr %once
  br label %mine
mine:
  %arena = phi ptr [%found, %look], [%once, %blank]
  %allocation = getelementptr %Arena, ptr %arena, i32 0, i32 1
  %size = getelementptr %Arena, ptr %arena, i32 0, i32 2
  %memory = getelementptr %Arena, ptr %arena, i32 0, i32 3
  %have = load i64, ptr %size
  %enough = icmp uge i64 %have, %bytes
  br i1 %enough, label %give, label %grow
grow:
  %old = load ptr, ptr %allocation
  call void @free(ptr %old)
  %huge = icmp uge i64 %bytes, $huge
  %unit = select i1 %huge, i64 $huge, i64 4096
  %short = sub i64 %unit, 1
  %mask = sub i64 0, %unit
  %up = add i64 %bytes, %short
  %whole = and i64 %up, %mask
  %total = add i64 %whole, %unit
  %new = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %new, null
  %got = select i1 %failed, i64 0, i64 %whole
  store ptr %new, ptr %allocation
  store i64 %got, ptr %size
  br i1 %failed, label %fail, label %align
align:
  %address = ptrtoint ptr %new to i64
  %past = add i64 %address, %short
  %at = and i64 %past, %mask
  %skip = sub i64 %at, %address
  %aligned = getelementptr i8, ptr %new, i64 %skip
  store ptr %aligned, ptr %memory
  br i1 %huge, label %advise, label %give
advise:
  $advise
  br label %give
fail:
  call void @release(ptr %arena)
  br label %none
none:
  ret ptr null
give:
  ret ptr %arena
}

define internal void @release(ptr %arena) {
entry:
  %kind = load i64, ptr %arena
  %once = icmp eq i64 %kind, 2
  %allocation = getelementptr %Arena, ptr %arena, i32 0, i32 1
  %size = getelementptr %Arena, ptr %arena, i32 0, i32 2
  %bytes = load i64, ptr %size
  %large = icmp ugt i64 %bytes, $kept
  %give = or i1 %once, %large
  br i1 %give, label %back, label %keep
back:
  %old = load ptr, ptr %allocation
  call void @free(ptr %old)
  store ptr null, ptr %allocation
  store i64 0, ptr %size
  br i1 %once, label %forget, label %keep
forget:
  call void @free(ptr %arena)
  ret void
keep:
  store atomic i64 0, ptr %arena release, align 8
  ret void
}
""")


def scratch_text(triple: str) -> str:
    """Return the functions `@acquire` and `@release` for a platform."""
    linux = "linux" in triple
    return _TEXT.substitute(
        slots=SLOTS,
        huge=HUGE,
        kept=KEPT,
        # MADV_HUGEPAGE: where the system leaves huge pages to those who ask.
        declare_advise="declare i32 @madvise(ptr, i64, i32)" if linux else "",
        advise="call i32 @madvise(ptr %aligned, i64 %whole, i32 14)" if linux else "",
    )
