"""What checks call, as LLVM IR: comparing, marking elements, recording a fault.

All take the state of a grid step, `STATE`: where faults go, which unit it is part of,
and its place in the grid. A word of 32 bits for each element of scratch and outputs
says who has written it: nobody, a unit by its number from one on, or several units by
atomics.
"""

from string import Template

WORDS = 9
"""The grid indices that a record has room for; those of further dimensions are lost."""

STATE = f"{{ ptr, i64, [{WORDS} x i64] }}"

INITIALISED, ATOMIC, UNJUDGED = 1, 2, 4
"""Flags of an access: the memory has had a value from the start; the access is one
that others may do at the same time; what others wrote is not judged."""

KINDS = {
    "bounds": ": index \2 is outside of dimension \1, of size \3; grid step \6",
    "block": " starts at \2 along dimension \1 of its array, of size \3, and so is "
    "outside of it; grid step \6",
    "unwritten": ": element \4 has not been written before; grid step \6",
    "both": ": element \4 is written by another parallel index of the grid, too\5; "
    "grid step \6",
    "missing": ": element \4 is never written",
    "race": ": element \4 is written by another parallel index of the grid\5; "
    "grid step \6",
    "semaphore": ": no signal is left, the count becomes \2; grid step \6",
}
"""What each kind of fault says. A byte from 1 to 6 stands for the record's first,
second or third number, for the element, for who else wrote it, for the grid step."""

NUMBER = {name: number for number, name in enumerate(KINDS, 1)}

