"""Splitting one function over the devices of an automatically sharded program."""

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
from jax._src import dispatch
from jax._src.sharding_impls import SPMDAxisContext
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

    @property
    def reduced(self) -> frozenset[str]:
        """Factors that are summed over."""
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
    return (getattr(context, "num_devices", 1) or 1) > 1


def split(fun: Callable, rule: FactorRule | None, ranks: tuple[list, list]) -> Callable:
    """Let the partitioner split `fun(*arrays) -> list` along its factors.

    **Arguments:**

    - `fun`: computes the results of one shard from one shard of the operands.
    - `rule`: a factor that is neither whole nor a halo may be sharded; a result that
      lacks a sharded factor is added up over it. None: everything stays whole.
    - `ranks`: the ranks of the operands and of the results.
    """
    fixed = frozenset() if rule is None else rule.whole | rule.halo
    operands, results = _named(rule, ranks)
    partitioned = custom_partitioning(lambda *xs: tuple(fun(*xs)))

    def partition(mesh, arg_infos, result_infos):
        axes = _axes_by_factor(operands, arg_infos, fixed)
        _axes_by_factor(results, result_infos, fixed, axes)

        def sharding(dims):
            return NamedSharding(mesh, PartitionSpec(*(axes.get(f) for f in dims)))

        summed = [
            tuple(a for f in axes if f not in dims for a in _as_tuple(axes[f]))
            for dims in results
        ]

        def shard(*xs):
            # the partitioner calls back under whatever mesh its caller had set
            with neutral_mesh():
                outs = fun(*xs)
                return tuple(
                    jax.lax.psum(out, names) if names else out
                    for out, names in zip(outs, summed, strict=True)
                )

        return (
            mesh,
            shard,
            tuple(sharding(d) for d in results),
            tuple(sharding(d) for d in operands),
        )

    text, options = _shardy(operands, results, fixed, rule)
    partitioned.def_partition(partition=partition, sharding_rule=text, **options)
    return partitioned


def _named(rule, ranks) -> tuple[list, list]:
    """Give every dimension a factor, its own where the rule has none."""
    if rule is None:
        ins = [("1",) * r for r in ranks[0]]
        outs = [("1",) * r for r in ranks[1]]
    else:
        ins, outs = rule.operands, rule.results
    count = 0
    named: tuple[list, list] = ([], [])
    for side, values in zip(named, (ins, outs), strict=True):
        for dims in values:
            own = []
            for factor in dims:
                if factor == "1" or (rule is not None and factor in rule.halo):
                    own.append(f"own{count}")
                    count += 1
                else:
                    own.append(factor)
            side.append(tuple(own))
    return named


def _axes_by_factor(values: Sequence, infos, fixed, found: dict | None = None) -> dict:
    """Which mesh axes each factor is sharded over, every axis used once."""
    found = {} if found is None else found
    for dims, info in zip(values, infos, strict=True):
        spec = getattr(info.sharding, "spec", None) or ()
        for factor, entry in zip(dims, tuple(spec), strict=False):
            if entry is None or factor in fixed or factor.startswith("own"):
                continue
            taken = {a for e in found.values() for a in _as_tuple(e)}
            if factor not in found and not taken & set(_as_tuple(entry)):
                found[factor] = entry
    return found


def _as_tuple(entry) -> tuple:
    return entry if isinstance(entry, tuple) else (entry,)


def _shardy(operands, results, fixed, rule) -> tuple[str, dict]:
    """Spell the rule as Shardy does; factors that stay whole need replication."""

    def show(values):
        return ", ".join(" ".join(dims) for dims in values)

    # in the order in which they appear, which is how Shardy numbers factors: it refuses
    # lists of them that are not sorted
    every = dict.fromkeys(f for dims in (*operands, *results) for f in dims)
    whole = tuple(f for f in every if f in fixed or f.startswith("own"))
    summed = (rule.reduced if rule else frozenset()) - fixed
    reduced = tuple(f for f in every if f in summed)
    text = f"{show(operands)} -> {show(results)}"
    options = {"need_replication_factors": whole, "reduction_factors": reduced}
    return text, {k: v for k, v in options.items() if v}
