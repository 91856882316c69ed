"""The part of a call that is the same for all kernels, as LLVM IR.

`tilejax_run` is what every kernel's handler calls. The caller claims units by an atomic
counter like every worker, drains them itself, and then waits only for units that
somebody has claimed; a task that has not started is never waited for. So a pool of one
thread, a busy pool and handlers inside handlers cannot hang.
"""

from string import Template

from tilejax.lowering.cpu import abi
from tilejax.lowering.cpu.scratch import HUGE, scratch_text

SHARE_NS = 20_000
"""The least work that is worth waking a thread for."""

CLAIM_NS = 4_000
"""The work to claim at once, so that the shared counter costs next to nothing."""

_WORKER = Template("""
; Runs units until none is left.
define internal void @drain(ptr %block, ptr %memory) {
entry:
  %plan_ = getelementptr i8, ptr %block, i64 $block_plan
  %plan = load ptr, ptr %plan_
  %run_ = getelementptr i8, ptr %plan, i64 $plan_units
  %run = load ptr, ptr %run_
  %enter_ = getelementptr i8, ptr %plan, i64 $plan_enter
  %enter = load ptr, ptr %enter_
  %leave_ = getelementptr i8, ptr %plan, i64 $plan_leave
  %leave = load ptr, ptr %leave_
  %describe_ = getelementptr i8, ptr %plan, i64 $plan_describe
  %describe = load ptr, ptr %describe_
  %unchecked = icmp eq ptr %describe, null
  %record = getelementptr i8, ptr %block, i64 $block_fault
  %fault = select i1 %unchecked, ptr null, ptr %record
  %units_ = getelementptr i8, ptr %block, i64 $block_units
  %units = load i64, ptr %units_
  %chunk_ = getelementptr i8, ptr %block, i64 $block_chunk
  %chunk = load i64, ptr %chunk_
  %done = getelementptr i8, ptr %block, i64 $block_done
  %plain = icmp eq ptr %enter, null
  br i1 %plain, label %claim, label %set
set:
  call void %enter()
  br label %claim
claim:
  %from = atomicrmw add ptr %block, i64 %chunk monotonic
  %left = icmp slt i64 %from, %units
  br i1 %left, label %some, label %over
some:
  %past = add i64 %from, %chunk
  %to = call i64 @llvm.smin.i64(i64 %past, i64 %units)
  call void %run(ptr %block, i64 %from, i64 %to, ptr %memory, ptr %fault)
  %count = sub i64 %to, %from
  %ignored = atomicrmw add ptr %done, i64 %count acq_rel
  br label %claim
over:
  br i1 %plain, label %end, label %reset
reset:
  call void %leave()
  br label %end
end:
  ret void
}

; A task of XLA's pool.
define internal void @task(ptr %block) {
entry:
  %next = load atomic i64, ptr %block acquire, align 8
  %units_ = getelementptr i8, ptr %block, i64 $block_units
  %units = load i64, ptr %units_
  %late = icmp sge i64 %next, %units
  br i1 %late, label %end, label %work
work:
  %plan_ = getelementptr i8, ptr %block, i64 $block_plan
  %plan = load ptr, ptr %plan_
  %bytes_ = getelementptr i8, ptr %plan, i64 $plan_arena_bytes
  %bytes = load i64, ptr %bytes_
  %bare = icmp eq i64 %bytes, 0
  br i1 %bare, label %without, label %with
without:
  call void @drain(ptr %block, ptr null)
  br label %end
with: ; without memory, this worker leaves the units to the others
  %arena = call ptr @acquire(i64 %bytes)
  %none = icmp eq ptr %arena, null
  br i1 %none, label %end, label %have
have:
  %memory_ = getelementptr %Arena, ptr %arena, i32 0, i32 3
  %memory = load ptr, ptr %memory_
  call void @drain(ptr %block, ptr %memory)
  call void @release(ptr %arena)
  br label %end
end:
  call void @drop(ptr %block)
  ret void
}

define internal void @drop(ptr %block) {
entry:
  %refs = getelementptr i8, ptr %block, i64 $block_refs
  %before = atomicrmw sub ptr %refs, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %free, label %end
free:
  %allocation_ = getelementptr i8, ptr %block, i64 $block_allocation
  %allocation = load ptr, ptr %allocation_
  call void @free(ptr %allocation)
  br label %end
end:
  ret void
}

; Waits until the claimed units are done: briefly at full speed, then politely, since
; whoever runs them may need this very core.
define internal void @wait(ptr %block) {
entry:
  %units_ = getelementptr i8, ptr %block, i64 $block_units
  %units = load i64, ptr %units_
  %done_ = getelementptr i8, ptr %block, i64 $block_done
  br label %look
look:
  %tries = phi i64 [0, %entry], [%more, %spin], [%more, %yield], [%more, %sleep]
  %more = add i64 %tries, 1
  %done = load atomic i64, ptr %done_ acquire, align 8
  %over = icmp sge i64 %done, %units
  br i1 %over, label %end, label %not_yet
not_yet:
  %soon = icmp ult i64 %tries, 200
  br i1 %soon, label %spin, label %longer
spin:
  $pause
  br label %look
longer:
  %moderate = icmp ult i64 %tries, 1000
  br i1 %moderate, label %yield, label %sleep
yield:
  %yielded = call i32 @sched_yield()
  br label %look
sleep:
  %slept = call i32 @usleep(i32 50)
  br label %look
end:
  ret void
}
""")

