"""JAX's tables of rules for primitives, and the types that their values carry."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
from jax._src import checkify as _checkify, config, core, dispatch, mesh as mesh_lib
from jax._src.interpreters import ad, batching, mlir, partial_eval as pe
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from tilejax._jax.jaxprs import consts, trace

ShapedArray = core.ShapedArray
Zero = ad.Zero
Tracer = core.Tracer
Primitive = core.Primitive
is_unknown = ad.is_undefined_primal


def new_primitive(name: str) -> Primitive:
    """Make a primitive with several results that runs itself when called eagerly."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(partial(dispatch.apply_primitive, primitive))
    return primitive


def known_aval(x) -> ShapedArray:
    """Return the type of a value, or of an unknown linear operand."""
    return x.aval if is_unknown(x) else core.typeof(x)


def instantiate(x):
    """Turn a symbolic zero into an array of zeros; leave anything else."""
    return ad.instantiate_zeros(x)


def add(x, y):
    """Add two tangents or cotangents, either of which may be a symbolic zero."""
    return ad.add_tangents(x, y)


def zero_tangent(aval) -> Zero:
    """Return the symbolic zero tangent of a value of type `aval`."""
    return Zero(aval.to_tangent_aval())


def cotangent_aval(aval) -> ShapedArray:
    """Return the type of the cotangent of a value of type `aval`."""
    return aval.to_ct_aval()


def abstract_device():
    """Return the device that a program is lowered for without having it, or None."""
    return mesh_lib.get_abstract_mesh().abstract_device


@contextmanager
def neutral_mesh(device=None):
    """Enter a context in which values carry no sharding types and no varying axes.

    **Arguments:**

    - `device`: the `jax.sharding.AbstractDevice` to lower for; None keeps the one at
      hand.
    """
    device = device or abstract_device()
    mesh = AbstractMesh((), (), abstract_device=device)
    with mesh_lib.use_abstract_mesh(mesh), config._check_vma(False):
        yield


def mesh_of(avals: Sequence[ShapedArray]):
    """Return the mesh that the types name, or None."""
    for aval in avals:
        if not aval.sharding.mesh.empty:
            return aval.sharding.mesh
    return None


def explicit_axes(mesh) -> frozenset[str]:
    """Return the names of the axes in Explicit mode."""
    return frozenset(mesh.explicit_axes)


def spec_of(aval: ShapedArray) -> tuple:
    """Return one entry a dimension: None, an axis name or a tuple of names."""
    spec = tuple(aval.sharding.spec)
    return spec + (None,) * (aval.ndim - len(spec))


def explicit_sharding(aval: ShapedArray) -> NamedSharding | None:
    """Return the sharding that the type has over Explicit axes, or None."""
    mesh = aval.sharding.mesh
    return aval.sharding if not mesh.empty and mesh.explicit_axes else None


def sharding_over(*values) -> NamedSharding | None:
    """Complete the last value, a `PartitionSpec`, with the mesh of the others."""
    *operands, asked = values
    if asked is None or isinstance(asked, NamedSharding):
        return asked
    mesh = mesh_of([core.typeof(x) for x in operands]) or mesh_lib.get_abstract_mesh()
    return NamedSharding(mesh, asked)


def partial_axes(aval: ShapedArray) -> frozenset[str]:
    """Return the mesh axes over which a value is unreduced or reduced."""
    spec, manual = aval.sharding.spec, aval.manual_axis_type
    return spec.unreduced | spec.reduced | manual.unreduced | manual.reduced


def varying_of(avals: Sequence[ShapedArray]) -> frozenset[str]:
    """Return the manual mesh axes over which any of the values varies."""
    return frozenset().union(*(a.manual_axis_type.varying for a in avals))


def plain(aval: ShapedArray) -> ShapedArray:
    """Return the type without sharding and varying axes."""
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def typed(aval: ShapedArray, mesh, spec: Sequence, varying: frozenset) -> ShapedArray:
    """Return the type with a sharding over `mesh` and varying manual axes."""
    if mesh is None:
        return aval
    return ShapedArray(
        aval.shape,
        aval.dtype,
        weak_type=aval.weak_type,
        sharding=NamedSharding(mesh, PartitionSpec(*spec)),
        manual_axis_type=core.ManualAxisType(varying=varying),
    )


def is_explicit(avals: Sequence[ShapedArray]) -> bool:
    """Tell whether any of the values is sharded over axes in Explicit mode."""
    mesh = mesh_of(avals)
    if mesh is None or not mesh.explicit_axes:
        return False
    return any(entry is not None for aval in avals for entry in spec_of(aval))


def with_front(aval: ShapedArray, lead: ShapedArray) -> ShapedArray:
    """Return the type with the first dimension of `lead` in front, as sharded."""
    shape = (lead.shape[0], *aval.shape)
    longer = ShapedArray(shape, aval.dtype, weak_type=aval.weak_type)
    spec = (spec_of(lead)[0], *spec_of(aval))
    return typed(longer, mesh_of([aval, lead]), spec, varying_of([aval]))


