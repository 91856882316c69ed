"""Splitting one function over the devices of an automatically sharded program."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jax._src import dispatch
from jax._src.sharding_impls import SPMDAxisContext, parse_flatten_op_sharding
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from tilejax._jax.primitives import neutral_mesh


class FactorRule(Protocol):
    """Factors of operands and results; see `primitives.factors.Rule`."""

    @property
    def operands(self) -> tuple[tuple[str, ...], ...]:
        """A factor a dimension, for each operand."""
        ...

    @property
    def results(self) -> tuple[tuple[str, ...], ...]:
        """The same for each result."""
        ...

    @property
    def whole(self) -> frozenset[str]:
        """Factors that must not be split."""
        ...

    @property
    def halo(self) -> frozenset[str]:
        """Factors whose results need neighbours."""
        ...


def needs_devices(primitive) -> None:
    """Have JAX hand the mesh to the lowering of `primitive`."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def is_partly_manual(ctx) -> bool:
    """Tell whether some mesh axes are manual here and others automatic.

    The partitioner's callback for kernels cannot be told of both (jaxlib 0.10 and 0.12
    abort), so there a kernel would be gathered and run whole.
    """
    context = ctx.module_context.axis_context
    if not isinstance(context, SPMDAxisContext):
        return False
    rest = set(context.mesh.axis_names) - set(context.manual_axes)
    return any(context.mesh.shape[axis] > 1 for axis in rest)


def is_split(ctx) -> bool:
    """Tell whether the partitioner will split what is lowered in this context."""
    context = ctx.module_context.axis_context
    if isinstance(context, SPMDAxisContext):
        manual = set(context.manual_axes)
        if manual == set(context.mesh.axis_names):
            return False  # split already: each device's part is what is lowered
    return (getattr(context, "num_devices", 1) or 1) > 1


@dataclass(frozen=True)
class Forms:
    """Two ways to compute the same list of arrays from the same arrays.

    **Arguments:**

    - `kernel`: computes one shard of the results from one shard of the operands.
    - `reference`: plain JAX, which the partitioner can split by itself.
    - `fits`: tells from the types of one shard of the operands if `kernel` takes them.
    """

    kernel: Callable
    reference: Callable
    fits: Callable


def split(forms: Forms, rule: FactorRule | None) -> Callable:
    """Let the partitioner run a kernel on the parts that the devices have.

    XLA cannot see into a kernel, so the reference stands beside it in the program, and
    decides where everything lies, as it would alone: the kernel takes no part in that.
    Once it is known, the partitioner is asked for a flag, which says that each device
    can run the kernel on its part. If not, the reference runs as XLA itself has split
    it, with the collectives that this takes. The flag is a constant, so what is not
    taken is dead code, which XLA drops, collectives and all.

    **Arguments:**

    - `forms`: both of them.
    - `rule`: the kernel runs where no factor is sharded that is whole, a halo or `1`; a
      result that lacks a sharded factor is added up over it. None: all are whole.
    """

    def run(*xs):
        beside = forms.reference(*xs)

        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in beside]

        wide = jax.config.jax_enable_x64  # pyright: ignore

        def partition(mesh, infos, result_infos):
            with jax.enable_x64(wide):  # the callback's thread may have another
                return parted(mesh, infos, result_infos)

        def parted(mesh, infos, result_infos):
            everywhere = result_infos[-1].sharding  # the flag has no dimension to split
            found = _parts(mesh, rule, infos, result_infos[:-1])
            if found is None or not forms.fits(_shards(found.operands, infos)):
                nothing, where = partial(_nothing, types), [x.sharding for x in infos]
                return mesh, nothing, (everywhere,) * len(result_infos), tuple(where)

            def shard(*xs):
                # the partitioner calls back under whatever mesh its caller had set
                with jax.enable_x64(wide), neutral_mesh():
                    return *found.added(forms.kernel(*xs)), jnp.bool_(True)

            return mesh, shard, (*found.results, everywhere), found.operands

        partitioned = custom_partitioning(partial(_nothing, types))
        partitioned.def_partition(
            partition=partition,
            sharding_rule=_unrelated([x.ndim for x in xs], [x.ndim for x in beside]),
            decode_shardings=False,
        )
        *native, runs = partitioned(*xs)
        return [jnp.where(runs, x, y) for x, y in zip(native, beside, strict=True)]

    return run


