"""The table of kernels by (target, operation), and how one is picked and lowered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
from jax.sharding import AbstractDevice

from tilejax import targets
from tilejax._jax import partition as _partition, primitives as _p
from tilejax.errors import DeclarationError, TargetError
from tilejax.lowering.choice import Choice as Choice, pick
from tilejax.options import current as options_in_force, options
from tilejax.primitives import parts
from tilejax.primitives.call import Call, batched
from tilejax.primitives.op import Op
from tilejax.primitives.sizes import show


@dataclass(frozen=True)
class Kernel:
    """One way to run a part of an operation on a target.

    **Arguments:**

    - `op`, `part`: what it computes: `"forward"` or `"backward"`.
    - `target`: a target's name or kind (`"tpu:v5e"`, `"tpu"`).
    - `run`: forward: `(*operands, config=, **params)` to what the reference returns;
      backward: `(operands, saved, cotangents, config=, **params)` to a gradient an
      operand. Operands that were not given are None.
    - `configs`: `(target record, *operand avals, **params)` to a
      `tilejax.targets.Tiling` for each legal config, of which the model picks one; or
      to bare configs, of which the first is taken; or to a string that says why there
      is none.
    - `modelled`: whether configs are always `Tiling`s: then they are not even listed
      for what takes less time than a call of a kernel.
    """

    op: Op
    part: str
    target: str
    run: Callable
    configs: Callable
    modelled: bool = False


_KERNELS: dict[tuple[str, Op, str], Kernel] = {}


def register_kernel(
    op: Op,
    target: str,
    run: Callable,
    *,
    configs: Callable,
    part: str = "forward",
    modelled: bool = False,
) -> Kernel:
    """Add a kernel to the table.

    **Arguments:** those of `Kernel`.

    **Raises:** `DeclarationError` if there is one for the same target and part,
    `TargetError` for an unknown target or kind of target.
    """
    if part not in ("forward", "backward"):
        raise DeclarationError(f"{op.name}: part={part!r} must be forward or backward")
    key = (target, op, part)
    if key in _KERNELS:
        raise DeclarationError(
            f"{op.name} has a {part} kernel for {target} already, from "
            f"{_KERNELS[key].run.__module__}"
        )
    platforms = platforms_of(target)
    kernel = _KERNELS[key] = Kernel(op, part, target, run, configs, modelled)
    primitive = getattr(op, f"{part}_p")
    _partition.needs_devices(primitive)
    for platform in platforms:
        _p.def_lowering(primitive, partial(_lower, op, part, platform), platform)
    return kernel


def platforms_of(target: str) -> tuple[str, ...]:
    """Return the platforms of a target or kind of target; raise `TargetError`."""
    found = {t.platform for t in map(targets.get, targets.names()) if _fits(target, t)}
    if not found:
        kinds = sorted({targets.get(n).kind for n in targets.names()})
        raise TargetError(
            f"no target or kind of target {target!r}; targets are "
            f"{', '.join(targets.names())}; kinds are {', '.join(kinds)}"
        )
    return tuple(sorted(found))


def _fits(target: str, record) -> bool:
    return target in (record.name, record.kind, record.platform)


def find(op: Op, part: str, target) -> Kernel | None:
    """Return the kernel for a target record: by its name, else kind, else platform."""
    for name in (target.name, target.kind, target.platform):
        if (name, op, part) in _KERNELS:
            return _KERNELS[name, op, part]
    return None


def choose(
    op: Op, part: str, target, avals: Sequence, call: Call, params: Mapping
) -> Choice:
    """Pick what runs a part on operands of the given types, without measuring.

    A kernel runs where it is legal and its modelled time is not more than that of the
    reference.

    **Arguments:**

    - `target`: a `tilejax.targets.Target`.
    - `avals`: the types of one member of a batch, as `reference` gets them.
    """
    wish = options_in_force().kernels
    kernel = find(op, part, target)
    if kernel is None:
        return Choice("reference", f"no {part} kernel for {target.name}")
    if wish == "reference":
        return Choice("reference", "options(kernels='reference')")
    if any(0 in a.shape for a in avals):
        return Choice("reference", "an operand is empty")
    return pick(kernel, target, avals, call, params, always=wish == "native")


def _lower(op: Op, part: str, platform: str, ctx, *values, call: Call, **params):
    record = _record(op, call, platform)
    reference = parts.function(op, part, call, params)
    settings = options_in_force()  # the partitioner asks when they may be others

    def chosen(avals):
        plain = [_p.plain(a) for a in avals]
        with options(**vars(settings)):
            return choose(op, part, record, plain, call, params)

    off = settings.kernels == "reference" or not find(op, part, record)
    if off or _partition.is_partly_manual(ctx) or _stays_plain(ctx, platform):
        return _p.lower_plain(ctx, reference, values)
    whole = chosen(parts.members(ctx.avals_in, call))
    if whole.kernel is None and whole.reference_seconds is not None:
        # it is slower for the whole: then for a device's part, too
        return _p.lower_plain(ctx, reference, values)

    def one(*xs):
        choice = chosen([jax.typeof(x) for x in xs])
        if choice.kernel is None:
            bare = replace(call, levels=())
            return parts.function(op, part, bare, params)(*xs)
        return _native(op, part, choice, call, params, xs)

    fun = batched(one, call.levels)
    if _partition.is_split(ctx):
        rule = parts.rule_of(op, part, ctx.avals_in, call, params)

        def fits(avals):
            return chosen(parts.members(avals, call)).kernel is not None

        fun = _partition.split(_partition.Forms(fun, reference, fits), rule)
    return _p.lower_plain(ctx, fun, values, _device(record))


def _stays_plain(ctx, platform: str) -> bool:
    """Tell whether a program is exported, and asked to run in other processes.

    Code that was compiled here is known by name in this process only, so that
    `jax.export` refuses it unless told not to. A wish for kernels that a program for
    several platforms is lowered under is one for the others'.
    """
    exported = _p.exported_for(ctx)
    if platform != "cpu" or not exported:
        return False
    return len(exported) > 1 or options_in_force().kernels != "native"


def _device(record):
    """The device to lower for, unless it is at hand or the user named it."""
    here = {d.platform for d in jax.devices()}
    if record.platform in ("cpu", *here) or _p.abstract_device() is not None:
        return None
    kind = record.device_kinds[0]
    return AbstractDevice(kind, record.cores, platform=record.platform)


def _record(op: Op, call: Call, platform: str):
    name = call.target or options_in_force().target
    if name is None:
        return _of_platform(platform)
    return targets.for_platform(name, platform, op.name)


def _of_platform(platform: str):
    """The device at hand; else the one a context names; else the smallest known."""
    for device in jax.devices():
        try:
            record = targets.detect(device)
        except TargetError:  # a device that no record is of
            continue
        if record.platform == platform:
            return record
    known = [t for t in map(targets.get, targets.names()) if t.platform == platform]
    abstract = _p.abstract_device()
    for record in known:
        if abstract is not None and abstract.device_kind in record.device_kinds:
            return record
    return min(known, key=lambda t: sum(m.bytes or 0 for m in t.memories))


def _native(op: Op, part: str, choice: Choice, call: Call, params, xs) -> list:
    assert choice.kernel is not None
    run = partial(choice.kernel.run, config=choice.config, **op.params(params))
    if part == "forward":
        out = run(*call.expand(xs))
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        _check_results(op, call, params, xs, outs)
        return outs
    operands, saved, cotangents = parts.split_args(op, call, xs)
    grads = run(call.expand(operands), saved, cotangents)
    return parts.gradients(op, call, operands, grads)


def _check_results(op: Op, call: Call, params, xs, outs: list) -> None:
    """Raise `DeclarationError` unless a kernel gives what the reference gives."""
    avals = tuple(_p.plain(jax.typeof(x)) for x in xs)
    want = [show(a) for a in op.signature(avals, call, params)[0]]
    got = [show(x) if hasattr(x, "dtype") else repr(x) for x in outs]
    if got != want:
        raise DeclarationError(
            f"{op.name}: its kernel returned {', '.join(got)}, but its reference "
            f"{', '.join(want)}"
        )
