"""Values that are known while a program is rewritten: literals and constants."""

import contextlib
from collections.abc import Sequence

import jax
import numpy as np
from jax._src import core, literals, mesh as mesh_lib, source_info_util as source_info

from tilejax._jax.jaxprs import Eqn, Literal, is_tracer

_WEAK = {bool: bool, int: literals.TypedInt, float: literals.TypedFloat}


def literal(value, aval) -> Literal:
    """Return the operand of type `aval`, weak or not, that always has this value.

    **Arguments:**

    - `value`: A scalar, or an array of one element.
    - `aval`: The type, of shape `()`.
    """
    item = np.asarray(value).astype(aval.dtype).reshape(())
    if not aval.weak_type:
        return core.Literal(literals.TypedNdArray(item, aval), aval)
    if aval.dtype == np.bool_:
        return core.Literal(bool(item), aval)
    kinds = {"i": literals.TypedInt, "u": literals.TypedInt, "c": literals.TypedComplex}
    make = kinds.get(aval.dtype.kind, literals.TypedFloat)
    return core.Literal(make(item.item(), aval.dtype), aval)


def literal_value(atom: Literal) -> np.ndarray:
    """Return the value of a literal as an array of its own dtype."""
    return np.asarray(atom.val, dtype=atom.aval.dtype)


def known_constant(value, limit: int) -> np.ndarray | None:
    """Return the constant as an array, if it may be looked at and is small enough.

    Tracers, references and keys are not known; an array that the user placed on a
    device stays there, since where it lies says where the program runs.
    """
    if is_tracer(value) or not hasattr(value, "dtype") or np.size(value) > limit:
        return None
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if not isinstance(value, jax.Array) or value.committed or value.is_deleted():
        return None
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return None
    with jax.transfer_guard("allow"):
        return np.asarray(value)


def is_placed(aval) -> bool:
    """Say whether the type says anything of a mesh: shardings or varying axes."""
    return aval is not core.ShapedArray(
        aval.shape, aval.dtype, weak_type=aval.weak_type
    )


def compute(eqn: Eqn, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run one equation on the CPU, outside all traces.

    JAX's own checks for NaN are off, since the equation may turn out not to be needed.
    """
    with contextlib.ExitStack() as stack:
        for setting in (
            jax.debug_nans(False),
            jax.debug_infs(False),
            jax.transfer_guard("allow"),
            jax.default_device(jax.local_devices(backend="cpu")[0]),
            mesh_lib.use_abstract_mesh(mesh_lib.AbstractMesh((), ())),
            core.eval_context(),
        ):
            stack.enter_context(setting)
        out = eqn.primitive.bind(*values, **eqn.params)
        outs = out if eqn.primitive.multiple_results else [out]
        return [np.asarray(x) for x in outs]


def frames(eqn: Eqn) -> list[tuple[str, int, str]]:
    """Return file, line and function of the user's frames, innermost first."""
    return [
        (frame.file_name, frame.start_line, frame.function_name)
        for frame in source_info.user_frames(eqn.source_info.traceback)
    ]


def scope(eqn: Eqn) -> str:
    """Return the name stack of the equation, as `jax.named_scope` spells it."""
    return str(eqn.source_info.name_stack)
