"""Rounding to integers, and the remainder of a division.

Where a host has no instruction for them LLVM would call the C library, which code
that is compiled in process does not link to.
"""

from tilejax.lowering.cpu.math.lanes import each_lane
from tilejax.lowering.cpu.math.real import FORMATS, Real
from tilejax.lowering.cpu.module import Module
from tilejax.lowering.cpu.types import TYPES


def _has_rounding(x: Real) -> bool:
    host = x.nest.function.module.host
    return not host.is_x86 or host.has("sse4.1") or host.has("avx")


def to_even(x: Real) -> Real:
    """Round to the nearest integer, ties to even."""
    if _has_rounding(x):
        return x.call("rint")
    # The sum has no digits after the point.
    magic = 2.0**x.format.digits
    a = abs(x)
    return (a < magic).pick(((a + magic) - magic).with_sign(x), x)


def away(x: Real) -> Real:
    """Round to the nearest integer, ties away from zero."""
    a = abs(x)
    near = to_even(a)
    tie = (a - near).compare("oeq", 0.5)
    return tie.pick(near + 1, near).with_sign(x)


def floor(x: Real) -> Real:
    """Round down."""
    if _has_rounding(x):
        return x.call("floor")
    near = to_even(x)
    return (near > x).pick(near - 1, near).with_sign(x)


def ceil(x: Real) -> Real:
    """Round up."""
    if _has_rounding(x):
        return x.call("ceil")
    near = to_even(x)
    return (near < x).pick(near + 1, near).with_sign(x)


def remainder(x: Real, y: Real) -> Real:
    """Compute the exact remainder of x / y, with the sign of x, as C's `fmod`."""
    return each_lane("remainder", _add_remainder, x, y)


def _add_remainder(module: Module, symbol: str, dtype: str) -> None:
    """Divide the mantissas as integers, as many digits at a time as fit."""
    form, ty = FORMATS[dtype], TYPES[dtype]
    bits, digits = form.bits, form.digits
    word = f"i{bits}"
    infinity = (2 * form.bias + 1) << digits
    lowest, implicit = 1 << (bits - 1), 1 << digits
    step = 63 - digits

    def mantissa(x: str) -> str:
        return f"""
  %{x}.high = lshr {word} %{x}.size, {digits}
  %{x}.small = icmp eq {word} %{x}.high, 0
  %{x}.e = select i1 %{x}.small, {word} 1, {word} %{x}.high
  %{x}.low = and {word} %{x}.size, {implicit - 1}
  %{x}.one = select i1 %{x}.small, {word} 0, {word} {implicit}
  %{x}.digits = or {word} %{x}.low, %{x}.one
  %{x}.m = {"zext" if bits < 64 else "bitcast"} {word} %{x}.digits to i64"""

    module.declare("declare i64 @llvm.ctlz.i64(i64, i1)")
    module.declare("declare i64 @llvm.umin.i64(i64, i64)")
    module.functions[symbol[1:]] = f"""
define internal {ty} {symbol}({ty} %x, {ty} %y) nounwind noinline {{
  %x.bits = bitcast {ty} %x to {word}
  %y.bits = bitcast {ty} %y to {word}
  %sign = and {word} %x.bits, {lowest}
  %x.size = and {word} %x.bits, {lowest - 1}
  %y.size = and {word} %y.bits, {lowest - 1}
  %endless = icmp uge {word} %x.size, {infinity}
  %no.number = icmp ugt {word} %y.size, {infinity}
  %zero = icmp eq {word} %y.size, 0
  %bad.1 = or i1 %endless, %no.number
  %bad = or i1 %bad.1, %zero
  br i1 %bad, label %none, label %check
none:
  ret {ty} 0x7FF8000000000000
check:
  %less = icmp ult {word} %x.size, %y.size
  br i1 %less, label %itself, label %divide
itself:
  ret {ty} %x
divide:{mantissa("x")}{mantissa("y")}
  %distance.w = sub {word} %x.e, %y.e
  %distance = {"zext" if bits < 64 else "bitcast"} {word} %distance.w to i64
  %first = urem i64 %x.m, %y.m
  br label %again
again:
  %left = phi i64 [ %first, %divide ], [ %next, %more ]
  %to.go = phi i64 [ %distance, %divide ], [ %after, %more ]
  %done = icmp eq i64 %to.go, 0
  br i1 %done, label %end, label %more
more:
  %by = call i64 @llvm.umin.i64(i64 %to.go, i64 {step})
  %after = sub i64 %to.go, %by
  %longer = shl i64 %left, %by
  %next = urem i64 %longer, %y.m
  br label %again
end:
  %gap.1 = call i64 @llvm.ctlz.i64(i64 %left, i1 false)
  %gap = sub i64 %gap.1, {63 - digits}
  %e = {"zext" if bits < 64 else "bitcast"} {word} %y.e to i64
  %room = sub i64 %e, 1
  %shift = call i64 @llvm.umin.i64(i64 %gap, i64 %room)
  %lined = shl i64 %left, %shift
  %e.less = sub i64 %room, %shift
  %e.bits = shl i64 %e.less, {digits}
  %sum = add i64 %e.bits, %lined
  %empty = icmp eq i64 %left, 0
  %size = select i1 %empty, i64 0, i64 %sum
  %narrow = {"trunc" if bits < 64 else "bitcast"} i64 %size to {word}
  %signed = or {word} %narrow, %sign
  %result = bitcast {word} %signed to {ty}
  ret {ty} %result
}}"""
