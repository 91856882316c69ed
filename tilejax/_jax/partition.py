"""Splitting one function over the devices of an automatically sharded program."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
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
    decides where everything lies, as it would alone. Once that is known the partitioner
    keeps one of the two, and the other is dead code: the kernel where each device can
    run it on its part, else the reference as XLA itself has split it, with the
    collectives that this takes.

    **Arguments:**

    - `forms`: both of them.
    - `rule`: the kernel runs where no factor is sharded that is whole, a halo or `1`; a
      result that lacks a sharded factor is added up over it. None: all are whole.
    """

    def run(*xs):
        beside = forms.reference(*xs)
        count = len(xs)

        def partition(mesh, infos, result_infos):
            found = _parts(mesh, rule, infos[:count], result_infos)
            if found is None or not forms.fits(found.shards(infos[:count])):
                lie = tuple(x.sharding for x in result_infos)
                return (
                    mesh,
                    lambda *xs: xs[count:],
                    lie,
                    (
                        *(x.sharding for x in infos[:count]),
                        *lie,
                    ),
                )

            def shard(*xs):
                # the partitioner calls back under whatever mesh its caller had set
                with neutral_mesh():
                    return found.added(forms.kernel(*xs[:count]))

            return mesh, shard, found.results, (*found.operands, *found.results)

        partitioned = custom_partitioning(lambda *xs: xs[count:])
        partitioned.def_partition(
            partition=partition,
            sharding_rule=_shardy([x.ndim for x in xs], [x.ndim for x in beside]),
            decode_shardings=False,
        )
        return list(partitioned(*xs, *beside))

    return run


@dataclass(frozen=True)
class _Parts:
    """Where the operands and results of a kernel lie, and what is added up over."""

    operands: tuple[NamedSharding, ...]
    results: tuple[NamedSharding, ...]
    summed: tuple[tuple[str, ...], ...]

    def shards(self, infos) -> list[jax.ShapeDtypeStruct]:
        return [
            jax.ShapeDtypeStruct(where.shard_shape(x.shape), x.dtype)
            for where, x in zip(self.operands, infos, strict=True)
        ]

    def added(self, outs: Sequence) -> tuple:
        return tuple(
            jax.lax.psum(out, names) if names else out
            for out, names in zip(outs, self.summed, strict=True)
        )


def _parts(mesh, rule: FactorRule | None, infos, result_infos) -> _Parts | None:
    """None where something is sharded that a kernel needs whole, or not evenly."""
    every = (*infos, *result_infos)
    dims = [("1",) * len(x.shape) for x in every]
    if rule is not None:
        dims = [*rule.operands, *rule.results]
    whole = {"1"} if rule is None else {"1", *rule.whole, *rule.halo}
    axes: dict[str, tuple[str, ...]] = {}
    for factors, info in zip(dims, every, strict=True):
        spec = _spec(info, mesh)
        if spec is None:
            return None
        for factor, names in zip(factors, spec, strict=True):
            if names and factor in whole:
                return None
            # every axis is used once, by the factor that comes first
            if names and factor not in axes and not {*names} & {*_names(axes)}:
                axes[factor] = names
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


def _shardy(operands: Sequence[int], results: Sequence[int]) -> str:
    """Tie results to the reference's alone; operands lie where its equations want."""

    def names(letter, ranks):
        return [
            " ".join(f"{letter}{at}d{d}" for d in range(rank))
            for at, rank in enumerate(ranks)
        ]

    beside = ", ".join(names("r", results))
    return f"{', '.join([*names('o', operands), beside])} -> {beside}"
