"""Pallas calls, seen alike in all supported versions of JAX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax._src import core, source_info_util
from jax._src.interpreters import mlir
from jax._src.pallas import core as pallas_core, pallas_call as _call
from jax._src.state import indexing, types as state_types

from tilejax._jax.jaxprs import Eqn, Program, consts

pallas_call_p = _call.pallas_call_p


@dataclass(frozen=True)
class Span:
    """Neighbouring elements along a dimension: `size` from `start`, `stride` apart."""

    start: Any
    size: int
    stride: int = 1


@dataclass(frozen=True)
class BlockDim:
    """One dimension of a block.

    **Arguments:**

    - `size`: elements of the block along it.
    - `squeezed`: the kernel does not see the dimension.
    - `step`: elements that an index counts: the size, or 1 for `pl.Element`.
    - `padding`: elements before and after the array that indices count too.
    """

    size: int
    squeezed: bool
    step: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BlockOf:
    """How an operand is cut into blocks.

    **Arguments:**

    - `shape`, `dtype`: of the whole array.
    - `dims`: a record a dimension.
    - `index_map`: a program of grid indices and index operands to block indices.
    - `space`: the name of the memory space asked for.
    - `origin`: what JAX calls the operand.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    dims: tuple[BlockDim, ...]
    index_map: Program
    space: str
    origin: str


@dataclass(frozen=True)
class Scratch:
    """Memory that a kernel asks for: `kind` is "memory" or a kind of semaphore."""

    shape: tuple[int, ...]
    dtype: np.dtype | None
    space: str
    kind: str = "memory"


@dataclass(frozen=True)
class PallasCall:
    """What a `pallas_call` equation says.

    **Arguments:**

    - `grid`: sizes; None where the size is an operand.
    - `vmapped`: dimensions that `vmap` added, which `program_id` does not count.
    - `indices`: shapes and dtypes of the operands that index maps may read.
    - `blocks`: inputs, then outputs; the first `inputs` are inputs.
    - `aliases`: pairs of an input and the output that shares its memory; inputs are
      counted with the index operands.
    - `semantics`: what the user declared of each grid dimension; None for nothing.
    - `independent`: whether the dialect says that all programs are independent.
    """

    name: str
    body: Program
    grid: tuple[int | None, ...]
    vmapped: frozenset[int]
    indices: tuple[Scratch, ...]
    blocks: tuple[BlockOf, ...]
    inputs: int
    scratch: tuple[Scratch, ...]
    aliases: tuple[tuple[int, int], ...]
    semantics: tuple[str, ...] | None
    independent: bool


class NotDescribable(Exception):
    """A part of a call that has no neutral form; the text says which."""


def describe(params: dict) -> PallasCall:
    """Read the parameters of a `pallas_call` equation.

    **Raises:** `NotDescribable`.
    """
    mapping = params["grid_mapping"]
    grid = tuple(n if isinstance(n, int) else None for n in mapping.grid)
    compiler = params.get("compiler_params")
    semantics = getattr(compiler, "dimension_semantics", None)
    if semantics is not None:
        semantics = tuple(str(getattr(s, "value", s)).lower() for s in semantics)
    index_avals = mapping.index_map_avals[len(grid) :]
    return PallasCall(
        name=name_of(params),
        body=params["jaxpr"],
        grid=grid,
        vmapped=frozenset(mapping.vmapped_dims),
        indices=tuple(_scratch(a) for a in index_avals),
        blocks=tuple(_block(b) for b in mapping.block_mappings),
        inputs=mapping.num_inputs,
        scratch=tuple(_scratch(a) for a in mapping.scratch_avals),
        aliases=tuple(params["input_output_aliases"]),
        semantics=semantics,
        independent="triton" in type(compiler).__module__,
    )


