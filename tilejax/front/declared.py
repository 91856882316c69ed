"""Functions of a declaration, each checked in what it returns."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilejax.errors import DeclarationError
from tilejax.primitives import factors
from tilejax.targets import Cost


def checked_sharding(name: str, sharding: Any) -> Any:
    """Let a factor rule that is a function give nothing but factor rules."""
    if not callable(sharding):
        return sharding

    @functools.wraps(sharding)
    def rule(types, params):
        found = sharding(types, params)
        if not isinstance(found, str):
            raise DeclarationError(
                f"{name}: its sharding function returned {found!r}; it must return a "
                "factor rule such as 'm k, k n -> m n' (with sharding=None, operands "
                "must not be sharded)"
            )
        try:
            factors.parse(found)
        except DeclarationError as error:
            raise DeclarationError(f"{name}: {error}") from error
        return found

    return rule


def checked_cost(name: str, cost: Callable | None) -> Callable | None:
    """Let a cost be a `tilejax.targets.Cost`."""
    if cost is None:
        return None

    @functools.wraps(cost)
    def run(*operands, **params):
        found = cost(*operands, **params)
        if not isinstance(found, Cost):
            raise DeclarationError(
                f"{name}: its cost function returned {found!r}; it must return a "
                "tilejax.targets.Cost(flops, bytes_read, bytes_written, dtype=...)"
            )
        return found

    return run


def checked_space(name: str, space: Any) -> Callable:
    """Return a function to a list of configs, or to why there is none."""
    if not callable(space):
        fixed = [None] if space is None else list(space)
        return lambda target, *operands, **params: fixed

    @functools.wraps(space)
    def configs(target, *operands, **params):
        found = space(target, *operands, **params)
        if not isinstance(found, Sequence) or isinstance(found, bytes):
            raise DeclarationError(
                f"{name}: its config_space returned {found!r} for {target.name}; it "
                "must return a list of configs, the best first, or a string that says "
                "why no kernel can run"
            )
        return found

    return configs