_RUNTIME = Template("""
define internal void @checked_record(ptr %state, i64 %kind, i64 %site, i64 %a, i64 %b,
                                     i64 %c) noinline cold {
entry:
  %fault = load ptr, ptr %state
  %pair = cmpxchg ptr %fault, i64 0, i64 1 acq_rel monotonic
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %record, label %end
record:
  %kind_ = getelementptr i64, ptr %fault, i64 1
  store i64 %kind, ptr %kind_
  %site_ = getelementptr i64, ptr %fault, i64 2
  store i64 %site, ptr %site_
  %a_ = getelementptr i64, ptr %fault, i64 3
  store i64 %a, ptr %a_
  %b_ = getelementptr i64, ptr %fault, i64 4
  store i64 %b, ptr %b_
  %c_ = getelementptr i64, ptr %fault, i64 5
  store i64 %c, ptr %c_
  %ids_ = getelementptr i64, ptr %fault, i64 6
  %ids = getelementptr i64, ptr %state, i64 2
  call void @llvm.memcpy.p0.p0.i64(ptr %ids_, ptr %ids, i64 $ids_bytes, i1 false)
  br label %end
end:
  ret void
}

; The indices of a span along a dimension: both of its ends are inside.
define internal void @checked_span(ptr %state, i64 %site, i64 %dim, i64 %first,
                                   i64 %last, i64 %size) noinline {
entry:
  %low = icmp uge i64 %first, %size
  %high = icmp uge i64 %last, %size
  %bad = or i1 %low, %high
  br i1 %bad, label %record, label %end
record:
  %index = select i1 %low, i64 %first, i64 %last
  call void @checked_record(ptr %state, i64 $bounds, i64 %site, i64 %dim, i64 %index,
                            i64 %size)
  br label %end
end:
  ret void
}

; One index, where a mask lets it count; whether it does and is inside.
define internal i1 @checked_one(ptr %state, i64 %site, i64 %dim, i1 %active, i64 %index,
                                i64 %size) noinline {
entry:
  %outside = icmp uge i64 %index, %size
  %bad = and i1 %active, %outside
  br i1 %bad, label %record, label %fine
fine:
  ret i1 %active
record:
  call void @checked_record(ptr %state, i64 $bounds, i64 %site, i64 %dim, i64 %index,
                            i64 %size)
  ret i1 false
}

; A block of an array: it starts inside.
define internal void @checked_block(ptr %state, i64 %site, i64 %dim, i64 %first,
                                    i64 %size) noinline {
entry:
  %bad = icmp uge i64 %first, %size
  br i1 %bad, label %record, label %end
record:
  call void @checked_record(ptr %state, i64 $block, i64 %site, i64 %dim, i64 %first,
                            i64 %size)
  br label %end
end:
  ret void
}

define internal void @checked_semaphore(ptr %state, i64 %site, i32 %count) noinline {
entry:
  %bad = icmp slt i32 %count, 0
  br i1 %bad, label %record, label %end
record:
  %wide = sext i32 %count to i64
  call void @checked_record(ptr %state, i64 $semaphore, i64 %site, i64 0, i64 %wide,
                            i64 0)
  br label %end
end:
  ret void
}

; `count` elements are read, `stride` apart, the first one at `offset`.
define internal void @checked_read(ptr %state, i64 %site, ptr %owners, i64 %offset,
                                   i64 %count, i64 %stride, i64 %flags) noinline {
entry:
  %me_ = getelementptr i64, ptr %state, i64 1
  %me__ = load i64, ptr %me_
  %me = trunc i64 %me__ to i32
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %fine]
  %at = phi i64 [%offset, %entry], [%at_after, %fine]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %end
look:
  %word_ = getelementptr i32, ptr %owners, i64 %at
  %word = load atomic i32, ptr %word_ monotonic, align 4
  %own = icmp eq i32 %word, %me
  br i1 %own, label %fine, label %other
fine:
  %after = add i64 %i, 1
  %at_after = add i64 %at, %stride
  br label %next
other:
  %nobody = icmp eq i32 %word, 0
  %allowed = select i1 %nobody, i64 $initialised, i64 $unjudged
  %given = and i64 %flags, %allowed
  %told = icmp ne i64 %given, 0
  %shared = icmp eq i32 %word, -1
  %good = or i1 %told, %shared
  br i1 %good, label %fine, label %record
record:
  %kind = select i1 %nobody, i64 $unwritten, i64 $race
  %wide = zext i32 %word to i64
  call void @checked_record(ptr %state, i64 %kind, i64 %site, i64 %at, i64 %wide, i64 0)
  br label %end
end:
  ret void
}

; The same elements are written, or changed by atomics.
define internal void @checked_write(ptr %state, i64 %site, ptr %owners, i64 %offset,
                                    i64 %count, i64 %stride, i64 %flags) noinline {
entry:
  %me_ = getelementptr i64, ptr %state, i64 1
  %me__ = load i64, ptr %me_
  %me = trunc i64 %me__ to i32
  %atomic_ = and i64 %flags, $atomic
  %atomic = icmp ne i64 %atomic_, 0
  %initialised_ = and i64 %flags, $initialised
  %initialised = icmp ne i64 %initialised_, 0
  %unjudged_ = and i64 %flags, $unjudged
  %unjudged = icmp ne i64 %unjudged_, 0
  %mark = select i1 %atomic, i32 -1, i32 %me
  %no_value = xor i1 %initialised, true
  %lacking = and i1 %atomic, %no_value
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %fine]
  %at = phi i64 [%offset, %entry], [%at_after, %fine]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %end
look:
  %word_ = getelementptr i32, ptr %owners, i64 %at
  %word = load atomic i32, ptr %word_ monotonic, align 4
  %own = icmp eq i32 %word, %me
  br i1 %own, label %fine, label %other
fine:
  %after = add i64 %i, 1
  %at_after = add i64 %at, %stride
  br label %next
other:
  %nobody = icmp eq i32 %word, 0
  br i1 %nobody, label %first, label %second
first:
  br i1 %lacking, label %record, label %claim
claim:
  %pair = cmpxchg ptr %word_, i32 0, i32 %mark monotonic monotonic, align 4
  %done = extractvalue { i32, i1 } %pair, 1
  br i1 %done, label %fine, label %look
second:
  %shared_ = icmp eq i32 %word, -1
  %shared = and i1 %shared_, %atomic
  %good = or i1 %shared, %unjudged
  br i1 %good, label %fine, label %record
record:
  %kind = phi i64 [$unwritten, %first], [$both, %second]
  %wide = zext i32 %word to i64
  call void @checked_record(ptr %state, i64 %kind, i64 %site, i64 %at, i64 %wide, i64 0)
  br label %end
end:
  ret void
}

; After the last unit: every element of an output has been written.
define internal void @checked_whole(ptr %state, i64 %site, ptr %owners,
                                    i64 %count) noinline {
entry:
  br label %next
next:
  %at = phi i64 [0, %entry], [%after, %look]
  %more = icmp slt i64 %at, %count
  br i1 %more, label %look, label %end
look:
  %word_ = getelementptr i32, ptr %owners, i64 %at
  %word = load atomic i32, ptr %word_ monotonic, align 4
  %after = add i64 %at, 1
  %missing = icmp eq i32 %word, 0
  br i1 %missing, label %record, label %next
record:
  call void @checked_record(ptr %state, i64 $missing, i64 %site, i64 %at, i64 0, i64 0)
  br label %end
end:
  ret void
}
""")


def runtime_text() -> str:
    """Return the functions that checks call."""
    return _RUNTIME.substitute(
        NUMBER,
        ids_bytes=8 * WORDS,
        initialised=INITIALISED,
        atomic=ATOMIC,
        unjudged=UNJUDGED,
    )