def _block(mapping) -> BlockOf:
    if mapping.transforms:
        raise NotDescribable(f"transforms of the block of {mapping.origin}")
    if consts(mapping.index_map_jaxpr):
        raise NotDescribable(f"constants in the index map of {mapping.origin}")
    if not isinstance(mapping.array_aval.dtype, np.dtype):
        raise NotDescribable(f"{mapping.origin} of dtype {mapping.array_aval.dtype}")
    space = mapping.transformed_block_aval.memory_space
    return BlockOf(
        shape=tuple(mapping.array_aval.shape),
        dtype=mapping.array_aval.dtype,
        dims=tuple(_dim(d, mapping.origin) for d in mapping.block_shape),
        index_map=mapping.index_map_jaxpr,
        space=_space(space),
        origin=str(mapping.origin),
    )


def _dim(dim, origin) -> BlockDim:
    if isinstance(dim, pallas_core.Squeezed):
        return BlockDim(1, True, 1)
    if isinstance(dim, pallas_core.Blocked):
        return BlockDim(dim.block_size, False, dim.block_size)
    if isinstance(dim, pallas_core.Element):
        return BlockDim(dim.block_size, False, 1, (dim.padding[0], dim.padding[1]))
    raise NotDescribable(f"a block dimension {type(dim).__name__} of {origin}")


def _space(space) -> str:
    space = getattr(space, "memory_space", space)
    return "any" if space is None else str(getattr(space, "value", space)).lower()


def _scratch(aval) -> Scratch:
    inner = getattr(aval, "inner_aval", aval)
    space = _space(getattr(aval, "memory_space", None))
    shape = getattr(inner, "shape", ())
    dtype = getattr(inner, "dtype", None)
    if isinstance(dtype, np.dtype):
        return Scratch(tuple(shape), dtype, space)
    if not isinstance(dtype, pallas_core.AbstractSemaphoreTy):
        raise NotDescribable(f"memory of dtype {dtype}")
    return Scratch(tuple(shape), None, space, str(getattr(dtype, "name", inner)))


def reference_type(aval) -> Scratch | None:
    """Describe the type of a reference; None for a type of values."""
    return _scratch(aval) if isinstance(aval, state_types.AbstractRef) else None


# Accesses

Transform = tuple[str, Any]


def transforms(found: Sequence) -> list[Transform]:
    """Bring what follows a reference to pairs of a kind and what it says.

    **Returns:** `("index", entries)`, where an entry is a `Span`, or what stands for an
    integer or an array of integers; `("bitcast", dtype)`; `("reshape", shape)`;
    `("transpose", permutation)`.

    **Raises:** `NotDescribable`.
    """
    return [_transform(each) for each in found]


def _transform(each) -> Transform:
    if isinstance(each, indexing.NDIndexer):
        return "index", [_entry(i) for i in each.indices]
    if isinstance(each, state_types.BitcastTransform):
        return "bitcast", np.dtype(each.dtype)
    if isinstance(each, state_types.ReshapeTransform):
        return "reshape", tuple(each.shape)
    if isinstance(each, state_types.TransposeTransform):
        return "transpose", tuple(each.permutation)
    raise NotDescribable(f"{type(each).__name__} of a reference")


def _entry(index):
    if not isinstance(index, indexing.Slice):
        return index
    if not isinstance(index.size, int) or not isinstance(index.stride, int):
        raise NotDescribable("a slice whose size is not static")
    return Span(index.start, index.size, index.stride)


def unflatten(tree, leaves: Sequence) -> Any:
    """Rebuild what an equation's operands were flattened from."""
    if hasattr(tree, "unflatten"):
        return tree.unflatten(leaves)
    return jax.tree_util.tree_unflatten(tree, leaves)


def copy_parts(eqn: Eqn, inputs: Sequence) -> tuple:
    """Return what a copy names: (source, its transforms), the same of the target.

    **Returns:** the two pairs, both semaphores, and the device to copy to or None.
    """
    source, target, done, sent, device = unflatten(eqn.params["tree"], inputs)
    return _split(source), _split(target), done, sent, device


