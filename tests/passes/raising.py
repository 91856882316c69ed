"""Checks of what the raise passes make of a function, and that it means the same."""

from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import tilejax
from tilejax.ir import as_text, verify, walk
from tilejax.passes.pipeline import run

# Nothing here is run twice.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
TILED = ("tiled_attention", "tiled_softmax", "tiled_embedding", "tiled_conv")


def raised(fn: Callable, *args, **options) -> dict[str, int]:
    """Count the tiled operations in the function, products aside; run twice."""
    after = tilejax.jit(fn, **options).tile(*args).after
    verify(after, name="the passes")
    again, _ = run(after)
    assert as_text(again) == as_text(after), "a second run changed something"
    found = Counter(visit.eqn.primitive.name for visit in walk(after))
    return {name.removeprefix("tiled_"): found[name] for name in TILED if found[name]}


def reasons(fn: Callable, *args) -> str:
    """Return all that the passes left alone, and why."""
    made = tilejax.jit(fn).tile(*args)
    notes = [what for record in made.passes for what in record.notes]
    return "; ".join(what for what in notes if what.startswith("left"))


def check_same(fn: Callable, *args, tolerance: float = 1e-5, grad: bool = True) -> None:
    """Compare values and gradients with `jax.jit`'s, NaN and infinities included."""

    def both(jit):
        def run(*args):
            if not grad:
                return jit(fn)(*args), ()
            floats = [jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact) for x in args]

            def of(*given):
                there = iter(given)
                full = [
                    next(there) if f else x for f, x in zip(floats, args, strict=True)
                ]
                return jit(fn)(*full)

            given = [x for f, x in zip(floats, args, strict=True) if f]
            out, vjp = jax.vjp(of, *given)
            return out, vjp(jax.tree.map(_cotangent, out))

        return jax.jit(run, compiler_options=QUICK)(*args)

    got, want = both(tilejax.jit), both(jax.jit)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (x.dtype, x.shape, x.sharding) == (y.dtype, y.shape, y.sharding)
        x, y = (np.asarray(z).astype(np.float64) for z in (x, y))
        finite = np.isfinite(y)
        scale = np.max(np.abs(y), initial=1.0, where=finite)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


def _cotangent(x):
    """Numbers that differ, so that a gradient at the wrong place shows."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return np.zeros(x.shape, jax.dtypes.float0)
    numbers = jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape)
    return numbers.astype(x.dtype) + jnp.zeros_like(x)  # sharded as x is
