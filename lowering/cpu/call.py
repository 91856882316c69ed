"""What XLA calls, as LLVM IR: a frame's buffers gathered, run, and answered."""

from string import Template

from tilejax.lowering.cpu import abi
from tilejax.lowering.cpu.pool import offsets

_RUN = Template("""
; XLA's own question which version of its interface this was written for.
define internal i1 @answered(ptr %frame) {
entry:
  %extension_ = getelementptr i8, ptr %frame, i64 $frame_extension
  %extension = load ptr, ptr %extension_
  %none = icmp eq ptr %extension, null
  br i1 %none, label %no, label %look
look:
  %type_ = getelementptr i8, ptr %extension, i64 $metadata_type
  %type = load i32, ptr %type_
  %asked = icmp eq i32 %type, $metadata_kind
  br i1 %asked, label %answer, label %no
answer:
  %record_ = getelementptr i8, ptr %extension, i64 $metadata_record
  %record = load ptr, ptr %record_
  %major = getelementptr i8, ptr %record, i64 $metadata_major
  store i32 $major, ptr %major
  %minor = getelementptr i8, ptr %record, i64 $metadata_minor
  store i32 $minor, ptr %minor
  %traits = getelementptr i8, ptr %record, i64 $metadata_traits
  store i32 0, ptr %traits
  ret i1 true
no:
  ret i1 false
}

define ptr @tilejax_run(ptr %frame, ptr %plan) {
entry:
  %units = alloca i64, align 8
  %steps = alloca i64, align 8
  %answered = call i1 @answered(ptr %frame)
  br i1 %answered, label %fine, label %staged
staged:
  %stage_ = getelementptr i8, ptr %frame, i64 $frame_stage
  %stage = load i32, ptr %stage_
  %now = icmp eq i32 %stage, $execute
  br i1 %now, label %begin, label %fine
begin:
  %arguments_ = getelementptr i8, ptr %frame, i64 $frame_arguments
  %arguments = load i64, ptr %arguments_
  %results_ = getelementptr i8, ptr %frame, i64 $frame_results
  %results = load i64, ptr %results_
  %buffers = add i64 %arguments, %results
  %slot_bytes = mul i64 %buffers, 8
  %size = add i64 %slot_bytes, $block_and_line
  %allocation = call ptr @malloc(i64 %size)
  %nothing = icmp eq ptr %allocation, null
  br i1 %nothing, label %exhausted, label %gather
gather:
  %address = ptrtoint ptr %allocation to i64
  %past = add i64 %address, 63
  %aligned = and i64 %past, -64
  %skip = sub i64 %aligned, %address
  %block = getelementptr i8, ptr %allocation, i64 %skip
  %allocation_ = getelementptr i8, ptr %block, i64 $block_allocation
  store ptr %allocation, ptr %allocation_
  %plan_ = getelementptr i8, ptr %block, i64 $block_plan
  store ptr %plan, ptr %plan_
  %refs_ = getelementptr i8, ptr %block, i64 $block_refs
  store atomic i64 1, ptr %refs_ release, align 8
  call void @sizes(ptr %frame, ptr %plan, ptr %block, ptr %units, ptr %steps)
  call void @pointers(ptr %frame, ptr %plan, ptr %block)
  %count = load i64, ptr %units
  %step_count = load i64, ptr %steps
  %empty_units = icmp eq i64 %count, 0
  %empty_steps = icmp eq i64 %step_count, 0
  %empty = or i1 %empty_units, %empty_steps
  br i1 %empty, label %finish, label %arm
arm:
  %arena_bytes_ = getelementptr i8, ptr %plan, i64 $plan_arena_bytes
  %arena_bytes = load i64, ptr %arena_bytes_
  %bare = icmp eq i64 %arena_bytes, 0
  br i1 %bare, label %share, label %with
with:
  %arena = call ptr @acquire(i64 %arena_bytes)
  %none = icmp eq ptr %arena, null
  br i1 %none, label %dropped, label %have
have:
  %memory_ = getelementptr %Arena, ptr %arena, i32 0, i32 3
  %own = load ptr, ptr %memory_
  br label %share
share:
  %taken = phi ptr [null, %arm], [%arena, %have]
  %memory = phi ptr [null, %arm], [%own, %have]
  call void @share(ptr %frame, ptr %plan, ptr %block, i64 %count, i64 %step_count)
  call void @drain(ptr %block, ptr %memory)
  %kept = icmp eq ptr %taken, null
  br i1 %kept, label %rest, label %give
give:
  call void @release(ptr %taken)
  br label %rest
rest:
  call void @wait(ptr %block)
  %error = call ptr @verdict(ptr %frame, ptr %plan, ptr %block)
  br label %finish
finish:
  %answer = phi ptr [null, %gather], [%error, %rest]
  call void @drop(ptr %block)
  ret ptr %answer
dropped:
  call void @drop(ptr %block)
  br label %exhausted
exhausted:
  %lack = call ptr @fail(ptr %frame, ptr @trouble, i32 $resource_exhausted)
  ret ptr %lack
fine:
  ret ptr null
}

; Reads the grid sizes that are operands; multiplies units and steps.
define internal void @sizes(ptr %frame, ptr %plan, ptr %block, ptr %units, ptr %steps) {
entry:
  %static_units_ = getelementptr i8, ptr %plan, i64 $plan_static_units
  %static_units = load i64, ptr %static_units_
  store i64 %static_units, ptr %units
  %static_steps_ = getelementptr i8, ptr %plan, i64 $plan_static_steps
  %static_steps = load i64, ptr %static_steps_
  store i64 %static_steps, ptr %steps
  %dynamic_ = getelementptr i8, ptr %plan, i64 $plan_dynamic
  %dynamic = load i64, ptr %dynamic_
  %parallel_ = getelementptr i8, ptr %plan, i64 $plan_parallel_sizes
  %parallel = load i64, ptr %parallel_
  %list_ = getelementptr i8, ptr %frame, i64 $frame_argument_list
  %list = load ptr, ptr %list_
  %slots = getelementptr i8, ptr %block, i64 $block_slots
  br label %next
next:
  %k = phi i64 [0, %entry], [%after, %read]
  %more = icmp slt i64 %k, %dynamic
  br i1 %more, label %read, label %end
read:
  %buffer_ = getelementptr ptr, ptr %list, i64 %k
  %buffer = load ptr, ptr %buffer_
  %data_ = getelementptr i8, ptr %buffer, i64 $buffer_data
  %data = load ptr, ptr %data_
  %given = load i32, ptr %data
  %wide = sext i32 %given to i64
  %size = call i64 @llvm.smax.i64(i64 %wide, i64 0)
  %slot = getelementptr i64, ptr %slots, i64 %k
  store i64 %size, ptr %slot
  %shifted = lshr i64 %parallel, %k
  %bit = trunc i64 %shifted to i1
  %product = select i1 %bit, ptr %units, ptr %steps
  %before = load i64, ptr %product
  %now = mul i64 %before, %size
  store i64 %now, ptr %product
  %after = add i64 %k, 1
  br label %next
end:
  ret void
}

; Copies the addresses of the other operands and of the results.
define internal void @pointers(ptr %frame, ptr %plan, ptr %block) {
entry:
  %dynamic_ = getelementptr i8, ptr %plan, i64 $plan_dynamic
  %dynamic = load i64, ptr %dynamic_
  %arguments_ = getelementptr i8, ptr %frame, i64 $frame_arguments
  %arguments = load i64, ptr %arguments_
  %results_ = getelementptr i8, ptr %frame, i64 $frame_results
  %results = load i64, ptr %results_
  %list_ = getelementptr i8, ptr %frame, i64 $frame_argument_list
  %list = load ptr, ptr %list_
  %out_list_ = getelementptr i8, ptr %frame, i64 $frame_result_list
  %out_list = load ptr, ptr %out_list_
  %slots = getelementptr i8, ptr %block, i64 $block_slots
  %buffers = add i64 %arguments, %results
  br label %next
next:
  %k = phi i64 [%dynamic, %entry], [%after, %stored]
  %more = icmp slt i64 %k, %buffers
  br i1 %more, label %read, label %end
read:
  %result = sub i64 %k, %arguments
  %is_result = icmp sge i64 %result, 0
  %from = select i1 %is_result, ptr %out_list, ptr %list
  %at = select i1 %is_result, i64 %result, i64 %k
  %buffer_ = getelementptr ptr, ptr %from, i64 %at
  %buffer = load ptr, ptr %buffer_
  %data_ = getelementptr i8, ptr %buffer, i64 $buffer_data
  %data = load ptr, ptr %data_
  %slot = getelementptr ptr, ptr %slots, i64 %k
  store ptr %data, ptr %slot
  br i1 %is_result, label %output, label %stored
output: ; a large fresh array would spend its time in page faults
  %bytes_ = getelementptr i8, ptr %plan, i64 $plan_output_bytes
  %bytes__ = getelementptr i64, ptr %bytes_, i64 %result
  %bytes = load i64, ptr %bytes__
  %large = icmp uge i64 %bytes, $large
  br i1 %large, label %advise, label %stored
advise:
  %address = ptrtoint ptr %data to i64
  %low_past = add i64 %address, $huge_less
  %low = and i64 %low_past, -$huge
  %top = add i64 %address, %bytes
  %high = and i64 %top, -$huge
  %length = sub i64 %high, %low
  %start = inttoptr i64 %low to ptr
  $advise
  br label %stored
stored:
  %after = add i64 %k, 1
  br label %next
end:
  ret void
}

; Asks the pool for workers. The caller is one, so a refusal costs only speed.
define internal void @share(ptr %frame, ptr %plan, ptr %block, i64 %units, i64 %steps) {
entry:
  %done_ = getelementptr i8, ptr %block, i64 $block_done
  %units_ = getelementptr i8, ptr %block, i64 $block_units
  %chunk_ = getelementptr i8, ptr %block, i64 $block_chunk
  %refs_ = getelementptr i8, ptr %block, i64 $block_refs
  %fault = getelementptr i8, ptr %block, i64 $block_fault
  %step_ns_ = getelementptr i8, ptr %plan, i64 $plan_step_ns
  %step_ns = load i64, ptr %step_ns_
  %a = sitofp i64 %step_ns to double
  %b = sitofp i64 %steps to double
  %c = sitofp i64 %units to double
  %unit_ns = fmul double %a, %b
  %total = fmul double %unit_ns, %c
  %workers = call i64 @workers(ptr %frame, i64 %units, double %total)
  %chunk = call i64 @chunk(i64 %units, i64 %workers, double %total)
  store i64 %units, ptr %units_
  store i64 %chunk, ptr %chunk_
  store i64 0, ptr %done_
  call void @llvm.memset.p0.i64(ptr %fault, i8 0, i64 128, i1 false)
  store atomic i64 %workers, ptr %refs_ release, align 8
  store atomic i64 0, ptr %block release, align 8
  br label %next
next:
  %k = phi i64 [1, %entry], [%after, %asked], [%after, %refused]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %ask, label %end
ask:
  %after = add i64 %k, 1
  %on = call i1 @ask(ptr %frame, i64 $api_schedule, i64 40, ptr @task, ptr %block)
  br i1 %on, label %asked, label %refused
asked:
  br label %next
refused:
  call void @drop(ptr %block)
  br label %next
end:
  ret void
}

; The error that a checked kernel has recorded, null if none.
define internal ptr @verdict(ptr %frame, ptr %plan, ptr %block) {
entry:
  %text = alloca [$text x i8], align 16
  %describe_ = getelementptr i8, ptr %plan, i64 $plan_describe
  %describe = load ptr, ptr %describe_
  %unchecked = icmp eq ptr %describe, null
  br i1 %unchecked, label %fine, label %look
look:
  %fault = getelementptr i8, ptr %block, i64 $block_fault
  %claimed = load atomic i64, ptr %fault acquire, align 8
  %clean = icmp eq i64 %claimed, 0
  br i1 %clean, label %fine, label %tell
tell:
  store i8 0, ptr %text
  call void %describe(ptr %fault, ptr %text, i64 $text)
  %error = call ptr @fail(ptr %frame, ptr %text, i32 $invalid_argument)
  ret ptr %error
fine:
  ret ptr null
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""")

LARGE = 2**23
"""Outputs of fewer bytes are not worth a system call."""

TEXT = 4096
"""The bytes that a fault's description may take, the closing zero included."""


def call_text(triple: str, version: tuple[int, int], huge: int) -> str:
    """Return `@tilejax_run` for a platform and a version of XLA's interface."""
    names = offsets() | {
        "major": version[0],
        "minor": version[1],
        "execute": abi.EXECUTE,
        "buffer_data": abi.BUFFER_DATA,
        "block_and_line": abi.BLOCK.slots + 64,
        "resource_exhausted": abi.RESOURCE_EXHAUSTED,
        "invalid_argument": abi.INVALID_ARGUMENT,
        "text": TEXT,
        "large": LARGE,
        "huge": huge,
        "huge_less": huge - 1,
        "advise": "call i32 @madvise(ptr %start, i64 %length, i32 14)"
        if "linux" in triple
        else "",
    }
    return _RUN.substitute(names)
