"""Conversions of 16-bit floats that LLVM calls where the CPU has no instruction.

Compilers bring these in a library of theirs, which a Python process rarely has loaded.
The generated code converts whole vectors by itself; these are what is left.
"""

from string import Template

NAMES = (
    "__extendhfsf2",
    "__truncsfhf2",
    "__truncdfhf2",
    "__truncsfbf2",
    "__truncdfbf2",
)

_TEXT = Template("""
define float @__extendhfsf2(half %x) {
entry:
  %h = bitcast half %x to i16
  %wide = zext i16 %h to i32
  %sign_ = and i32 %wide, 32768
  %sign = shl i32 %sign_, 16
  %rest = and i32 %wide, 32767
  %shifted = shl i32 %rest, 13
  %normal = add i32 %shifted, $rebias
  ; of infinity and NaN the exponent stays full, and a NaN is quiet
  %full = or i32 %shifted, 2139095040
  %is_nan = icmp ugt i32 %rest, 31744
  %quiet = or i32 %full, 4194304
  %special = select i1 %is_nan, i32 %quiet, i32 %full
  %count = uitofp i32 %rest to float
  %scaled = fmul float %count, 0x3E70000000000000 ; 2**-24
  %subnormal = bitcast float %scaled to i32
  %is_special = icmp uge i32 %rest, 31744
  %is_small = icmp ult i32 %rest, 1024
  %a = select i1 %is_special, i32 %special, i32 %normal
  %b = select i1 %is_small, i32 %subnormal, i32 %a
  %c = or i32 %b, %sign
  %y = bitcast i32 %c to float
  ret float %y
}

define half @__truncsfhf2(float %x) {
entry:
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %rest = and i32 %bits, 2147483647
  ; to the nearest, ties to even; what is too large overflows to infinity's bits
  %last = lshr i32 %rest, 13
  %odd = and i32 %last, 1
  %less = sub i32 %rest, $rebias
  %half = add i32 %less, 4095
  %tied = add i32 %half, %odd
  %normal = lshr i32 %tied, 13
  ; adding 1/2 lets the addition round at the subnormals' last place
  %size = bitcast i32 %rest to float
  %raised = fadd float %size, 5.0e-01
  %raised_bits = bitcast float %raised to i32
  %subnormal = sub i32 %raised_bits, 1056964608
  %payload_ = lshr i32 %rest, 13
  %payload = and i32 %payload_, 1023
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %rest, 2139095040
  %special = select i1 %is_nan, i32 %nan, i32 31744
  %is_large = icmp uge i32 %rest, 1199570944 ; 2**16
  %is_small = icmp ult i32 %rest, 947912704 ; 2**-14
  %a = select i1 %is_large, i32 %special, i32 %normal
  %b = select i1 %is_small, i32 %subnormal, i32 %a
  %c = or i32 %b, %sign
  %h = trunc i32 %c to i16
  %y = bitcast i16 %h to half
  ret half %y
}

define bfloat @__truncsfbf2(float %x) {
entry:
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %quiet = or i32 %high, 64
  %odd = and i32 %high, 1
  %half = add i32 %bits, 32767
  %tied = add i32 %half, %odd
  %near = lshr i32 %tied, 16
  %is_nan = fcmp uno float %x, %x
  %b = select i1 %is_nan, i32 %quiet, i32 %near
  %h = trunc i32 %b to i16
  %y = bitcast i16 %h to bfloat
  ret bfloat %y
}

; A float to round once more: what is inexact gets an odd last bit, so that the second
; rounding sees on which side of a tie the double was.
define internal float @odd(double %x) {
entry:
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %near to i32
  %last = and i32 %bits, 1
  %even = icmp eq i32 %last, 0
  %move = and i1 %inexact, %even
  %size = call double @llvm.fabs.f64(double %x)
  %back_size = call double @llvm.fabs.f64(double %back)
  %over = fcmp ogt double %back_size, %size
  %step = select i1 %over, i32 -1, i32 1
  %moved = add i32 %bits, %step
  %chosen = select i1 %move, i32 %moved, i32 %bits
  %y = bitcast i32 %chosen to float
  ret float %y
}

define half @__truncdfhf2(double %x) {
  %near = call float @odd(double %x)
  %y = call half @__truncsfhf2(float %near)
  ret half %y
}

define bfloat @__truncdfbf2(double %x) {
  %near = call float @odd(double %x)
  %y = call bfloat @__truncsfbf2(float %near)
  ret bfloat %y
}

declare double @llvm.fabs.f64(double)
""")


def soft_text() -> str:
    """Return the functions of `NAMES`, as LLVM IR."""
    return _TEXT.substitute(rebias=112 << 23)