def _nothing(types: Sequence, *_) -> tuple:
    """Results that nobody takes, and the flag that says so."""
    return *(jnp.zeros(x.shape, x.dtype) for x in types), jnp.bool_(False)


def _shards(where: Sequence, types: Sequence) -> list[jax.ShapeDtypeStruct]:
    return [
        jax.ShapeDtypeStruct(lie.shard_shape(x.shape), x.dtype)
        for lie, x in zip(where, types, strict=True)
    ]


@dataclass(frozen=True)
class _Parts:
    """Where the operands and results of a kernel lie, and what is added up over."""

    operands: tuple[NamedSharding, ...]
    results: tuple[NamedSharding, ...]
    summed: tuple[tuple[str, ...], ...]

    def added(self, outs: Sequence) -> tuple:
        return tuple(
            jax.lax.psum(out, names) if names else out
            for out, names in zip(outs, self.summed, strict=True)
        )


def _parts(mesh, rule: FactorRule | None, infos, result_infos) -> _Parts | None:
    """None where the reference must run: see `split`."""
    every = (*infos, *result_infos)
    specs = [spec for spec in (_spec(info, mesh) for info in every) if spec is not None]
    if len(specs) < len(every):
        return None
    dims = [("1",) * len(x.shape) for x in every]
    if rule is not None:
        dims = [*rule.operands, *rule.results]
    whole = {"1"} if rule is None else {"1", *rule.whole, *rule.halo}
    axes = _axes(dims, specs, len(infos))
    if axes is None or whole & axes.keys():
        return None
    for factors, info in zip(dims, every, strict=True):
        for factor, size in zip(factors, info.shape, strict=True):
            if size % math.prod(mesh.shape[n] for n in axes.get(factor, ())):
                return None
    where = [
        NamedSharding(mesh, PartitionSpec(*(axes.get(f) for f in factors)))
        for factors in dims
    ]
    count = len(infos)
    summed = [
        _names({f: axes[f] for f in axes if f not in factors})
        for factors in dims[count:]
    ]
    return _Parts(tuple(where[:count]), tuple(where[count:]), tuple(summed))


def _axes(dims, specs, count: int) -> dict[str, tuple[str, ...]] | None:
    """The mesh axes of each factor; None where `count` operands and results disagree.

    An operand may be whole where a result is split: each device takes its part. And
    one may be split along what is summed over where those axes split a result already:
    it is gathered (a weight over the devices that share a batch). How XLA would settle
    any other dispute cannot be told from here.
    """
    axes: dict[str, tuple[str, ...]] = {}
    kept = {factor for factors in dims[count:] for factor in factors}
    uses = [
        (factor, names)
        for at in (*range(count, len(dims)), *range(count))
        for factor, names in zip(dims[at], specs[at], strict=True)
    ]
    for factor, names in uses:
        if names and factor in kept:
            axes.setdefault(factor, names)
    operands = uses[sum(map(len, dims[count:])) :]
    held = {n for f, names in operands if names and f in kept for n in names}
    for factor, names in uses:
        if names and factor not in kept and not {*names} & {*_names(axes)}:
            axes[factor] = names
    for factor, names in uses:
        gathered = factor not in (kept | axes.keys()) and {*names} <= held
        if names != axes.get(factor, ()) and not gathered:
            if names or factor not in kept:
                return None
    used = _names(axes)
    return axes if len(used) == len({*used}) else None


def _names(axes: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for names in axes.values() for name in names)


def _spec(info, mesh) -> list[tuple[str, ...]] | None:
    """The mesh axes of each dimension; None where they do not say how a value lies."""
    try:
        found = parse_flatten_op_sharding(info.sharding._hlo_sharding, mesh)[0]
    except (ValueError, NotImplementedError, AssertionError):
        return None
    entries = [e if isinstance(e, tuple) else (e,) if e else () for e in found]
    return entries + [()] * (len(info.shape) - len(entries))


def _unrelated(operands: Sequence[int], results: Sequence[int]) -> str:
    """Spell for Shardy that no sharding follows from another; the last is the flag."""

    def names(letter, ranks):
        return [
            " ".join(f"{letter}{at}d{d}" for d in range(rank))
            for at, rank in enumerate(ranks)
        ]

    return (
        f"{', '.join(names('o', operands))} -> {', '.join([*names('r', results), ''])}"
    )
