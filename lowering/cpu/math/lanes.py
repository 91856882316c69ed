"""Functions with loops and branches, which run for one lane after another."""

from collections.abc import Callable

from tilejax.lowering.cpu.math.real import Real
from tilejax.lowering.cpu.module import Function, Module
from tilejax.lowering.cpu.types import TYPES, Elt


def each_lane(
    name: str, define: Callable[[Module, str, str], None], *args: Real
) -> Real:
    """Call a scalar function on every lane.

    **Arguments:**

    - `name`: of the function.
    - `define`: given a module, a symbol and a dtype, adds the scalar function.
    - `args`: one or more numbers of one dtype.
    """
    nest, dtype = args[0].nest, args[0].dtype
    module, ty = nest.function.module, TYPES[dtype]
    symbol = f"@math.{name}.{ty}"
    if symbol[1:] not in module.functions:
        define(module, symbol, dtype)
    vector, texts = nest.operands(*(a.elt for a in args))
    if vector:
        many = f"@math.{name}.v{nest.lanes}{ty}"
        if many[1:] not in module.functions:
            _add_loop(module, many, symbol, dtype, nest.lanes, len(args))
        symbol = many
    whole = nest.spell(dtype, vector)
    operands = ", ".join(f"{whole} {t}" for t in texts)
    call = nest.emit(f"call {whole} {symbol}({operands})", *texts)
    return Real(nest, Elt(call, dtype, vector))


def _add_loop(
    module: Module, symbol: str, scalar: str, dtype: str, lanes: int, arity: int
) -> None:
    ty = TYPES[dtype]
    whole = f"<{lanes} x {ty}>"
    names = [f"%x{i}" for i in range(arity)]
    inputs = ", ".join(f"{whole} {name}" for name in names)
    function = Function(module, f"define internal {whole} {symbol}({inputs}) nounwind")
    result = function.alloca(whole)
    function.line(f"store {whole} zeroinitializer, ptr {result}")
    with function.loop(lanes) as lane:
        parts = []
        for name in names:
            part = function.name()
            function.line(f"{part} = extractelement {whole} {name}, i64 {lane}")
            parts.append(f"{ty} {part}")
        one, place = function.name(), function.name()
        function.line(f"{one} = call {ty} {scalar}({', '.join(parts)})")
        function.line(f"{place} = getelementptr {ty}, ptr {result}, i64 {lane}")
        function.line(f"store {ty} {one}, ptr {place}")
    final = function.name()
    function.line(f"{final} = load {whole}, ptr {result}")
    function.finish(f"ret {whole} {final}")