_THREADS = Template("""
@threads = internal global i64 1
@trouble = internal constant [42 x i8] c"tilejax: no memory for a kernel's scratch\\00"

; The most workers of a call, of which the process may run fewer than XLA's pool has.
define void @tilejax_set_threads(i64 %count) {
  store atomic i64 %count, ptr @threads monotonic, align 8
  ret void
}

define internal ptr @fail(ptr %frame, ptr %text, i32 %code) {
entry:
  %arguments = alloca { i64, ptr, ptr, i32 }, align 8
  %api_ = getelementptr i8, ptr %frame, i64 $frame_api
  %api = load ptr, ptr %api_
  %create_ = getelementptr i8, ptr %api, i64 $api_error_create
  %create = load ptr, ptr %create_
  store i64 28, ptr %arguments
  %field1 = getelementptr i8, ptr %arguments, i64 8
  store ptr null, ptr %field1
  %field2 = getelementptr i8, ptr %arguments, i64 16
  store ptr %text, ptr %field2
  %field3 = getelementptr i8, ptr %arguments, i64 24
  store i32 %code, ptr %field3
  %error = call ptr %create(ptr %arguments)
  ret ptr %error
}

; Calls a function of XLA's on the pool: true if it went well.
define internal i1 @ask(ptr %frame, i64 %which, i64 %size, ptr %a, ptr %b) {
entry:
  %arguments = alloca { i64, ptr, ptr, ptr, ptr }, align 8
  %destruction = alloca { i64, ptr, ptr }, align 8
  %api_ = getelementptr i8, ptr %frame, i64 $frame_api
  %api = load ptr, ptr %api_
  %context_ = getelementptr i8, ptr %frame, i64 $frame_context
  %context = load ptr, ptr %context_
  store i64 %size, ptr %arguments
  %field1 = getelementptr i8, ptr %arguments, i64 8
  store ptr null, ptr %field1
  %field2 = getelementptr i8, ptr %arguments, i64 16
  store ptr %context, ptr %field2
  %field3 = getelementptr i8, ptr %arguments, i64 24
  store ptr %a, ptr %field3
  %field4 = getelementptr i8, ptr %arguments, i64 32
  store ptr %b, ptr %field4
  %function_ = getelementptr i8, ptr %api, i64 %which
  %function = load ptr, ptr %function_
  %error = call ptr %function(ptr %arguments)
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %end, label %destroy
destroy:
  %destroy_ = getelementptr i8, ptr %api, i64 $api_error_destroy
  %destroyer = load ptr, ptr %destroy_
  store i64 24, ptr %destruction
  %field5 = getelementptr i8, ptr %destruction, i64 8
  store ptr null, ptr %field5
  %field6 = getelementptr i8, ptr %destruction, i64 16
  store ptr %error, ptr %field6
  call void %destroyer(ptr %destruction)
  br label %end
end:
  ret i1 %fine
}

; How many workers this many units of so many steps are worth.
define internal i64 @workers(ptr %frame, i64 %units, double %total) {
entry:
  %threads = alloca i64, align 8
  store i64 1, ptr %threads
  %asked = call i1 @ask(ptr %frame, i64 $api_threads, i64 32, ptr %threads, ptr null)
  %pool = load i64, ptr %threads
  %allowed = load atomic i64, ptr @threads monotonic, align 8
  %a = call i64 @llvm.smin.i64(i64 %pool, i64 %allowed)
  %b = call i64 @llvm.smin.i64(i64 %a, i64 %units)
  %unknown = fcmp oeq double %total, 0.0
  %shares = fdiv double %total, $share_ns.0
  %few = call double @llvm.minnum.f64(double %shares, double 1.0e6)
  %whole = fptosi double %few to i64
  %c = call i64 @llvm.smin.i64(i64 %b, i64 %whole)
  %d = select i1 %unknown, i64 %b, i64 %c
  %e = call i64 @llvm.smax.i64(i64 %d, i64 1)
  ret i64 %e
}

; How many units to claim at once.
define internal i64 @chunk(i64 %units, i64 %workers, double %total) {
entry:
  %one = icmp eq i64 %workers, 1
  br i1 %one, label %all, label %part
all:
  ret i64 %units
part:
  %count = sitofp i64 %units to double
  %each = fdiv double %total, %count
  %cheap = call double @llvm.maxnum.f64(double %each, double 1.0e-3)
  %fit = fdiv double $claim_ns.0, %cheap
  %whole = fptosi double %fit to i64
  %unknown = fcmp oeq double %total, 0.0
  %wanted = select i1 %unknown, i64 1, i64 %whole
  %quarters = mul i64 %workers, 4
  %most = sdiv i64 %units, %quarters
  %some = call i64 @llvm.smin.i64(i64 %wanted, i64 %most)
  %chunk = call i64 @llvm.smax.i64(i64 %some, i64 1)
  ret i64 %chunk
}
""")

