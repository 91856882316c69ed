"""A `pallas_call` whose operands, some of them optional, have names."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Inputs = Mapping[str, tuple[jax.Array | None, pl.BlockSpec | None]]
Outputs = Mapping[str, tuple[jax.ShapeDtypeStruct | None, pl.BlockSpec | None]]


def named_call(
    kernel: Callable[[SimpleNamespace], None],
    *,
    inputs: Inputs,
    outputs: Outputs,
    scratch: Mapping[str, Any] | None = None,
    grid: tuple[int, ...],
    semantics: Sequence[Any],
    name: str,
    interpret: Any = False,
) -> SimpleNamespace:
    """Run a kernel that takes its references by name.

    An operand whose array (or an output whose type) is `None` is not passed at all, and
    its reference is `None` inside the kernel: a kernel with six optional operands is
    then one function that asks `if ref.bias is not None`.

    **Arguments:**

    - `kernel`: A function of a namespace of references.
    - `inputs`: Name to array and block spec.
    - `outputs`: Name to shape with dtype and block spec.
    - `scratch`: Name to memory.
    - `grid`: As `pallas_call` takes it.
    - `semantics`: "parallel" or "arbitrary" for each dimension of the grid.
    - `name`: Of the kernel, in the lowered program.
    - `interpret`: As `pallas_call` takes it.

    **Returns:**

    The outputs as a namespace, `None` where none was wanted.

        >>> def kernel(ref):
        ...     ref.y[...] = ref.x[...] + (1 if ref.bias is None else ref.bias[...])
        >>> x = jax.numpy.zeros(2)
        >>> named_call(
        ...     kernel,
        ...     inputs={"x": (x, pl.BlockSpec()), "bias": (None, None)},
        ...     outputs={"y": (jax.ShapeDtypeStruct((2,), x.dtype), pl.BlockSpec())},
        ...     grid=(1,), semantics=("parallel",), name="add", interpret=True,
        ... ).y.tolist()
        [1.0, 1.0]
    """
    scratch = scratch or {}
    given = {key: pair for key, pair in inputs.items() if pair[0] is not None}
    wanted = {key: pair for key, pair in outputs.items() if pair[0] is not None}
    absent = dict.fromkeys([*inputs, *outputs])
    names = [*given, *wanted, *scratch]

    def body(*refs):
        kernel(SimpleNamespace(**{**absent, **dict(zip(names, refs, strict=True))}))

    results = pl.pallas_call(
        body,
        out_shape=[aval for aval, _ in wanted.values()],
        grid=grid,
        in_specs=[spec for _, spec in given.values()],
        out_specs=[spec for _, spec in wanted.values()],
        scratch_shapes=list(scratch.values()),
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
        interpret=interpret,
        name=name,
    )(*(array for array, _ in given.values()))
    found = dict(zip(wanted, results, strict=True))
    return SimpleNamespace(**{**dict.fromkeys(outputs), **found})
