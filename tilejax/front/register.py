"""`tilejax.register_op`: an operation of the user's, from one declaration."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilejax.errors import DeclarationError
from tilejax.lowering import rules
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
    or what is no function; `TargetError` for an unknown target.

    >>> import jax, jax.numpy as jnp, tilejax
    >>> swish = tilejax.register_op(
    ...     "doc_swish", reference=lambda x: x * jax.nn.sigmoid(x),
    ...     sharding="... -> ...",
    ... )
    >>> float(jax.grad(swish)(0.0))
    0.5
    """
    tables = {"forward": kernels or {}, "backward": backward_kernels or {}}
    for part, table in tables.items():
        for target, run in table.items():
            rules.platforms_of(target)
            if not callable(run):
                raise DeclarationError(
                    f"{name}: the {part} kernel for {target} is no function: {run!r}"
                )
    op = define(
        name,
        reference=reference,
        sharding=sharding,
        backward=backward,
        saves=tuple(saves),
        cost=cost,
        dtypes=tuple(dtypes),
    )
    for part, table in tables.items():
        for target, run in table.items():
            rules.register_kernel(
                op, target, _runner(run, config_space), configs=_space(config_space),
                part=part,
            )  # fmt: skip
    return op


def _runner(run: Callable, space: ConfigSpace | None) -> Callable:
    if space is not None:
        return run

    def without_config(*operands, config, **params):
        del config  # the kernel has none
        return run(*operands, **params)

    return without_config


def _space(space: ConfigSpace | None) -> Callable:
    if callable(space):
        return space
    found = [None] if space is None else list(space)
    return lambda target, *avals, **params: found