def _split(ref) -> tuple[Any, tuple]:
    if isinstance(ref, state_types.TransformedRef):
        return ref.ref, tuple(ref.transforms)
    return ref, ()


def print_parts(eqn: Eqn) -> tuple[str, tuple[str | None, ...]] | None:
    """Return the format of a `debug_print`, and the operands' names in it.

    An operand without a name fills the next place. None for another callback.

    **Raises:** `NotDescribable` for values that are no arrays.
    """
    p = eqn.params
    if "fmt" not in p:
        return None
    if p["static_args"]:
        raise NotDescribable("a debug_print of what is not an array")
    plain, named = jax.tree.unflatten(p["in_tree"], range(len(eqn.invars)))
    names: list[str | None] = [None] * len(eqn.invars)
    for name, at in named.items():
        names[at] = name
    if sorted([*plain, *named.values()]) != list(range(len(eqn.invars))):
        raise NotDescribable("a debug_print of trees")
    return p["fmt"], tuple(names)


def line_of(eqn: Eqn) -> str:
    """Return the user's file and line of an equation, `file.py:12`; "" if unknown."""
    return source_info_util.summarize(eqn.source_info)


def name_of(params: dict) -> str:
    """Return a kernel's name: the one given, or its function's."""
    info = getattr(params["jaxpr"], "debug_info", None)
    source = getattr(info, "func_src_info", None) or "kernel"
    return str(params.get("name") or source.split(" ")[0])


def reference_names(params: dict) -> list[str]:
    """Return what a kernel calls its references, in the order it takes them."""
    program = params["jaxpr"]
    info = getattr(program, "debug_info", None)
    names = list(getattr(info, "arg_names", None) or ())
    count = len(program.invars)
    names = names if len(names) == count else [None] * count
    return [name or f"reference {i}" for i, name in enumerate(names)]


# Lowering


class _Native:
    """An `interpret=` that asks for a compiled kernel on the CPU.

    It is false, so that for every other platform it says what False says.
    """

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "native"


NATIVE = _Native()


def on_cpu(
    rule: Callable,
    is_asked_for: Callable[[], bool],
    *,
    instead_of_interpreting: bool = False,
) -> None:
    """Have `rule(ctx, *operands, **params)` lower compiled calls for the CPU.

    **Arguments:**

    - `is_asked_for`: whether calls that are not marked `interpret=NATIVE` are compiled,
      too, where they are lowered. Otherwise JAX refuses them, as it does by itself.
      An interpreted call keeps JAX's own lowering in any case.
    - `instead_of_interpreting`: but for calls that say `interpret=True`, to try on them
      what is made for compiled ones.
    """

    def lower(ctx, *operands, interpret, **params):
        is_native = interpret is NATIVE or is_asked_for()
        if interpret is True and instead_of_interpreting:
            interpret = False
        if interpret or not is_native:
            return interpreted(ctx, *operands, interpret=interpret, **params)
        return rule(ctx, *operands, **params)

    mlir.register_lowering(pallas_call_p, lower, platform="cpu")


def is_unmarked(eqn: Eqn) -> bool:
    """Tell whether an equation is a compiled call that nobody marked native yet."""
    if eqn.primitive is not pallas_call_p:
        return False
    interpret = eqn.params["interpret"]
    return not interpret and interpret is not NATIVE


def marked(eqn: Eqn) -> Eqn:
    """Return a call marked native."""
    return eqn.replace(params=eqn.params | {"interpret": NATIVE})


def interpreted(ctx, *operands, **params):
    """Lower a call as JAX does by itself, `interpret=` being among the parameters."""
    return _call._pallas_call_lowering(ctx, *operands, **params)


def is_literal(atom) -> bool:
    """Tell whether an operand is a constant in the program."""
    return isinstance(atom, core.Literal)
