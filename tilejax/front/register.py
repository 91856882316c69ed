"""`tilejax.register_op`: an operation of the user's, from one declaration."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from tilejax.errors import DeclarationError
from tilejax.front.declared import checked_cost, checked_sharding, checked_space
from tilejax.lowering import rules
from tilejax.primitives import factors
from tilejax.primitives.define import define
from tilejax.primitives.op import Op

ConfigSpace = Sequence[Any] | Callable[..., Sequence[Any] | str]


def register_op(
    name: str,
    *,
    reference: Callable,
    sharding: str | Callable | None = None,
    backward: Callable | None = None,
    saves: Sequence[int] = (),
    kernels: Mapping[str, Callable] | None = None,
    backward_kernels: Mapping[str, Callable] | None = None,
    cost: Callable | None = None,
    config_space: ConfigSpace | None = None,
    dtypes: Sequence[str] = (),
) -> Op:
    """Declare an operation; its derivatives, `vmap`, sharding and lowering follow.

    The reference runs wherever there is no kernel.

    **Arguments:**

    - `name`: an identifier that no other operation has.
    - `reference`: the meaning, in plain JAX: `(*operands, **params)` to an array or a
      tuple of arrays. Parameters are static. An operand may be None.
    - `sharding`: the factor rule, `"m k, k n -> m n"`: equal names are equal
      dimensions, and a result is the sum over what it lacks. `n!` marks a dimension
      that a kernel needs whole, `h~` one whose results need neighbours, `...` leading
      ones. Or a function `(operand types, params)` to it. None: operands must not be
      sharded.
    - `backward`: `(operands, saved, cotangents, **params)` to a gradient an operand,
      None where there is none; by default the reference's own. `saved` are the results
      that `saves` names by their indices.
    - `kernels`: by target (`"tpu:v5e"`) or kind of target (`"tpu"`), a function like
      the reference, with `config=` if there is a `config_space`.
    - `backward_kernels`: likewise, functions like `backward`.
    - `cost`: `(*operand types, **params)` to a `tilejax.targets.Cost`.
    - `config_space`: the configs of the kernels, the best first; or a function
      `(target, *operand types, **params)` to them, or to a string that says why no
      kernel can run.
    - `dtypes`: names of the dtypes that operands may have; none for any.

    **Returns:** the operation, to be called with arrays.

    **Raises:** `DeclarationError` for a name taken before, a rule that cannot be read,
    or what is no function; `TargetError` for an unknown target. What the functions
    return is checked when they are first used, by `DeclarationError` too.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> swish = tilejax.register_op(
    ...     "doc_swish", reference=lambda x: x * jax.nn.sigmoid(x),
    ...     sharding="... -> ...",
    ... )
    >>> float(jax.grad(swish)(0.0))
    0.5
    """
    tables = {"forward": kernels, "backward": backward_kernels}
    _check(name, reference, sharding, config_space, dtypes)
    for part, table in tables.items():
        _check_kernels(name, part, table)
    op = define(
        name,
        reference=reference,
        sharding=checked_sharding(name, sharding),
        backward=backward,
        saves=tuple(saves),
        cost=checked_cost(name, cost),
        dtypes=tuple(dtypes),
    )
    configs = checked_space(name, config_space)
    for part, table in tables.items():
        for target, run in (table or {}).items():
            rules.register_kernel(
                op, target, _runner(run, config_space), configs=configs, part=part
            )
    return op


def _check(name, reference, sharding, config_space, dtypes) -> None:
    """Raise `DeclarationError` for what `define` does not look at."""
    wrong = None
    if not isinstance(name, str):
        wrong = f"its name must be a string, not {type(name).__name__}"
    elif not callable(reference):
        wrong = f"reference= must be a function, not {reference!r}"
    elif not (sharding is None or isinstance(sharding, str) or callable(sharding)):
        wrong = f"sharding= must be a factor rule or a function, not {sharding!r}"
    elif not (
        config_space is None
        or callable(config_space)
        or (isinstance(config_space, Sequence) and not isinstance(config_space, str))
    ):
        wrong = f"config_space= must be a list or a function, not {config_space!r}"
    elif isinstance(dtypes, str) or not all(map(_is_dtype, dtypes)):
        wrong = f"dtypes= must be a list of names of dtypes, not {dtypes!r}"
    if wrong is not None:
        raise DeclarationError(f"{name}: {wrong}")
    if isinstance(sharding, str):
        try:
            factors.parse(sharding)
        except DeclarationError as error:
            raise DeclarationError(f"{name}: {error}") from error


def _is_dtype(name) -> bool:
    try:
        return isinstance(name, str) and jnp.dtype(name).name == name
    except TypeError:
        return False


def _check_kernels(name: str, part: str, table) -> None:
    if table is not None and not isinstance(table, Mapping):
        raise DeclarationError(
            f"{name}: {part} kernels are given as a dict from a target's name to a "
            f"function, not as {table!r}"
        )
    for target, run in (table or {}).items():
        rules.platforms_of(target)
        if not callable(run):
            raise DeclarationError(
                f"{name}: the {part} kernel for {target} is no function: {run!r}"
            )


def _runner(run: Callable, space: ConfigSpace | None) -> Callable:
    if space is not None:
        return run

    def without_config(*operands, config, **params):
        del config  # the kernel has none
        return run(*operands, **params)

    return without_config