_DECLARATIONS = """
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare double @llvm.minnum.f64(double, double)
declare double @llvm.maxnum.f64(double, double)
"""


def pool_text(triple: str) -> str:
    """Return the functions that share out a call's units, for a platform."""
    pause, declaration = _pause(triple)
    names = offsets() | {
        "share_ns": SHARE_NS,
        "claim_ns": CLAIM_NS,
        "huge": HUGE,
        "pause": pause,
    }
    templates = (_WORKER, _THREADS)
    text = [template.substitute(names) for template in templates]
    return "\n".join([_DECLARATIONS, declaration, scratch_text(triple), *text])


def offsets() -> dict[str, int]:
    """Return every offset of the shared records under `<record>_<field>`."""
    records = {
        "plan": abi.PLAN,
        "block": abi.BLOCK,
        "frame": abi.FRAME,
        "api": abi.API,
        "metadata": abi.METADATA,
    }
    return {
        f"{record}_{field}": offset
        for record, fields in records.items()
        for field, offset in vars(fields).items()
    }


def _pause(triple: str) -> tuple[str, str]:
    """Return what tells the processor that this is a waiting loop."""
    if triple.startswith("x86_64"):
        name = "@llvm.x86.sse2.pause"
        return f"call void {name}()", f"declare void {name}()"
    if triple.startswith(("aarch64", "arm64")):
        name = "@llvm.aarch64.hint"
        return f"call void {name}(i32 1)", f"declare void {name}(i32)"
    return "", ""