def match_varying(*operands):
    """Make all operands vary over the same manual axes, as JAX's own calls do."""
    return core.auto_insert_reshard(*operands)


class ClosedOverError(Exception):
    """A function that is to be traced alone uses a value of a trace around it."""


def plain_shapes(fun: Callable, avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    """Trace `fun` on plain types and return its outputs' types.

    **Raises:** `ClosedOverError`, with the type of the value.
    """
    with neutral_mesh():
        structs = [
            jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals
        ]
        program, _ = trace(lambda *xs: tuple(fun(*xs)), *structs)
    for x in consts(program):
        if isinstance(x, Tracer):
            raise ClosedOverError(core.typeof(x).str_short())
    return [plain(v.aval) for v in program.outvars]


def def_types(primitive: Primitive, rule: Callable) -> None:
    """Set the rule from the operands' types and parameters to the outputs' types."""
    primitive.def_abstract_eval(rule)


def def_jvp(primitive: Primitive, rule: Callable) -> None:
    """Set the forward-mode rule: (primals, tangents, **params)."""
    ad.primitive_jvps[primitive] = rule


def def_transpose(primitive: Primitive, rule: Callable) -> None:
    """Set the transpose rule: (cotangents, *operands, **params)."""
    ad.primitive_transposes[primitive] = rule


def def_batching(primitive: Primitive, rule: Callable) -> None:
    """Set the vmap rule: (operands, axes, **params) to (outputs, axes)."""
    batching.primitive_batchers[primitive] = rule


def front_axis(x, axis: int | None):
    """Move a mapped axis to the front."""
    return x if axis is None else batching.moveaxis(x, axis, 0)


def def_lowering(
    primitive: Primitive, rule: Callable, platform: str | None = None
) -> None:
    """Set the lowering rule: (context, *values, **params) to values."""
    mlir.register_lowering(primitive, rule, platform=platform)


def lower_plain(ctx, fun: Callable, values: Sequence, device=None) -> list:
    """Lower `fun`, traced on plain types, and give its outputs `ctx`'s shardings."""
    bare = ctx.replace(avals_in=[plain(a) for a in ctx.avals_in])
    with neutral_mesh(device):
        outs = mlir.lower_fun(fun, multiple_results=True)(bare, *values)
    ctx.set_tokens_out(bare.tokens_out)
    return [
        mlir.lower_with_sharding_in_types(ctx, o, aval)
        for o, aval in zip(outs, ctx.avals_out, strict=True)
    ]


def lowering_platforms(ctx) -> tuple[str, ...]:
    """Return the platforms that a lowering context serves."""
    return tuple(ctx.platforms or ctx.module_context.platforms)


def exported_for(ctx) -> tuple[str, ...]:
    """Return the platforms that `jax.export` lowers a program for; () if others do."""
    module = ctx.module_context
    return tuple(module.platforms) if module.lowering_parameters.for_export else ()


def def_saveable(primitive: Primitive, describe: Callable) -> None:
    """Let checkpoint policies see the primitive as the one it stands for.

    `describe(avals, params)` gives the primitive and parameters that the policy is
    asked about. JAX keeps no such table: its policies compare primitives by identity.
    """

    def rule(saveable, unknown, instantiated, eqn):
        missing = [
            v
            for v, inst in zip(eqn.invars, instantiated, strict=True)
            if not inst and isinstance(v, core.Var)
        ]
        count = len(eqn.outvars)
        if any(unknown):
            return None, eqn, [True] * count, [True] * count, missing
        like, params = describe([v.aval for v in eqn.invars], eqn.params)
        policy = pe.ensure_enum(saveable(like, *[v.aval for v in eqn.invars], **params))
        if isinstance(policy, pe.SaveableType):
            return eqn, None, [False] * count, [False] * count, []
        if isinstance(policy, pe.RecomputeType):
            return eqn, eqn, [False] * count, [True] * count, missing
        raise NotImplementedError(
            f"{eqn.primitive.name}: a checkpoint policy asked to offload its result; "
            "offload a name instead (jax.ad_checkpoint.checkpoint_name)"
        )

    pe.partial_eval_jaxpr_custom_rules[primitive] = rule


def def_checkify(primitive: Primitive, function: Callable) -> None:
    """Check what the reference would: `function(params)` gives it as a function."""

    def rule(*args, **params):
        # newer versions hand a context in front of (error, enabled, *operands)
        at = next(i for i, a in enumerate(args) if isinstance(a, _checkify.Error))
        context, (error, enabled, *operands) = args[:at], args[at:]
        closed = jax.make_jaxpr(function(params))(*operands)
        return _checkify.checkify_jaxpr(*context, closed, enabled, error, *operands)

    _checkify.error_checks[primitive] = rule


def settings():
    """Return all settings that tracing depends on, as one hashable value."""
    return config.trace_context()


def user_context(default: Any):
    """Make a setting that is part of JAX's tracing and compilation cache keys."""
    return jax.make_user_context(default)
