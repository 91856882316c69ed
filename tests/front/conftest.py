"""How the tests of `tilejax.jit` compile: quickly, since each program runs once."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module")
def quick_to_compile() -> Iterator[None]:
    """LLVM is told to hurry, for `jax.jit` as for `tilejax.jit`.

    Not for tests that ask two programs for the same bits. What was compiled meanwhile,
    JAX's own operations among it, is forgotten, so that such tests may follow.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
